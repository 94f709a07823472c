"""Durations as people write them: `500ms`, `10s`, `5m`, `2h`, `1d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PATTERN = r"^([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d)$"
_STEP = timedelta(milliseconds=1)
_LONGEST = timedelta(days=1000)


def parse(value: Any) -> timedelta:
    """Called by the model for every duration.

    Whole milliseconds only, so that `text` says exactly the same.
    """
    if isinstance(value, timedelta):
        found = value
    else:
        parts = re.fullmatch(_PATTERN, value) if isinstance(value, str) else None
        if not parts:
            raise PydanticCustomError("duration", "a duration is a number and a unit: 500ms, 10s, 5m, 2h, 1d")
        found = timedelta(seconds=min(float(parts[1]) * _UNITS[parts[2]], _LONGEST.total_seconds()))
    if not _STEP <= found < _LONGEST or found % _STEP:
        raise PydanticCustomError("duration", "a duration is at least 1ms and less than 1000d, in whole milliseconds")
    return found


def text(value: timedelta) -> str:
    """The shortest exact form: 90 s is `90s`, 60 s is `1m`."""
    milliseconds = round(value.total_seconds() * 1000)
    for unit in ("d", "h", "m", "s"):
        size = int(_UNITS[unit] * 1000)
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def span(seconds: float) -> str:
    """A stretch of time as people say it, no more exact than they would."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return " ".join([f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest or not minutes))


Duration = Annotated[
    timedelta,
    BeforeValidator(parse),
    PlainSerializer(text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": ["10s"]}),
]
