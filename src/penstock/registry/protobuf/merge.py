"""Two versions of a Protobuf schema as one, which reads the records of both.

Fields meet by number, at every depth. One that was renamed keeps the name that the view has; one that the newest
version lacks stays, unless its type is a message or an enum, which the newest file need not have. What one version does
not require is not required. Types of other files stay what they are: only the file itself is written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.registry.protobuf.message import named

_TYPES = (F.TYPE_GROUP, F.TYPE_MESSAGE, F.TYPE_ENUM)  # they name another type, which the newest file may not have
# A type of the known version -> types that become it where they follow it: the column is as wide already.
_NARROWER = {F.TYPE_INT64: (F.TYPE_INT32,), F.TYPE_UINT64: (F.TYPE_UINT32,), F.TYPE_SINT64: (F.TYPE_SINT32,)}


@dataclass
class File:
    """A compiled file, and its messages by full name; imported types are not among them."""

    data: bytes
    file: Any = field(init=False)
    messages: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.file = FileDescriptorProto.FromString(self.data)
        self.messages = dict(_messages(f".{self.file.package}" if self.file.package else "", self.file.message_type))

    def root(self, message: str | None) -> Any:
        return self.messages[f".{named(self.file, message)}"]

    def inside(self, of: Any) -> Any:
        """The message that a field is; None for another type, and for one of another file."""
        return self.messages.get(of.type_name) if of.type in (F.TYPE_MESSAGE, F.TYPE_GROUP) else None


def _messages(prefix: str, messages: Any) -> Iterator[tuple[str, Any]]:
    for message in messages:
        yield f"{prefix}.{message.name}", message
        yield from _messages(f"{prefix}.{message.name}", message.nested_type)


def merged(known: File, newest: File, *, add: bool, message: str | None) -> bytes:
    """The file to read with from now on. Without `add` it is the known one, which requires no more than the newest."""
    base, other = (newest, known) if add else (known, newest)
    _Merge(base, other, add).messages(base.root(message), other.root(message))
    return bytes(base.file.SerializeToString())


def gained(known: File, newest: File, message: str | None) -> list[str]:
    """Paths of the fields of the newest version that the known one does not have."""
    return list(_gained(known, newest, known.root(message), newest.root(message), "", set()))


def _gained(known: File, newest: File, one: Any, other: Any, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    if (id(one), id(other)) in seen:
        return
    seen.add((id(one), id(other)))
    before = {each.number: each for each in one.field}
    for each in other.field:
        here = f"{path}.{each.name}" if path else each.name
        if each.number not in before:
            yield here
            continue
        inner, outer = known.inside(before[each.number]), newest.inside(each)
        if inner is not None and outer is not None:
            yield from _gained(known, newest, inner, outer, here, seen)


class _Merge:
    """Changes the messages of `base` in place; `other` is the version whose records are read too."""

    def __init__(self, base: File, other: File, add: bool) -> None:
        self.base, self.other, self.add = base, other, add
        self.seen: set[tuple[int, int]] = set()

    def messages(self, base: Any, other: Any) -> None:
        if (id(base), id(other)) in self.seen or base.options.map_entry:
            return
        self.seen.add((id(base), id(other)))
        by_number = {each.number: each for each in other.field}
        for each in base.field:
            match = by_number.get(each.number)
            if each.label == F.LABEL_REQUIRED and (match is None or match.label != F.LABEL_REQUIRED):
                each.label = F.LABEL_OPTIONAL
        for each in base.field:
            match = by_number.get(each.number)
            if match is None:
                continue
            narrowed = each.type in _NARROWER.get(match.type, ())
            alike = narrowed or match.type == each.type or match.type in _NARROWER.get(each.type, ())
            free = match.name not in {other.name for other in base.field}
            if self.add and free and alike and match.label == each.label:
                each.name = match.name
                each.ClearField("json_name")
            if self.add and narrowed:
                each.type = match.type
            self.inside(each, match)
        if self.add:
            self.keep(base, other)
            _without_reserved(base)

    def inside(self, base: Any, other: Any) -> None:
        one, two = self.base.inside(base), self.other.inside(other)
        if one is None or two is None:
            return
        if one.options.map_entry and two.options.map_entry:
            self.inside(one.field[1], two.field[1])
        else:
            self.messages(one, two)

    def keep(self, base: Any, other: Any) -> None:
        """The fields that only the known version has."""
        taken = {each.number for each in base.field} | {each.name for each in base.field}
        for each in other.field:
            if each.number in taken or each.name in taken or each.type in _TYPES:
                continue
            left = base.field.add()
            left.CopyFrom(each)
            present = each.proto3_optional or each.HasField("oneof_index") or self.other.file.syntax != "proto3"
            left.ClearField("oneof_index")
            left.ClearField("proto3_optional")
            if each.label == F.LABEL_REPEATED:
                continue
            left.label = F.LABEL_OPTIONAL
            if present and self.base.file.syntax == "proto3":  # absent stays null, as it was
                left.proto3_optional, left.oneof_index = True, len(base.oneof_decl)
                base.oneof_decl.add(name=f"_kept_{each.number}")


def _without_reserved(message: Any) -> None:
    for reserved in [r for r in message.reserved_range if any(r.start <= f.number < r.end for f in message.field)]:
        message.reserved_range.remove(reserved)
    for name in [n for n in message.reserved_name if n in {f.name for f in message.field}]:
        message.reserved_name.remove(name)
