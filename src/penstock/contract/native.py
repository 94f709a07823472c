"""Rules that need no engine: conditions simple enough to be computed over Arrow columns with the same result.

`amount > 0`, `currency in ('EUR', 'USD')`, `account is not null`, `n between 1 and 9`, and several of them with `and`.
Whatever is not surely the same in Spark is not native: floating point (NaN), casts, functions, other types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Context, localcontext
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spec.types import Decimal, Scalar, Struct, Type

Condition = Callable[[Mapping[str, pa.Array]], pa.Array]
"""From columns by name to true, false or null (not known) per row. Pickles."""

_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_COMPARE = {
    "=": pc.equal, "==": pc.equal, "<>": pc.not_equal, "!=": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_ARROW = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "string": pa.string(),
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|([A-Za-z_]\w*)|'([^'\\]*)'(?!')|(<=|>=|<>|!=|==|[<>=(),-])|`([^`]+)`)")


_DIGITS = Context(prec=76)  # a decimal has 38; Python's own 28 would refuse to round a longer one


class _NotNative(Exception):
    pass


def condition(rule: str, struct: Struct) -> Condition | None:
    """The rule as a condition over the fields of a record, or None when only the engine can compute it."""
    try:
        return _Parser(rule, {member.name.lower(): (member.name, member.type) for member in struct.members}).all()
    except _NotNative:
        return None


class _Parser:
    def __init__(self, rule: str, columns: dict[str, tuple[str, Type]]) -> None:
        self.columns = columns
        self.tokens = list(_tokens(rule))
        self.at = 0

    def all(self) -> Condition:
        parts = [self.one()]
        while self.word("and"):
            parts.append(self.one())
        if self.at != len(self.tokens):
            raise _NotNative
        return parts[0] if len(parts) == 1 else _And(tuple(parts))

    def one(self) -> Condition:
        kind, text = self.next()
        if kind not in ("name", "quoted") or text.lower() not in self.columns:
            raise _NotNative
        name, type_ = self.columns[text.lower()]
        if self.word("is"):
            present = self.word("not")
            self.expect("null")
            return _Null(name, present)
        if self.word("in"):
            self.expect("(")
            values = [self.value(type_)]
            while self.word(","):
                values.append(self.value(type_))
            self.expect(")")
            return _In(name, tuple(values), _arrow(type_))
        if self.word("between"):
            low = self.value(type_)
            self.expect("and")
            high = self.value(type_)
            arrow = _arrow(type_)
            return _And((_Compare(name, ">=", low, arrow), _Compare(name, "<=", high, arrow)))
        kind, operator = self.next()
        if kind != "sign" or operator not in _COMPARE:
            raise _NotNative
        if type_ == Scalar("string") and operator not in ("=", "==", "<>", "!="):
            raise _NotNative
        return _Compare(name, operator, self.value(type_), _arrow(type_))

    def value(self, type_: Type) -> Any:
        minus = self.word("-")
        kind, text = self.next()
        match type_:
            case Scalar(name="string", epoch=None) if kind == "text" and not minus:
                return text
            case Scalar(name=name, epoch=None) if name in _WHOLE and kind == "number" and "." not in text:
                value = -int(text) if minus else int(text)
                if -(2 ** (_WHOLE[name] - 1)) <= value < 2 ** (_WHOLE[name] - 1):
                    return value
            case Decimal(precision=precision, scale=scale) if kind == "number":
                number = Number(f"-{text}" if minus else text)
                with localcontext(_DIGITS):
                    if abs(number) >= Number(10) ** (precision - scale):
                        raise _NotNative
                    rounded = round(number, scale)
                if number == rounded:
                    return rounded
        raise _NotNative

    def next(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            raise _NotNative
        self.at += 1
        return self.tokens[self.at - 1]

    def word(self, word: str) -> bool:
        found = self.at < len(self.tokens) and self.tokens[self.at][0] in ("name", "sign")
        found = found and self.tokens[self.at][1].lower() == word
        self.at += found
        return found

    def expect(self, word: str) -> None:
        if not self.word(word):
            raise _NotNative


def _tokens(rule: str) -> list[tuple[str, str]]:
    found, at, rule = [], 0, rule.strip()
    while at < len(rule):
        token = _TOKEN.match(rule, at)
        if token is None:
            raise _NotNative
        at = token.end()
        kind = ("number", "name", "text", "sign", "quoted")[(token.lastindex or 1) - 1]
        found.append((kind, token[token.lastindex or 1]))
    return found


def _arrow(type_: Type) -> Any:
    if isinstance(type_, Decimal):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, Scalar) and type_.epoch is None and type_.name in _ARROW:
        return _ARROW[type_.name]
    raise _NotNative


class _Compare:
    def __init__(self, name: str, operator: str, value: Any, arrow: Any) -> None:
        self._name, self._operator, self._value, self._arrow = name, operator, value, arrow

    def __call__(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        return _COMPARE[self._operator](columns[self._name], pa.scalar(self._value, self._arrow))


class _In:
    def __init__(self, name: str, values: tuple[Any, ...], arrow: Any) -> None:
        self._name, self._values, self._arrow = name, values, arrow

    def __call__(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        column = columns[self._name]
        there = pc.is_in(column, value_set=pa.array(self._values, self._arrow))
        return pc.if_else(column.is_valid(), there, None)


class _Null:
    def __init__(self, name: str, present: bool) -> None:
        self._name, self._present = name, present

    def __call__(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        column = columns[self._name]
        return column.is_valid() if self._present else column.is_null()


class _And:
    def __init__(self, parts: tuple[Condition, ...]) -> None:
        self._parts = parts

    def __call__(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        result = self._parts[0](columns)
        for part in self._parts[1:]:
            result = pc.and_kleene(result, part(columns))
        return result
