"""The registry's header before a Protobuf message: 0, the schema id, and which message of the schema it is.

    00  iiiiiiii  count index index ...  message

The id is four bytes, big-endian. Count and indexes are zig-zag varints that lead to the message type: the first index
is that of a message of the file, the next of a message inside it, and so on. Nearly always it is the first message of
the file, so that list, [0], is written as the one byte 0.

A batch has few different headers and many records, so headers are parsed once per different beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.decode.arrow.decoded import empty
from penstock.decode.arrow.page import Page
from penstock.errors import counted
from penstock.record import Failure

SHORTEST = 6
_BEGINNING = np.uint64(256**SHORTEST - 1)  # of eight bytes
MOST_INDEXES = 64  # protoc nests messages at most 32 deep; a count beyond this is not one


@dataclass(frozen=True)
class Header:
    """`failure` where it is none, or not of a record; what is known about the schema id is kept."""

    schema_id: int | None
    indexes: tuple[int, ...] = ()
    length: int = 0  # bytes before the message
    failure: Failure | None = None


def headers(values: pa.Array, page: Page) -> Iterable[tuple[Header, Any]]:
    """The different headers of a batch with the rows (numpy) that have them. Null values have none. `page`: of them."""
    if alike := _only_one(values, page):
        return [(alike, np.arange(len(values)))]
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    found: dict[Header, list[Any]] = {}
    length = SHORTEST
    while len(rows):
        starts = pc.binary_slice(_rows(values, rows), 0, length).dictionary_encode()
        codes = starts.indices.to_numpy()
        parsed = [parse(start, whole=len(start) < length) for start in starts.dictionary.to_pylist()]
        for header, of_header in _grouped(codes, parsed):
            found.setdefault(header, []).append(rows[of_header])
        longer = [found_or_more if isinstance(found_or_more, int) else 0 for found_or_more in parsed]
        rows = rows[np.array(longer)[codes] > 0]
        length = min((n for n in longer if n), default=length)
    return [(header, np.concatenate(parts)) for header, parts in found.items()]


def _only_one(values: pa.Array, page: Page) -> Header | None:
    """The header that all values of a batch have, as nearly always; None where that cannot be told at a glance."""
    if not len(values) or values.null_count or (page.ends - page.starts < SHORTEST).any():
        return None
    starts = page.words[page.starts] & _BEGINNING
    if (starts != starts[0]).any():
        return None
    header = parse(int(starts[0]).to_bytes(8, "little")[:SHORTEST], whole=False)
    return header if isinstance(header, Header) else None


def _rows(values: pa.Array, rows: Any) -> pa.Array:
    return values if len(rows) == len(values) else values.take(pa.array(rows))


def _grouped(codes: Any, parsed: list[Header | int]) -> Iterable[tuple[Header, Any]]:
    """Positions of each header, for codes that are positions in `parsed`."""
    if len(parsed) == 1:
        order, ends = np.arange(len(codes)), np.array([0, len(codes)])
    else:
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(parsed) + 1))
    for i, header in enumerate(parsed):
        if isinstance(header, Header):
            yield header, order[ends[i] : ends[i + 1]]


def parse(start: bytes, whole: bool) -> Header | int:
    """The header that a record begins with, or how many bytes are needed to tell. `whole`: there are no more bytes."""
    if not start:
        return Header(None, failure=empty())
    if start[0] != 0:
        return Header(None, failure=_malformed(f"it begins with 0x{start[0]:02x}, not 0x00"))
    if len(start) < 5:
        return Header(None, failure=_malformed(f"only {counted(len(start), 'byte')}"))
    schema_id = int.from_bytes(start[1:5], "big", signed=True)
    numbers: list[int] = []
    at = 5
    while not numbers or len(numbers) <= numbers[0]:
        number, at = _zigzag(start, at)
        if at > len(start):
            return Header(schema_id, failure=_malformed("the record ends in the message indexes")) if whole else at
        if number is None or number < 0 or (not numbers and number > MOST_INDEXES):
            what = "an index" if numbers else "the count"
            return Header(schema_id, failure=_malformed(f"{what} of the message indexes is not one"))
        numbers.append(number)
    if not numbers[0]:
        numbers = [1, 0]
    return Header(schema_id, tuple(numbers[1:]), at)


def _zigzag(data: bytes, at: int) -> tuple[int | None, int]:
    """The number at a position and where the next one is; past the end where there is not enough data, None for one of
    more than 32 bits."""
    number = 0
    for i in range(5):
        if at + i >= len(data):
            return None, len(data) + 1
        number |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            return ((number >> 1) ^ -(number & 1) if number < 2**32 else None), at + i + 1
    return None, at + 5


def _malformed(reason: str) -> Failure:
    return Failure(record.MALFORMED, f"no registry header: {reason}")
