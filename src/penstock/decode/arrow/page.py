"""The values of a batch as one page of bytes, and numbers and texts that are read at many places of it at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.record import Failure

Numbers = npt.NDArray[Any]

MOST_BYTES = 2**30  # of one page: Arrow's views into it have 31 bits

_FRONT = 16  # a decimal is read as the 16 bytes before its end
_BACK = 64  # zeros for lost records, and so that 8 bytes can be read at every position
_U64 = np.uint64


class Page:
    """The values of a batch, and which of them failed."""

    def __init__(self, payload: Numbers, offsets: Numbers) -> None:
        size = len(payload)
        self.data: Numbers = np.empty(_FRONT + size + _BACK, np.uint8)
        self.data[:_FRONT] = 0
        self.data[_FRONT : _FRONT + size] = payload
        self.data[_FRONT + size :] = 0
        self.words: Numbers = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))  # 8 bytes at any byte
        self.starts: Numbers = offsets[:-1].astype(np.int64) + _FRONT
        self.ends: Numbers = offsets[1:].astype(np.int64) + _FRONT
        self.zeros = _FRONT + size + 1  # where no record is, not even the end of one
        self.zeros_end = len(self.data) - 8
        self.failures: dict[int, Failure] = {}
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The page for loops in Python, which index bytes faster than an array. Copied when first asked for."""
        if self._raw is None:
            self._raw = self.data.tobytes()
        return self._raw


def page_of(values: pa.Array) -> Page:
    """The page of a binary array. The bytes of a null are none."""
    size = len(values)
    _, places, payload = values.buffers()
    offsets = np.frombuffer(places, np.int32, size + 1, values.offset * 4) if size else np.zeros(1, np.int32)
    first, last = int(offsets[0]), int(offsets[-1])
    raw = np.frombuffer(payload, np.uint8, last - first, first) if last > first else np.empty(0, np.uint8)
    return Page(raw, offsets - first)


def long_varints(page: Page, pos: Numbers) -> tuple[Numbers, Numbers]:
    """Numbers of up to ten bytes, as they are written, and where they end. One that never ends, ends behind every
    record."""
    word = page.words[pos]
    stop = ~word & _U64(0x8080808080808080)
    last = stop & (~stop + _U64(1))  # the highest bit of the last byte
    size = ((last >> _U64(7)) * _U64(0x0001020304050607) >> _U64(56)).view(np.int64) + 1  # 2**(8k) -> k + 1
    value = _seven_bits(word & (last | (last - _U64(1))))
    endless = stop == 0
    if endless.any():
        where = np.flatnonzero(endless)
        ninth = page.data[np.minimum(pos[where] + 8, page.zeros_end)].astype(_U64)
        tenth = page.data[np.minimum(pos[where] + 9, page.zeros_end)].astype(_U64)
        two = ninth > 0x7F
        high = (ninth & _U64(0x7F)) << _U64(56) | np.where(two, tenth, _U64(0)) << _U64(63)
        value[where] = _seven_bits(word[where]) | high
        # The tenth byte holds the 64th bit and nothing else.
        size[where] = np.where(two & (tenth > 1), 2**32, np.where(two, 10, 9))
    return value.view(np.int64), pos + size


def _seven_bits(word: Numbers) -> Numbers:
    """The low seven bits of each byte, put together."""
    word = word & _U64(0x7F7F7F7F7F7F7F7F)
    word = (word & _U64(0x007F007F007F007F)) | (word & _U64(0x7F007F007F007F00)) >> _U64(1)
    word = (word & _U64(0x00003FFF00003FFF)) | (word & _U64(0x3FFF00003FFF0000)) >> _U64(2)
    return (word & _U64(0x000000000FFFFFFF)) | (word & _U64(0x0FFFFFFF00000000)) >> _U64(4)


def views(page: Page, starts: Numbers, sizes: Numbers) -> pa.Array:
    """Arrow's views into the page: short ones hold their bytes, others point at them. A cast copies the bytes out."""
    made: Numbers = np.empty((len(starts), 2), _U64)
    made[:, 0] = sizes.astype(_U64) | page.words[starts] << _U64(32)
    made[:, 1] = np.where(
        sizes <= 12, page.words[np.minimum(starts + 4, page.zeros_end)], starts.astype(_U64) << _U64(32)
    )
    buffers = [None, pa.py_buffer(made), pa.py_buffer(page.data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def not_text(column: pa.Array) -> Numbers:
    """Which values of a binary column are not UTF-8."""
    unchecked = pa.Array.from_buffers(pa.string(), len(column), column.buffers(), offset=column.offset)
    wrong: Numbers = ~pc.string_is_ascii(unchecked).to_numpy(zero_copy_only=False)
    for i in np.flatnonzero(wrong).tolist():
        wrong[i] = bad_byte(column[i].as_py()) is not None
    return wrong


def bad_byte(value: bytes) -> int | None:
    """Where a text stops being one."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None
