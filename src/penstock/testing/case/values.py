"""Values of a case against values of the engine: when they are the same, and how they are shown."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.spec.case import BYTES

_CLOSE = 1e-9  # of doubles: what adding up leaves behind is no difference
# Text that YAML would read as something else is shown in quotes, as it would have to be written.
_PLAIN = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\-?:,\[\]{}#&*!|>'\"%@`][^\x00-\x1f\x7f-\x9f\"\\]*")
_NOT_TEXT = re.compile(r"(?:[-+]?[.\d][\d.eE+_-]*|0[xo][0-9a-fA-F]+|null|~|true|false)", re.IGNORECASE)


def same(expected: Any, got: Any, *, exact: bool = False) -> bool:
    """Whether a value is the expected one. Of a mapping only the fields that are named count, unless `exact`.

    Numbers are compared as numbers, whatever their types; text stands for a time, a date, a decimal or bytes where
    the engine has one; times without a zone are UTC.
    """
    match got:
        case None | bool():
            return expected is got
        case str():
            return isinstance(expected, str) and expected == got
        case int() | float() | Decimal():
            return _same_number(expected, got)
        case datetime() | date():
            return _same_time(expected, got)
        case timedelta():
            return isinstance(expected, str) and expected == shown(got)
        case bytes():
            return _same_bytes(expected, got)
        case list():
            if not isinstance(expected, list) or len(expected) != len(got):
                return False
            return all(same(a, b, exact=exact) for a, b in zip(expected, got, strict=True))
        case dict():
            if not isinstance(expected, dict) or not expected.keys() <= got.keys():
                return False
            if exact and any(got[name] is not None for name in got.keys() - expected.keys()):
                return False
            return all(same(value, got[name], exact=exact) for name, value in expected.items())
    return bool(expected == got)


def _same_number(expected: Any, got: float | Decimal) -> bool:
    if isinstance(expected, str) and isinstance(got, Decimal):
        try:
            expected = Decimal(expected)
        except InvalidOperation:
            return False
    if isinstance(expected, bool) or not isinstance(expected, int | float | Decimal):
        return False
    if isinstance(got, float):
        if math.isnan(got) or math.isinf(got):
            return (math.isnan(got) and math.isnan(expected)) or got == expected
        try:
            return math.isclose(float(expected), got, rel_tol=_CLOSE)
        except OverflowError:
            return False
    return bool(expected == got)


def _same_time(expected: Any, got: date) -> bool:
    if not isinstance(expected, str):
        return False
    try:
        if not isinstance(got, datetime):
            return date.fromisoformat(expected) == got
        moment = datetime.fromisoformat(expected)
    except ValueError:
        return False
    if got.tzinfo is None:
        return moment == got if moment.tzinfo is None else False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) == got


def _same_bytes(expected: Any, got: bytes) -> bool:
    if isinstance(expected, str):
        return expected.encode() == got
    if not isinstance(expected, dict) or len(expected) != 1:
        return False
    ((kind, written),) = expected.items()
    if kind not in BYTES or not isinstance(written, str):
        return False
    try:
        found = {"text": str.encode, "hex": bytes.fromhex, "base64": base64.b64decode}[kind](written)
    except (ValueError, binascii.Error):
        return False
    return found == got


def shown(value: Any) -> str:
    """A value on one line, as it would be written in a case."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            plain = _PLAIN.fullmatch(value) and value == value.rstrip() and not _NOT_TEXT.fullmatch(value)
            return value if plain and ": " not in value and " #" not in value else json.dumps(value, ensure_ascii=False)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case timedelta():
            return str(value)
        case bytes():
            try:
                return shown(value.decode())
            except UnicodeDecodeError:
                return f"{{hex: {value.hex()}}}"
        case Decimal():
            return f"{value:f}" if value.is_finite() and abs(value.adjusted()) < 40 else str(value)
        case list():
            return f"[{', '.join(_inside(each) for each in value)}]"
        case dict():
            return "{" + ", ".join(f"{name}: {_inside(each)}" for name, each in value.items()) + "}"
    return str(value)


def _inside(value: Any) -> str:
    """In a list or a mapping of one line a comma ends a text, and so does a bracket."""
    text = shown(value)
    if isinstance(value, str | bytes) and not text.startswith(("{hex", '"')) and re.search(r"[,\[\]{}]", text):
        return json.dumps(text, ensure_ascii=False)
    return text


def as_json(value: Any) -> Any:
    """What `--json` prints of a value: numbers stay numbers, what JSON has no form for is text."""
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return shown(value)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of the engine as plain values: maps as mappings, times in UTC, floats with the digits they were made of."""
    columns = [[_plain(each, column.type) for each in column.to_pylist()] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_float32(type_):
        return float(str(np.float32(value)))
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return value.astimezone(UTC)
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else value
        return {_name(key): _plain(each, type_.item_type) for key, each in pairs}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_plain(each, type_.value_type) for each in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else shown(key)
