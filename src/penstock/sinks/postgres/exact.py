"""Which values of a view a column of an existing table would change, and the condition under which it has not.

PostgreSQL rounds a number to the places of its column, cuts a timestamp to a date, leaves out the offset of a timestamp
and the blanks at the end of a text, and says nothing. So where the types differ and a value may change, COPY reads its
text twice: into the column, and as text into a column of staging beside it. A check of the staging table compares the
two by PostgreSQL's own reading of both: what is held, as the type it came from, must be what was sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from psycopg import sql

_TYPE = re.compile(r'("char"|[a-z ]+[a-z0-9]|\S+?)(?:\((\d+)(?:,(-?\d+))?\))?((?: with(?:out)? time zone)?)')
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_INTEGERS = {"smallint": 5, "integer": 10, "bigint": 19}
_NUMBERS = (*_DIGITS, "float", "double", "decimal", "string")
_HELD_BY = {"real": ("byte", "short", "float"), "double precision": ("byte", "short", "integer", "float", "double")}
_SURE_DIGITS = {"real": 6, "double precision": 15}  # of a decimal, which come back whatever they are
_TEXTS = ("text", "character varying", "character", "bpchar", "name", "citext")
_PLACES = 6  # of a second: what every type of time has, unless it is declared with fewer
# The sent text itself shows what PostgreSQL leaves out before there is anything to compare.
_NO_FINER = r" and {sent} !~ '\.\d{{6}}\d*[1-9]'"
_NO_DATE = r" and {sent} !~ '\d[-/]\d+[-/]'"
_NO_CLOCK = r"{sent} !~* '\m(now|today|tomorrow|yesterday)\M'"
_READ_THE_CLOCK = (
    *("date", "time without time zone", "time with time zone"),
    *("timestamp without time zone", "timestamp with time zone"),
    *("daterange", "tsrange", "tstzrange", "datemultirange", "tsmultirange", "tstzmultirange"),
)


@dataclass(frozen=True)
class Doubt:
    """`dies`: values that become dead letters, in words for `plan`. `changes`: how those that are kept differ from what
    was sent, where the type of the column implies it. `holds`: true where a value was not changed otherwise; None where
    PostgreSQL refuses by itself what does not fit."""

    dies: str = ""
    holds: str | None = None
    changes: str = ""

    def __str__(self) -> str:
        return "; ".join(part for part in (self.dies and f"{self.dies} are dead letters", self.changes) if part)

    def condition(self, column: str, sent: str) -> sql.Composed | None:
        """`column` and `sent`: of the staging table."""
        if self.holds is None:
            return None
        return sql.SQL(self.holds).format(column=sql.Identifier(column), sent=sql.Identifier(sent))


@dataclass(frozen=True)
class _Held:
    """The type of a column, or of the items of its array."""

    name: str  # without modifiers
    first: int | None
    second: int | None
    array: str  # "[]" or nothing

    def same(self, kind: str, through: str = "") -> str:
        """The condition: read as `kind` the two are the same."""
        return f"{{column}}{through}::{kind}{self.array} = {{sent}}::{kind}{self.array}"


def _held(text: str) -> _Held:
    array = "[]" if text.endswith("[]") else ""
    bare = text.removesuffix("[]")
    found = _TYPE.fullmatch(bare)
    if found is None:
        return _Held(bare, None, None, array)
    first, second = (None if part is None else int(part) for part in (found[2], found[3]))
    return _Held(found[1] + found[4], first, second, array)


def doubt(kind: str, precision: tuple[int, int] | None, there: str) -> Doubt | None:
    """None: every value of the view is one of the table.

    `kind`: the type of the view's column, or of the items of its array, in Spark's word; what is made JSON is a
    `string`. `precision`: of a decimal. `there`: the type in the table as PostgreSQL writes it, which is no domain.
    """
    held = _held(there)
    found = _of_number(kind, precision, held) or _of_time(kind, held) or _of_text(kind, held)
    if kind != "string" or held.name in _TEXTS:
        return found
    found = found or Doubt(f"texts that PostgreSQL does not read as {held.name}")
    if held.name not in _READ_THE_CLOCK:
        return found
    # Such a word would be the time of the write, and another one when the batch is run again.
    holds = f"{_NO_CLOCK} and {found.holds}" if found.holds else _NO_CLOCK
    return replace(found, dies=f"{found.dies}, or that say `now` or `today`", holds=holds)


def _of_number(kind: str, precision: tuple[int, int] | None, held: _Held) -> Doubt | None:
    if kind not in _NUMBERS:
        return None
    digits, places = precision or (_DIGITS.get(kind, 0), 0)
    whole, exact = kind in _DIGITS, kind in _DIGITS or precision is not None
    if held.name in _INTEGERS:
        if whole and digits <= _INTEGERS[held.name]:
            return None
        return Doubt("numbers out of its range" if whole else "numbers that are not whole or out of its range")
    if held.name == "numeric" and held.first is not None:
        scale = held.second or 0
        if exact and places <= scale:
            return Doubt("numbers out of its range") if digits - places > held.first - scale else None
        finer = f"with more than {scale} decimal places" if scale >= 0 else f"that are no multiples of 1e{-scale}"
        return Doubt(f"numbers {finer} or out of its range", held.same("numeric"))
    if held.name == "money":
        return Doubt("amounts finer than its smallest unit or out of its range", held.same("numeric"))
    if held.name in _HELD_BY and kind not in _HELD_BY[held.name]:
        if precision and digits <= _SURE_DIGITS[held.name]:
            return None
        return Doubt(f"numbers with more digits than {held.name} holds", _as_float(kind, held, whole=whole))
    return None


def _as_float(kind: str, held: _Held, *, whole: bool) -> str:
    """A decimal is what the float's shortest digits say. Those of a large whole number are not all that it has."""
    if kind == "double":
        return held.same("float8")
    if held.array:
        return held.same("bigint") if whole else held.same("numeric", "::text[]")
    return (
        f"case when {{column}} is null or {held.same('numeric', '::text')} then true "
        "when {column} >= -9223372036854775808 and {column} < 9223372036854775808 "
        "then {column}::bigint = {sent}::numeric else false end"
    )


