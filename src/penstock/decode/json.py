"""JSON with a declared schema.

msgspec parses and checks each record against a class made from the schema, so there is one implementation that both
decodes and says what is wrong: no fast path that could disagree with a slow one. What it accepts:

- a field that is not declared is skipped; a declared field that is absent is null, or an error when it is required;
- numbers are numbers and strings are strings: `"1"` is no int, `1.0` is no int, `1` is a double;
- a decimal may be a number or a string, and must fit its precision and scale without rounding;
- a timestamp is RFC 3339 text (without an offset: UTC; past microseconds: rounded), or a number where the schema
  says `epoch`;
- binary is base64 text;
- where a field is written twice in one object, each must fit and the last one counts;
- what is in a field that is not declared is not looked at, beyond where it ends.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections import Counter
from typing import Annotated, Any, Optional

import msgspec
import pyarrow as pa

from penstock import record
from penstock.decode.columns import DoesNotFit, arrow_type, builder
from penstock.decode.decoded import Decoded, Failure, shortened
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

VALUE_LIMIT = 80  # characters of the offending value that a reason shows


def _bits(n: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (n - 1)), le=2 ** (n - 1) - 1)]


# The last double that is rounded to the largest float: 3.4028235e38, as Java prints that float, must be one.
_LARGEST_FLOAT = 3.4028235677973362e38
_PYTHON: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "tinyint": _bits(8),
    "smallint": _bits(16),
    "int": _bits(32),
    "bigint": _bits(64),
    "float": Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)],
    "double": float,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    "binary": bytes,
}


def python_type(declared: Type) -> Any:
    match declared:
        case Scalar(epoch=str()):
            return _bits(64)
        case Scalar(name=name):
            return _PYTHON[name]
        case Decimal():
            return decimal.Decimal
        case Array(item=item):
            return list[Optional[python_type(item)]]  # type: ignore[misc]  # noqa: UP045  a type made at run time
        case Map(value=value):
            return dict[str, Optional[python_type(value)]]  # type: ignore[misc]  # noqa: UP045
        case Struct():
            return _class_of(declared)
    raise AssertionError(declared)


def _class_of(struct: Struct) -> type[msgspec.Struct]:
    """A class whose attributes are f0, f1, ... (any text can be a JSON name, not an attribute) under the JSON names."""
    required, optional = [], []
    for i, member in enumerate(struct.members):
        python = python_type(member.type)
        if member.required:
            required.append((f"f{i}", python))
        else:
            optional.append((f"f{i}", python | None, None))
    return msgspec.defstruct(
        "Record",
        [*required, *optional],
        rename={f"f{i}": m.name for i, m in enumerate(struct.members)},
        kw_only=True,
        gc=False,  # records live for one batch and hold no cycles
    )


class JsonDecoder:
    """Made once per Python worker; called for every Arrow batch of raw values. Never raises."""

    def __init__(self, struct: Struct) -> None:
        self._struct = struct
        self._decode = msgspec.json.Decoder(_class_of(struct)).decode
        self._members = [(f"f{i}", m.name, builder(m.type), arrow_type(m.type)) for i, m in enumerate(struct.members)]

    def __call__(self, values: pa.Array) -> Decoded:
        raw = values.to_pylist()
        records: list[Any] = []
        failures: dict[int, Failure] = {}
        keep, decode = records.append, self._decode
        for i, value in enumerate(raw):
            try:
                keep(decode(value))
            except Exception as error:  # any bytes must end as a record or as a failure
                keep(None)
                failures[i] = explain(value, error)
        return Decoded(self._columns(records, failures), failures)

    def _columns(self, records: list[Any], failures: dict[int, Failure]) -> list[pa.Array]:
        while True:
            columns: list[pa.Array] = []
            refused: dict[int, Failure] = {}
            for attribute, name, build, _ in self._members:
                picked = (
                    [None if r is None else getattr(r, attribute) for r in records]
                    if failures
                    else [getattr(r, attribute) for r in records]
                )
                try:
                    columns.append(build(picked))
                except DoesNotFit as values:
                    for i, misfit in values.rows.items():
                        reason = f"{name}{misfit.path}: {_shown(misfit.value)} is not {misfit.expected}"
                        refused.setdefault(i, Failure(record.OUT_OF_RANGE, shortened(reason)))
            if not refused:
                return columns
            failures.update(refused)
            for i in refused:
                records[i] = None


def explain(value: bytes | None, error: Exception) -> Failure:
    """The class and the reason of a record msgspec refused: which field, which value, what was expected."""
    if value is None:
        return Failure(record.NULL_VALUE, "the value is null")
    if not value.strip():
        return Failure(record.EMPTY_VALUE, f"the value is empty ({len(value)} bytes)")
    text = str(error)
    match error:
        case UnicodeDecodeError():
            bad = value[_invalid_utf8(value)]
            return Failure(record.MALFORMED, f"invalid UTF-8: byte 0x{bad:02x} at position {_invalid_utf8(value)}")
        case RecursionError():
            return Failure(record.MALFORMED, "nested too deeply")
        case msgspec.ValidationError():
            return _mismatch(value, text)
        case msgspec.DecodeError():
            return Failure(record.MALFORMED, shortened(f"not JSON: {text}; begins with {_shown_bytes(value)}"))
    return Failure(record.MALFORMED, shortened(f"not readable: {type(error).__name__}: {text}"))


def _mismatch(value: bytes, text: str) -> Failure:
    if " - at `$" in text:
        text, _, path = text.rpartition(" - at `$")
        path = path.removesuffix("`")
    else:
        path = ""
    where = path.removeprefix(".")
    missing = re.fullmatch(r"Object missing required field `(.*)`", text, re.DOTALL)
    if missing:
        field = f"{where}.{missing[1]}" if where else missing[1]
        return Failure(record.MISSING_FIELD, shortened(f"{field}: required, but absent"))
    if text.endswith("got `null`"):
        return Failure(record.MISSING_FIELD, shortened(f"{where or 'the record'}: required, but null"))
    found = _value_at(value, path)
    kind = record.OUT_OF_RANGE if "<=" in text or ">=" in text or "out of range" in text else record.WRONG_TYPE
    reason = f"{where or 'the record'}: {text[0].lower()}{_in_schema_words(text[1:])}"
    return Failure(kind, shortened(f"{reason}; the value is {found}" if found else reason))


_SCHEMA_WORDS = {"str": "string", "bool": "boolean", "bytes": "base64 text", "datetime": "timestamp", "float": "number"}


def _in_schema_words(text: str) -> str:
    """msgspec speaks of Python's types; the reader wrote a schema."""
    text = text.replace(" | null", "")
    return re.sub(r"`([^`]*)`", lambda m: _SCHEMA_WORDS.get(m[1], m[1]), text)


