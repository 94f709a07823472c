"""Columns of scalars as JSON writes them. No column given to these writers has nulls."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.arrow.encoded import Numbers, Places
from penstock.encode.arrow.wire import Pieces, Writer, constant, even, numbers, offsets_of, raw, sized, sizes_of, texts
from penstock.record import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

_QUOTE = constant(b'"')
_TIME_END = {"timestamp": constant(b'Z"'), "timestamp_ntz": _QUOTE}
_TIME_SIZE = len("0001-01-01T00:00:00.000000")

# What JSON does not allow inside quotes, and what Spark writes instead. The backslash is the first to be replaced: the
# others bring new ones.
_SHORT = {"\\": b"\\\\", '"': b'\\"', "\b": b"\\b", "\t": b"\\t", "\n": b"\\n", "\f": b"\\f", "\r": b"\\r"}
_ESCAPES = {character.encode(): written for character, written in _SHORT.items()}
_ESCAPES |= {bytes([byte]): b"\\u%04X" % byte for byte in range(0x20) if chr(byte) not in _SHORT}


def in_quotes(text: str) -> bytes:
    """One text: the name of a member."""
    raw_text = text.encode()
    for character, written in _ESCAPES.items():
        raw_text = raw_text.replace(character, written)
    return b'"' + raw_text + b'"'


def scalar(name: str, path: str) -> Writer:
    match name:
        case "string":
            return text_writer(path)
        case "float" | "double":
            return _float
        case "date":
            return _date(path)
        case "timestamp" | "timestamp_ntz":
            return _time(path, _TIME_END[name])
        case "binary":
            return _binary
    return _plain  # whole numbers and booleans


def decimal(column: pa.Array, _places: Places) -> Pieces:
    """With as many places as the type has. Arrow and Java agree on the digits, small ones (`0E-10`) included."""
    return [_cast(column)]


def _plain(column: pa.Array, _places: Places) -> Pieces:
    return [_cast(column)]


def _cast(column: pa.Array) -> pa.Array:
    return raw(column.cast(pa.large_string()))


def text_writer(path: str) -> Writer:
    return lambda column, places: [_QUOTE, _escaped(texts(column, places, path)), _QUOTE]


def _escaped(piece: pa.Array) -> pa.Array:
    """The same where nothing has to be escaped, which is found out by one look at all bytes of the column."""
    data = _bytes_of(piece, offsets_of(piece))
    escape = (data < 0x20) | (data == ord('"')) | (data == ord("\\"))
    if escape.any():
        found = set(data[escape].tobytes())
        for character, written in _ESCAPES.items():
            if character[0] in found:
                piece = pc.replace_substring(piece, character, written)
    return piece


def repeated(word: bytes, wanted: Numbers) -> pa.Array:
    """The word where it is wanted, and nothing elsewhere."""
    return sized(wanted * len(word), np.frombuffer(word * int(np.count_nonzero(wanted)), np.uint8))


def _bytes_of(piece: pa.Array, offsets: Numbers) -> Numbers:
    data = piece.buffers()[2]
    if data is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8, int(offsets[-1] - offsets[0]), int(offsets[0]))


def _float(column: pa.Array, _places: Places) -> Pieces:
    """The fewest digits that are read as the same number again. JSON has no number for what is none: text, as Spark."""
    values = numbers(column)
    text = _cast(column)
    finite = np.isfinite(values)
    if not finite.all():
        odd = values[~finite]
        names = np.where(np.isnan(odd), b'"NaN"', np.where(odd > 0, b'"Infinity"', b'"-Infinity"'))
        text = pc.replace_with_mask(text, pa.array(~finite), pa.array(names.tolist(), text.type))
    whole = finite & (values == np.trunc(values))
    if not whole.any():
        return [text]
    # A reader that goes by how a number looks must not take 1.0 for an integer.
    offsets = offsets_of(text)
    data = _bytes_of(text, offsets)
    marks = np.flatnonzero((data == ord(".")) | (data == ord("e")))
    whole[np.searchsorted(offsets, marks, "right") - 1] = False
    return [text, repeated(b".0", whole)]


def _date(path: str) -> Writer:
    def write(column: pa.Array, places: Places) -> Pieces:
        days = numbers(column)
        places.fail_days(days, path)  # what failed is written as the nearest: all must be of one size
        return [_QUOTE, _cast(pa.array(np.clip(days, FIRST_DAY, LAST_DAY)).view(pa.date32())), _QUOTE]

    return write


def _time(path: str, end: pa.Scalar) -> Writer:
    """Arrow takes fifty times as long for a time in a zone, even in UTC. Without one it has a blank where T belongs."""

    def write(column: pa.Array, places: Places) -> Pieces:
        times = numbers(column)
        places.fail_times(times, path)
        text = _cast(pa.array(np.clip(times, FIRST_MICROSECOND, LAST_MICROSECOND)).view(pa.timestamp("us")))
        digits = _bytes_of(text, offsets_of(text)).reshape(len(times), _TIME_SIZE).copy()
        digits[:, 10] = ord("T")
        return [_QUOTE, even(digits), end]

    return write


def _binary(column: pa.Array, _places: Places) -> Pieces:
    """Base64 of all values at once: each is filled up to whole groups of three bytes, so that no group has bytes of two
    values, and the characters for what was filled up are replaced by the `=` that says so."""
    piece = raw(column)
    offsets = offsets_of(piece)
    sizes = sizes_of(piece)
    groups = -(-sizes // 3)
    ends = np.cumsum(groups)
    missing = groups * 3 - sizes
    own = np.ones(int(groups.sum()) * 3, np.bool_)
    own[ends[missing > 0] * 3 - 1] = False
    own[ends[missing > 1] * 3 - 2] = False
    filled = np.zeros(len(own), np.uint8)
    filled[own] = _bytes_of(piece, offsets)
    written = np.frombuffer(binascii.b2a_base64(filled.data, newline=False), np.uint8).copy()
    written[ends[missing > 0] * 4 - 1] = ord("=")
    written[ends[missing > 1] * 4 - 2] = ord("=")
    return [_QUOTE, sized(groups * 4, written), _QUOTE]
