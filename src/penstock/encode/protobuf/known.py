"""Messages that are one value in a column: times, wrappers, JSON, and those without fields."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from penstock import record
from penstock.encode.arrow.encoded import Numbers, Places, shown
from penstock.encode.arrow.wire import booleans, constant, joined, numbers, sized, strings
from penstock.encode.protobuf.value import LENGTH, Value, as_message, as_varints, unless_zero

_PER_SECOND = 1_000_000
_LONGEST = 315_576_000_000 * _PER_SECOND + 999_999  # 10,000 years, as google.protobuf.Duration defines it
_NUMBER = as_varints(lambda column, _places: numbers(column))


def timestamp(path: str) -> Value:
    def body(column: pa.Array, places: Places) -> pa.Array:
        values = numbers(column)
        places.fail_times(values, path)
        seconds = values // _PER_SECOND
        return _seconds_and_nanos(seconds, (values - seconds * _PER_SECOND) * 1_000)

    return as_message(body)


def duration(path: str) -> Value:
    """Seconds and nanoseconds have the same sign."""

    def body(column: pa.Array, places: Places) -> pa.Array:
        values = numbers(column).astype(np.int64, copy=False)
        wrong = (values < -_LONGEST) | (values > _LONGEST)
        if wrong.any():
            said = "us is not a duration of at most 10,000 years"
            places.fail(wrong, path, record.OUT_OF_RANGE, lambda i: f"{int(values[i])} {said}")
        seconds = values // _PER_SECOND
        seconds += (values < 0) & (values != seconds * _PER_SECOND)
        return _seconds_and_nanos(seconds, (values - seconds * _PER_SECOND) * 1_000)

    return as_message(body)


def _seconds_and_nanos(seconds: Numbers, nanos: Numbers) -> pa.Array:
    halves = (unless_zero(i, _NUMBER, half.view(np.uint64), len(half)) for i, half in enumerate((seconds, nanos), 1))
    return joined([piece for half in halves for piece in half], len(seconds))


def wrapper(value: Value) -> Value:
    def body(column: pa.Array, places: Places) -> pa.Array:
        return joined(unless_zero(1, value, value.prepare(column, places), len(column)), len(column))

    return as_message(body)


def presence(path: str) -> Value:
    """True: it is there. False says the same as null; in a list or map, where there is no null, it says nothing."""

    def prepare(column: pa.Array, places: Places) -> int:
        there = booleans(column)
        places.fail(there == 0, path, record.WRONG_TYPE, "false, but a message without fields can only be there")
        return len(column)

    def pieces(count: int) -> list[Any]:
        return [joined([constant(b"\0")], count)]

    return Value(LENGTH, prepare, pieces, false_is_absent=True)


def dynamic(descriptor: Any, path: str) -> Value:
    """A google.protobuf.Struct, Value or ListValue from JSON text."""
    message_class = GetMessageClass(descriptor)
    what = {"Struct": "a JSON object", "ListValue": "a JSON array"}.get(descriptor.name, "JSON")

    def body(column: pa.Array, places: Places) -> pa.Array:
        written: list[bytes] = []
        wrong = np.zeros(len(column), np.bool_)
        texts = strings(column)
        for i, text in enumerate(texts):
            try:
                message = message_class()
                json_format.ParseDict(_parsed(text), message)
                written.append(message.SerializeToString(deterministic=True))
            except (ValueError, TypeError, RecursionError, json_format.Error):
                wrong[i] = True
                written.append(b"")
        places.fail(wrong, path, record.WRONG_TYPE, lambda i: f"expected {what}; the value is {shown(texts[i])}")
        return sized(np.array([len(raw) for raw in written], np.int64), np.frombuffer(b"".join(written), np.uint8))

    return as_message(body)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)


def _whole(text: str) -> float:
    """All numbers in there are doubles, `-0` too; one that would come out as another is refused."""
    number = float(text)
    if number != int(text):
        raise ValueError(text)
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
