"""Protobuf messages as Python values, one record at a time, with what is wrong where one is refused.

This is the reading that counts: protobuf's own runtime parses, and each value is checked here. `protobuf.batch` gives
the same for a whole batch at once, and asks here about the records it cannot take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from penstock import record
from penstock.decode.arrow.columns import arrow_type
from penstock.decode.protobuf.fault import fault
from penstock.record import FIRST_SECOND, LAST_SECOND, Failure, shortened
from penstock.registry.protobuf.shape import (
    Duration,
    Enum,
    Field,
    Json,
    Message,
    Pairs,
    Plain,
    Presence,
    Shape,
    Timestamp,
    Wrapper,
    field_type,
)

LONGEST_SECONDS = 315_576_000_000  # the 10,000 years of google.protobuf.Duration
NANOS = 999_999_999

Read = Callable[[Any], Any]


class Refused(Exception):
    """A record that parses but holds a value that no column can: the failure says which."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Calls:
    """What is called on messages, taken from their base class: a field may be called `HasField` or `Clear`."""

    def __init__(self, descriptor: Any) -> None:
        message_class = GetMessageClass(descriptor)
        base = message_class.__base__
        self.parse: Callable[[bytes], Any] = message_class.FromString
        self.has: Callable[[Any, str], bool] = base.HasField
        self.discard_unknown: Callable[[Any], None] = base.DiscardUnknownFields
        self.serialize: Callable[[Any], bytes] = base.SerializeToString
        self.missing: Callable[[Any], list[str]] = base.FindInitializationErrors


class Rows:
    """Reads the records of one message type. Made once per worker."""

    def __init__(self, descriptor: Any, shape: Message) -> None:
        self.name: str = descriptor.full_name
        self._descriptor = descriptor
        self.calls = Calls(descriptor)
        self._read = _message(shape, "", self.calls.has)
        self._columns = [(f.name, arrow_type(field_type(f))) for f in shape.fields]

    def row(self, body: bytes) -> dict[str, Any]:
        """The fields of one record. Raises Refused; any other exception is for `explain`."""
        message = self.calls.parse(body)
        missing = self.calls.missing(message)
        if missing:
            raise Refused(missing_fields(missing))
        found: dict[str, Any] = self._read(message)
        return found

    def explain(self, body: bytes, error: Exception) -> Failure:
        """The class and the reason of a record that `row` refused."""
        if isinstance(error, Refused):
            return error.failure
        said = fault(body, self._descriptor) or re.sub(r"^Error parsing message.*?: ", "", str(error))
        return Failure(record.MALFORMED, shortened(f"not a {self.name}: {said or type(error).__name__}"))

    def columns(self, rows: list[dict[str, Any] | None]) -> list[pa.Array]:
        return [pa.array([None if r is None else r[name] for r in rows], arrow) for name, arrow in self._columns]

    def read_each(self, bodies: list[bytes]) -> tuple[list[pa.Array], dict[int, Failure]]:
        """Record by record, without help from the batch reader: slower, the same result."""
        rows: list[dict[str, Any] | None] = []
        failures: dict[int, Failure] = {}
        for i, body in enumerate(bodies):
            try:
                rows.append(self.row(body))
            except Exception as error:  # any bytes must end as a record or as a failure
                rows.append(None)
                failures[i] = self.explain(body, error)
        return self.columns(rows), failures


def missing_fields(names: list[str]) -> Failure:
    return Failure(record.MISSING_FIELD, shortened(f"{', '.join(names)}: required, but absent"))


def _message(message: Message, path: str, has: Callable[[Any, str], bool]) -> Read:
    fields = [(f.name, _field(f, f"{path}.{f.name}" if path else f.name, has)) for f in message.fields]
    return lambda found: {name: read(found) for name, read in fields}