def _value_at(value: bytes, path: str) -> str:
    """The value at a msgspec path such as `.merchant.tags[2]` as JSON, or nothing when it cannot be told."""
    try:
        document = json.loads(
            value.decode("utf-8", "replace"),
            parse_int=_as_written,
            parse_float=_as_written,
            object_pairs_hook=_written_once,
        )
        return shortened(msgspec.json.encode(_at(document, path)).decode(), VALUE_LIMIT)
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""  # also for half a surrogate pair, which no reason may carry on into Arrow


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


def _written_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Without names that are written twice: it cannot be told which of the two was refused."""
    count = Counter(name for name, _ in members)
    return {name: found for name, found in members if count[name] == 1}


def _at(here: Any, path: str) -> Any:
    """A name may itself hold dots and brackets, so it is the record that says where a name ends."""
    if not path:
        return here
    if isinstance(here, list):
        index, _, rest = path.removeprefix("[").partition("]")
        return _at(here[int(index)], rest)
    for name in sorted(here, key=len, reverse=True):
        rest = path.removeprefix(f".{name}")
        if rest != path and rest[:1] in ("", ".", "["):
            return _at(here[name], rest)
    raise LookupError(path)


def _shown(value: object) -> str:
    return shortened(str(value), VALUE_LIMIT)


def _shown_bytes(value: bytes) -> str:
    return shortened(repr(value[:VALUE_LIMIT].decode("utf-8", "backslashreplace")), VALUE_LIMIT)


def _invalid_utf8(value: bytes) -> int:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0