def _of_time(kind: str, held: _Held) -> Doubt | None:
    """Sessions are in UTC: so is what a type without a zone is told, and what has none is taken for."""
    if kind not in ("date", "time", "timestamp", "timestamp_ntz", "string"):
        return None
    sent_text, places = kind == "string", _PLACES if held.first is None else held.first
    cut = kind != "date" and (sent_text or places < _PLACES)
    finer = f"finer than {places} places of a second" if cut else ""
    fine, no_date = (_NO_FINER, _NO_DATE) if sent_text and not held.array else ("", "")
    match held.name:
        case "date" if kind != "date":
            return Doubt("times other than midnight in UTC", held.same("timestamptz"))
        case "timestamp without time zone" if kind == "timestamp":
            holds = held.same("timestamptz") if cut else None
            return Doubt(f"times {finer}" if cut else "", holds, "the time is kept in UTC, without a zone")
        case "timestamp with time zone" if kind in ("date", "timestamp_ntz"):
            holds = held.same("timestamptz") if cut else None
            return Doubt(f"times {finer}" if cut else "", holds, "the time is taken for one in UTC")
        case "timestamp without time zone" if sent_text:
            return Doubt(f"times with an offset other than UTC or {finer}", held.same("timestamptz") + fine)
        case "timestamp without time zone" | "timestamp with time zone" if cut:
            return Doubt(f"times {finer}", held.same("timestamptz") + fine)
        case "time without time zone" if sent_text:
            dies = f"times with a date, with an offset other than UTC or {finer}"
            return Doubt(dies, held.same("timetz") + no_date + fine)
        case "time with time zone" if sent_text:
            return Doubt(f"times with a date or {finer}", held.same("timetz") + no_date + fine)
        case "time without time zone" | "time with time zone" if cut:
            return Doubt(f"times {finer}", held.same("timetz"))
        case name if name.startswith("interval"):
            return Doubt("intervals with parts that it does not hold", held.same("interval") + fine)
    return None


def _of_text(kind: str, held: _Held) -> Doubt | None:
    match held.name:
        case "character varying" if held.first is not None:
            return Doubt(f"texts longer than {held.first} characters", held.same("text") if kind == "string" else None)
        case "character":
            # Blanks at the end mean nothing there, but a text that is cut is another one.
            holds = held.same("text") if held.array else f"char_length({{sent}}) <= {held.first}"
            return Doubt(f"texts longer than {held.first} characters", holds, "shorter texts are padded with blanks")
        case "name" if kind == "string":
            return Doubt("texts longer than 63 bytes", held.same("text"))
        case '"char"':
            return Doubt("texts longer than one byte", held.same("text"))
        case "jsonb" if kind == "string":
            return Doubt(
                "texts that are not JSON",
                changes="its value is kept, not its text: of equal names the last one, in no order, without blanks",
            )
    return None
