"""Whether what one Protobuf schema writes can be read with another.

Records are read with the reader's schema whatever wrote them: Protobuf's rules for changing a schema are rules about
that. Fields are told apart by number; the ones only the writer has are skipped, the ones only the reader has are
absent. But the rules also let changes pass that lose something: an int64 is cut to an int32, of a repeated field only
the last entry stays, and a field whose type changed for good is taken for absent. A change is read here when no value
can come out as another one; else the schema is refused, before a record of it is read. (Zero and absent stay one and
the same where either schema declares a field without presence.)
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
_NAMES = {number: name.removeprefix("TYPE_").lower() for name, number in vars(F).items() if name.startswith("TYPE_")}


def conflict(writer: Any, reader: Any) -> str | None:
    """Why records of the writer's message cannot be read as the reader's: the first reason found; None if they can."""
    return _message(writer, reader, "", set())


def _message(writer: Any, reader: Any, path: str, seen: set[tuple[str, str]]) -> str | None:
    if (writer.full_name, reader.full_name) in seen:
        return None
    seen.add((writer.full_name, reader.full_name))
    for field in reader.fields:
        written = writer.fields_by_number.get(field.number)
        if written is not None:
            found = _field(written, field, f"{path}.{field.name}" if path else field.name, seen)
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
    if field.enum_type is not None and field.enum_type.is_closed:
        numbers = {value.number for value in field.enum_type.values}
        strange = (
            [v.name for v in written.enum_type.values if v.number not in numbers] if written.enum_type else ["any"]
        )
        if strange:
            return f"{path}: the reader's enum is closed and lacks {', '.join(strange)}"
    if written.message_type is not None and field.message_type is not None:
        return _message(written.message_type, field.message_type, path, seen)
    return None
