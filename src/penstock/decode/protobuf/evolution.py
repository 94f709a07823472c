"""Whether what one Protobuf schema writes can be read with another.

Records are read with the reader's schema whatever wrote them: Protobuf's rules for changing a schema are rules about
that. Fields are told apart by number; the ones only the writer has are skipped, the ones only the reader has are
absent. But the rules also let changes pass that lose something: an int64 is cut to an int32, of a repeated field only
the last entry stays, of entries that become a map the last one of each key, and a field whose type or number changed
for good is taken for absent. Nor do they know that a column holds the names of an enum, which another schema may give
to other numbers, or that seconds and nanoseconds are a Timestamp here and a Duration there. A change is read here when
no value can come out as another one; else the schema is refused, before a record of it is read. (Zero and absent stay
one and the same where either schema declares a field without presence. A field may have another name, as long as the
writer has no other one of that name; a number of an enum may not, unless the enum has both names for it.)
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor as F  # type: ignore[import-untyped]

# writer's type -> reader's types that read the same value from the same bytes
_READ_AS: dict[int, set[int]] = {
    F.TYPE_INT32: {F.TYPE_INT64, F.TYPE_ENUM},
    F.TYPE_UINT32: {F.TYPE_UINT64, F.TYPE_INT64},
    F.TYPE_BOOL: {F.TYPE_INT32, F.TYPE_INT64, F.TYPE_UINT32, F.TYPE_UINT64},
    F.TYPE_ENUM: {F.TYPE_INT32, F.TYPE_INT64},
    F.TYPE_SINT32: {F.TYPE_SINT64},
    F.TYPE_STRING: {F.TYPE_BYTES},
    F.TYPE_BYTES: {F.TYPE_STRING, F.TYPE_MESSAGE},  # a record where it is no text, or no message, is refused
    F.TYPE_MESSAGE: {F.TYPE_BYTES},
}
# Messages that are values of another kind in a view than their fields are.
_OF_THEIR_OWN = {f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "Struct", "Value", "ListValue")}
_NAMES = {number: name.removeprefix("TYPE_").lower() for name, number in vars(F).items() if name.startswith("TYPE_")}


def conflict(writer: Any, reader: Any) -> str | None:
    """Why records of the writer's message cannot be read as the reader's: the first reason found; None if they can."""
    return _message(writer, reader, "", set())


def _message(writer: Any, reader: Any, path: str, seen: set[tuple[str, str]]) -> str | None:
    if (writer.full_name, reader.full_name) in seen:
        return None
    seen.add((writer.full_name, reader.full_name))
    for field in reader.fields:
        here = f"{path}.{field.name}" if path else field.name
        namesake = writer.fields_by_name.get(field.name)
        if namesake is not None and namesake.number != field.number:
            return f"{here}: written as number {namesake.number}, read as number {field.number}"
        written = writer.fields_by_number.get(field.number)
        if written is not None:
            found = _field(written, field, here, seen)
            if found:
                return found
    for oneof in reader.oneofs:
        written_fields = [writer.fields_by_number.get(field.number) for field in oneof.fields]
        choices = {w.containing_oneof.name if w.containing_oneof else w.name for w in written_fields if w is not None}
        if len(choices) > 1:
            return f"{path or 'the message'}: '{oneof.name}' is a oneof of fields that the writer can set together"
    return None


def _field(written: Any, field: Any, path: str, seen: set[tuple[str, str]]) -> str | None:
    if written.is_repeated and not field.is_repeated:
        return f"{path}: repeated where it was written, single where it is read"
    if written.type != field.type and field.type not in _READ_AS.get(written.type, ()):
        return f"{path}: written as {_NAMES[written.type]}, cannot be read as {_NAMES[field.type]} without loss"
    if field.enum_type is not None:
        found = _enum(written.enum_type, field.enum_type, path)
        if found:
            return found
    if written.message_type is not None and field.message_type is not None:
        if field.message_type.GetOptions().map_entry and not written.message_type.GetOptions().map_entry:
            return f"{path}: written as repeated {written.message_type.name}, of which a map keeps one for each key"
        names = [message.full_name for message in (written.message_type, field.message_type)]
        if names[0] != names[1] and not _OF_THEIR_OWN.isdisjoint(names):
            return f"{path}: written as {names[0]}, which would be misread as {names[1]}"
        return _message(written.message_type, field.message_type, path, seen)
    return None


def _enum(written: Any, enum: Any, path: str) -> str | None:
    """`written` is None for a number that was no enum."""
    names = _names(enum)
    if enum.is_closed:
        strange = [v.name for v in written.values if v.number not in names] if written else ["any"]
        if strange:
            return f"{path}: the reader's enum is closed and lacks {', '.join(strange)}"
    for number, found in _names(written).items() if written else ():
        if number in names and found.isdisjoint(names[number]):
            return f"{path}: {number} was written as {min(found)}, and would be read as {min(names[number])}"
    return None


def _names(enum: Any) -> dict[int, set[str]]:
    names: dict[int, set[str]] = {}
    for value in enum.values:
        names.setdefault(value.number, set()).add(value.name)
    return names
