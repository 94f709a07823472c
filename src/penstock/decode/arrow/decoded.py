"""What every decoder returns: typed columns and, for each record that failed, an error. Failures are data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock import record
from penstock.record import Failure

NULL = Failure(record.NULL_VALUE, "the value is null")


def empty(size: int = 0) -> Failure:
    return Failure(record.EMPTY_VALUE, f"the value is empty ({size} bytes)")


def invalid_utf8(error: UnicodeDecodeError) -> Failure:
    bad = error.object[error.start]
    return Failure(record.MALFORMED, f"invalid UTF-8: byte 0x{bad:02x} at position {error.start}")


def not_utf8(values: pa.Array) -> dict[int, Failure]:
    """The records of a binary array that are not UTF-8. Arrow checks a batch at a hundredth of what it costs to parse
    it; records are looked at one by one only where one of them is bad."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        found = enumerate(values.to_pylist())
        return {i: invalid_utf8(error) for i, value in found if value is not None and (error := _utf8_error(value))}
    return {}


def _utf8_error(value: bytes) -> UnicodeDecodeError | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return error
    return None


@dataclass(slots=True)
class Decoded:
    """`columns` has one row per record, all null where `failures` has an entry for that row."""

    columns: list[pa.Array]
    failures: dict[int, Failure] = field(default_factory=dict)
    schema_ids: pa.Array | None = None  # int32, null where a record names none; for formats that carry one


class Decoder(Protocol):
    """One format. Called once per Arrow batch, in a Python worker; any bytes are accepted, none raise.

    Only RegistryUnreachable and CompilerFailed may be raised: nothing is known about the records, the batch runs again.
    """

    def __call__(self, values: pa.Array) -> Decoded: ...
