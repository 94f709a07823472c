"""The types a field can have, and their text: Spark's own, such as `decimal(18,2)` and `array<string>`.

Frozen dataclasses without an engine: decoders build their own types from these, sessions take `ddl()`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

SCALARS = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "binary",
)
_SAME_AS = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "bool": "boolean",
    "real": "float",
}

MOST_DEPTH = 50
"""Deeper than any record, and shallow enough for every recursive walk over a type."""

Epoch = Literal["s", "ms", "us"]


@dataclass(frozen=True)
class Scalar:
    name: str
    epoch: Epoch | None = None  # a timestamp that is written as a number

    def ddl(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    precision: int
    scale: int

    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Array:
    item: Type

    def ddl(self) -> str:
        return f"array<{self.item.ddl()}>"


@dataclass(frozen=True)
class Map:
    value: Type

    def ddl(self) -> str:
        return f"map<string,{self.value.ddl()}>"


@dataclass(frozen=True)
class Member:
    name: str
    type: Type
    required: bool = False


@dataclass(frozen=True)
class Struct:
    members: tuple[Member, ...]

    def ddl(self) -> str:
        inner = ",".join(f"{quoted(m.name)}:{m.type.ddl()}" for m in self.members)
        return f"struct<{inner}>"

    def columns(self) -> str:
        """The same members as the column list of a schema."""
        return ", ".join(f"{quoted(m.name)} {m.type.ddl()}" for m in self.members)


Type = Scalar | Decimal | Array | Map | Struct


def quoted(name: str) -> str:
    """A name as SQL wants it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


class TypeMistake(ValueError):
    """The text is not a type; the message says what is allowed."""


def parse(text: str) -> Type:
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


class _Parser:
    """Recursive descent over `name`, `(`, `)`, `<`, `>`, `:`, `,` and quoted names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = re.findall(r"`(?:[^`]|``)*`|[A-Za-z0-9_]+|\S", text)
        self.at = 0
        self.depth = 0

    def next(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            raise TypeMistake(f"'{self.text}' is not a type: expected '{token}', found '{found or 'the end'}'")

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise TypeMistake(f"'{self.text}' is not a type: nothing may follow '{''.join(self.tokens[: self.at])}'")

    def type(self) -> Type:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise TypeMistake(f"a type is nested at most {MOST_DEPTH} levels deep")
        found = self.one_type()
        self.depth -= 1
        return found

    def one_type(self) -> Type:
        name = self.next().lower()
        name = _SAME_AS.get(name, name)
        if name in SCALARS:
            return Scalar(name)
        match name:
            case "decimal" | "numeric":
                return self.decimal()
            case "array":
                self.expect("<")
                item = self.type()
                self.expect(">")
                return Array(item)
            case "map":
                self.expect("<")
                if self.type() != Scalar("string"):
                    raise TypeMistake(f"'{self.text}': the key of a map is a string")
                self.expect(",")
                value = self.type()
                self.expect(">")
                return Map(value)
            case "struct":
                return self.struct()
        allowed = [*SCALARS, "decimal(p,s)", "array<...>", "map<string,...>", "struct<name:type,...>"]
        close = difflib.get_close_matches(name, [*SCALARS, *_SAME_AS, "decimal", "array", "map", "struct"], n=1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; allowed: {', '.join(allowed)}"
        raise TypeMistake(f"'{name or self.text}' is not a type{hint}")

    def decimal(self) -> Decimal:
        if self.at >= len(self.tokens) or self.tokens[self.at] != "(":
            return Decimal(10, 0)
        self.expect("(")
        precision = self.number()
        scale = 0
        if self.tokens[self.at : self.at + 1] == [","]:
            self.next()
            scale = self.number()
        self.expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise TypeMistake(
                f"'{self.text}': a decimal has a precision of 1 to 38 and a scale of at most the precision"
            )
        return Decimal(precision, scale)

    def number(self) -> int:
        token = self.next()
        if not re.fullmatch(r"[0-9]{1,4}", token):
            raise TypeMistake(f"'{self.text}' is not a type: expected a number, found '{token or 'the end'}'")
        return int(token)

    def struct(self) -> Struct:
        self.expect("<")
        members: list[Member] = []
        while True:
            name = self.next()
            if not re.fullmatch(r"`(?:[^`]|``)+`|[A-Za-z0-9_]+", name):
                raise TypeMistake(f"'{self.text}' is not a type: expected a field name, found '{name or 'the end'}'")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if any(name.lower() == member.name.lower() for member in members):
                raise TypeMistake(
                    f"'{self.text}': two fields are named '{name}' (SQL does not tell upper from lower case)"
                )
            self.expect(":")
            members.append(Member(name, self.type()))
            token = self.next()
            if token == ">":
                return Struct(tuple(members))
            if token != ",":
                raise TypeMistake(f"'{self.text}' is not a type: expected ',' or '>', found '{token or 'the end'}'")