def _field(field: Field, path: str, has: Callable[[Any, str], bool]) -> Read:
    name, shape = field.name, field.shape
    if isinstance(shape, Pairs):
        return _pairs(name, shape, path, has)
    if field.repeated:
        read_item = _value(shape, f"{path}[]", has)
        return lambda found: [read_item(item) for item in getattr(found, name)]
    read = _value(shape, path, has)
    if field.presence:
        return lambda found: read(getattr(found, name)) if has(found, name) else None
    return lambda found: read(getattr(found, name))


def _pairs(name: str, shape: Pairs, path: str, has: Callable[[Any, str], bool]) -> Read:
    """Sorted by key, so that a batch that is run again writes what it wrote before."""
    read_key, read = _value(shape.key, f"{path}[...]", has), _value(shape.value, f"{path}[...]", has)
    as_text: Callable[[Any], str] = str
    if shape.key.type == FieldDescriptor.TYPE_BOOL:
        as_text = {False: "false", True: "true"}.__getitem__

    def pairs(found: Any) -> list[tuple[str, Any]]:
        entries = getattr(found, name)
        return [(as_text(key), read(entries[key])) for key in sorted(map(read_key, entries))]

    return pairs


def _value(shape: Shape, path: str, has: Callable[[Any, str], bool]) -> Read:
    match shape:
        case Plain(type=FieldDescriptor.TYPE_STRING):
            return lambda value: _text(value, path)
        case Plain():
            return lambda value: value
        case Enum(names=names):
            known = dict(names)
            return lambda number: known.get(number) or str(number)
        case Timestamp():
            return lambda value: timestamp(value.seconds, value.nanos, path)
        case Duration():
            return lambda value: duration(value.seconds, value.nanos, path)
        case Wrapper(value=plain):
            read = _value(plain, path, has)
            return lambda wrapper: read(wrapper.value)
        case Json():
            return lambda value: json_text(value, path)
        case Presence():
            return lambda _: True
        case Message():
            return _message(shape, path, has)
    raise AssertionError(shape)


def _text(value: str | bytes, path: str) -> str:
    if isinstance(value, bytes):  # what protobuf gives for text that is none, where proto2 lets it pass
        raise Refused(Failure(record.MALFORMED, shortened(f"{path}: invalid UTF-8")))
    return value


def timestamp(seconds: int, nanos: int, path: str) -> int:
    """Microseconds since 1970."""
    if not (FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanos <= NANOS):
        reason = f"{path}: {seconds} s and {nanos} ns is not a time in the years 1 to 9999"
        raise Refused(Failure(record.OUT_OF_RANGE, shortened(reason)))
    return seconds * 1_000_000 + nanos // 1_000


def duration(seconds: int, nanos: int, path: str) -> int:
    """Microseconds; what is less is cut off towards zero."""
    if not (-LONGEST_SECONDS <= seconds <= LONGEST_SECONDS and -NANOS <= nanos <= NANOS and seconds * nanos >= 0):
        reason = f"{path}: {seconds} s and {nanos} ns is not a duration of at most 10,000 years"
        raise Refused(Failure(record.OUT_OF_RANGE, shortened(reason)))
    return seconds * 1_000_000 + (nanos // 1_000 if nanos >= 0 else -(-nanos // 1_000))


def json_text(value: Any, path: str) -> str:
    """A google.protobuf.Struct, Value or ListValue as JSON; members in the order of their names."""
    try:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except ValueError:
        raise Refused(Failure(record.OUT_OF_RANGE, shortened(f"{path}: a number that JSON does not have"))) from None


def _plain(value: Any) -> Any:
    match value.DESCRIPTOR.name:
        case "Struct":
            return {name: _plain(member) for name, member in value.fields.items()}
        case "ListValue":
            return [_plain(item) for item in value.values]
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(value, kind)
    if kind in ("struct_value", "list_value"):
        return _plain(found)
    if kind == "number_value" and found.is_integer() and abs(found) < 2**53 and str(found) != "-0.0":
        return int(found)
    return found
