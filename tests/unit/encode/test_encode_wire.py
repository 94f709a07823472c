"""Numbers and pieces, byte by byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.encode.arrow.wire import gathered, joined, spread, varint, varints, zigzag
from penstock.registry.avro.default import number

EDGES = sorted({abs((1 << bits) + step) for bits in range(0, 65, 1) for step in (-1, 0, 1)} - {2**64, 2**64 + 1})


@pytest.mark.parametrize("most", [7, 8, 14, 28, 49, 55, 56, 57, 63, 64])
def test_numbers_of_every_size_are_written_as_one_by_one(most: int) -> None:
    values = [n for n in EDGES if n < 2**most]
    assert varints(np.array(values, np.uint64)).to_pylist() == [varint(n) for n in values]
    same = [values[-1]] * 3
    assert varints(np.array(same, np.uint64)).to_pylist() == [varint(n) for n in same]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_signed_numbers_are_written_as_avro_writes_them(values: list[int]) -> None:
    assert varints(zigzag(np.array(values, np.int64))).to_pylist() == [number(n) for n in values]


def test_pieces_of_some_places_are_empty_at_the_others() -> None:
    piece = varints(np.array([1, 300], np.uint64))
    assert spread(piece, np.array([1, 3]), 5).to_pylist() == [b"", b"\x01", b"", b"\xac\x02", b""]
    assert joined([pa.scalar(b"a", pa.large_binary()), piece], 2).to_pylist() == [b"a\x01", b"a\xac\x02"]
    assert joined([pa.scalar(b"a", pa.large_binary())] * 2, 2).to_pylist() == [b"aa", b"aa"]
    assert joined([], 2).to_pylist() == [b"", b""]


def test_bytes_before_and_after_a_slice_do_not_get_in() -> None:
    part = pa.array([b"before", b"x", b"yz"], pa.large_binary()).slice(1)
    assert spread(part, np.array([0, 2]), 3).to_pylist() == [b"x", b"", b"yz"]


def test_arrays_without_values_may_come_without_offsets() -> None:
    none = pa.Array.from_buffers(pa.large_binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    assert spread(none, np.array([], np.int64), 2).to_pylist() == [b"", b""]
    assert gathered(none, np.array([0, 0])).to_pylist() == [b""]
