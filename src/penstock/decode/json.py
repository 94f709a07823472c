"""JSON with a declared schema.

msgspec parses and checks each record against a class made from the schema, so there is one implementation that both
decodes and says what is wrong: no fast path that could disagree with a slow one. What it accepts:

- a field that is not declared is skipped; a declared field that is absent is null, or an error when it is required;
- numbers are numbers and strings are strings: `"1"` is no int, `1.0` is no int, `1` is a double;
- a decimal may be a number, or a string that JSON would read as a number without its quotes, and must fit its
  precision and scale without rounding; `-0` is a double's negative zero;
- a timestamp is RFC 3339 text (without an offset: UTC; past microseconds: rounded), or a number where the schema
  says `epoch`;
- binary is base64 text;
- where a field is written twice in one object, the last one counts; the others must be of its type too, but for a
  decimal's;
- a record is UTF-8 throughout, also in names and in what is not declared, which must be JSON and may be anything else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.decode.arrow.columns import VALUE_LIMIT
from penstock.decode.arrow.decoded import NULL, Decoded, empty, not_utf8
from penstock.decode.records import Columns, class_of, no_cycles
from penstock.record import Failure, quoted, shortened
from penstock.spec.types import Struct


class JsonDecoder:
    """Made once per Python worker; called for every Arrow batch of raw values. Never raises."""

    def __init__(self, struct: Struct) -> None:
        self._class = class_of(struct)
        self._decode = msgspec.json.Decoder(self._class).decode
        self._columns = Columns(struct)
        self._decode_signed = msgspec.json.Decoder(class_of(struct, lambda _bits: int | float)).decode

    def __call__(self, values: pa.Array) -> Decoded:
        with no_cycles():
            return self._decoded(values)

    def _decoded(self, values: pa.Array) -> Decoded:
        invalid = not_utf8(values)
        raw = values.to_pylist()
        for i in invalid:
            raw[i] = None  # msgspec reads what is not UTF-8 where nothing is declared
        records: list[Any] = []
        failures: dict[int, Failure] = {}
        keep, decode = records.append, self._decode
        for i, value in enumerate(raw):
            try:
                keep(decode(value))
            except Exception as error:  # any bytes must end as a record or as a failure
                keep(None)
                failures[i] = invalid.get(i) or explain(value, error)
        columns = self._columns.build(records, failures)
        if any(map(_holds_zero, columns)):
            maybe = pc.indices_nonzero(pc.match_substring_regex(values, _MAYBE_NEGATIVE_ZERO)).to_pylist()
            again = [i for i in maybe if i not in failures]
            for i in again:
                records[i] = self._signed(raw[i])
            columns = self._columns.build(records, failures) if again else columns
        return Decoded(columns, failures)

    def _signed(self, value: bytes) -> Any:
        """A sound record with every `-0` read as `-0.0`, which is 0 again where it is declared whole."""
        found = self._decode_signed(_NEGATIVE_ZERO.sub(lambda m: m[1] or b"-0.0", value))
        return msgspec.convert(found, self._class, strict=False, from_attributes=True)


# msgspec reads `-0` as the integer, which has no sign. Only a record whose column then holds a zero is looked at.
_MAYBE_NEGATIVE_ZERO = r"-0[,}\]\s]"
_NEGATIVE_ZERO = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|(?<![eE])-0(?=[,}\]\s])', re.DOTALL)


def _holds_zero(column: pa.Array) -> bool:
    """Whether a double or a float in it is 0 or -0."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.any(pc.equal(column, 0.0)).as_py() is True
    if pa.types.is_struct(kind):
        return any(map(_holds_zero, column.flatten()))
    if pa.types.is_map(kind):
        return _holds_zero(column.items)
    return pa.types.is_list(kind) and _holds_zero(column.flatten())


def explain(value: bytes | None, error: Exception) -> Failure:
    """The class and the reason of a record msgspec refused: which field, which value, what was expected."""
    if value is None:
        return NULL
    if not value.strip():
        return empty(len(value))
    text = str(error)
    match error:
        case RecursionError():
            return Failure(record.MALFORMED, "nested too deeply")
        case msgspec.ValidationError():
            return explain_mismatch(value, text)
        case msgspec.DecodeError():
            why = _half_a_pair(value) or f"not JSON: {text}"
            return Failure(record.MALFORMED, shortened(f"{why}; begins with {_shown_bytes(value)}"))
    return Failure(record.MALFORMED, shortened(f"not readable: {type(error).__name__}: {text}"))


def _half_a_pair(value: bytes) -> str:
    """JSON can write half of a surrogate pair, which no text can hold. msgspec may call such a record truncated."""
    try:
        json.dumps(json.loads(value), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"half of a surrogate pair is no character: \\u{ord(error.object[error.start]):04x}"
    except (ValueError, RecursionError):
        pass
    return ""


def explain_mismatch(value: bytes, text: str) -> Failure:
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
            value,
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


def _shown_bytes(value: bytes) -> str:
    return shortened(quoted(value[: 4 * VALUE_LIMIT].decode("utf-8", "ignore")), VALUE_LIMIT)  # a cut character
