"""Where a Protobuf message breaks: protobuf's runtime only says that it does.

A walk over the bytes that knows as much of the format as a reason needs. It decides nothing: it is asked about records
that were refused already, and where it finds nothing the runtime's words have to do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]

_FIXED = {1: 8, 5: 4}  # wire type -> bytes
_GROUP, _END_OF_GROUP = 3, 4
_MESSAGE, _STRING = FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING
_CUT = "the record ends in the middle of it"
_DEEPEST = 100  # levels; protobuf's own limit


Fields = dict[int, tuple[str, int, Any]]  # number -> name, type, and the descriptor of a message
_UNKNOWN = ("", 0, None)


class Fault(Exception):
    """`path` grows on the way out: on the way in no name is needed, and this is called for every bad record."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.path: list[str] = []


def fault(body: bytes, descriptor: Any) -> str | None:
    """The first thing that is wrong with a message: which field, which byte, what."""
    try:
        _message(body, 0, len(body), descriptor, 0, 0)
    except Fault as found:
        path = ".".join(reversed(found.path))
        return f"{path + ', ' if path else ''}byte {found.at}: {found}"
    return None


def _message(data: bytes, at: int, end: int, descriptor: Any, group: int, depth: int) -> int:
    """Walk a message, or a group up to the end that carries its number; where it ends."""
    if depth > _DEEPEST:
        raise Fault(at, "nested too deeply")
    fields = _fields(descriptor) if descriptor is not None else {}
    while at < end:
        tag, value = data[at], at + 1
        if tag >= 0x80:
            tag, value = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0 or tag >= 2**32:
            raise Fault(at, f"{number} is not a field number")
        if wire == _END_OF_GROUP:
            if number != group:
                raise Fault(at, "a group ends that did not begin")
            return value
        try:
            at = _value(data, value, end, wire, number, fields, depth)
        except Fault as found:
            found.path.append(fields[number][0] if number in fields else str(number))
            raise
    if group:
        raise Fault(at, "the group does not end")
    return at


def _value(data: bytes, at: int, end: int, wire: int, number: int, fields: Fields, depth: int) -> int:
    if wire == 0:
        return at + 1 if at < end and data[at] < 0x80 else _varint(data, at, end)[1]
    if wire == 2:
        size, start = (data[at], at + 1) if at < end and data[at] < 0x80 else _varint(data, at, end)
        if start + size > end:
            raise Fault(start, f"{size} bytes long, but only {end - start} left")
        _, kind, inner = fields.get(number, _UNKNOWN)
        if kind == _MESSAGE:
            _message(data, start, start + size, inner, 0, depth + 1)
        elif kind == _STRING:
            _text(data, start, start + size)
        return start + size
    if wire == _GROUP:
        _, kind, inner = fields.get(number, _UNKNOWN)
        return _message(data, at, end, inner if kind == FieldDescriptor.TYPE_GROUP else None, number, depth + 1)
    if wire not in _FIXED:
        raise Fault(at, f"there is no wire type {wire}")
    if at + _FIXED[wire] > end:
        raise Fault(at, _CUT)
    return at + _FIXED[wire]


def _text(data: bytes, start: int, end: int) -> None:
    try:
        data[start:end].decode()
    except UnicodeDecodeError as error:
        raise Fault(start + error.start, "invalid UTF-8") from None


@lru_cache(maxsize=1024)
def _fields(descriptor: Any) -> Fields:
    return {number: (f.name, f.type, f.message_type) for number, f in descriptor.fields_by_number.items()}


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    number = 0
    for i in range(10):
        if at + i >= end:
            raise Fault(at + i, _CUT)
        number |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            return number, at + i + 1
    raise Fault(at, "a number of more than 64 bits")
