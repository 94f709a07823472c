"""Rules of a contract: a SQL condition, or a short form for the usual ones.

Every short form but `unique` is a SQL condition in other words, so that all of them are computed, counted and explained
the same way. `unique` compares records with each other, which no condition over one record can.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.types import quoted
from penstock.spec.words import Name, Part, Text, require_one_of

RULE_KINDS = ("rule", "not_null", "range", "regex", "one_of", "unique")

FieldName = Annotated[str, StringConstraints(min_length=1)]
"""A field of the record; `.` leads into a struct."""

Bound = Annotated[int | float | str, Field(union_mode="left_to_right")]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


FieldNames = Annotated[list[FieldName], BeforeValidator(_listed), Field(min_length=1)]


class _OfField(Part):
    field: FieldName = Field(description="The field; `.` leads into a struct.")
    or_null: bool = Field(False, description="Null keeps the rule too. By default it breaks it, as in a SQL condition.")

    def _condition(self, plain: str) -> str:
        return f"({sql_name(self.field)} is null or {plain})" if self.or_null else plain


class Range(_OfField):
    """A value between two bounds, both included. One of them may be left out."""

    min: Bound | None = Field(None, description="The least that is allowed: a number, or a date or time as text.")
    max: Bound | None = Field(None, description="The most that is allowed.")

    @model_validator(mode="after")
    def _bounds(self) -> Range:
        given = [bound for bound in (self.min, self.max) if bound is not None]
        if not given:
            raise PydanticCustomError("one_kind", "a range needs `min`, `max` or both")
        if any(isinstance(bound, float) and not math.isfinite(bound) for bound in given):
            raise PydanticCustomError("bound", "a bound must be a finite number: leave it out instead")
        if self.min is not None and self.max is not None:
            if isinstance(self.min, str) != isinstance(self.max, str):
                raise PydanticCustomError("bound", "`min` and `max` must be of the same kind")
            if _above(self.min, self.max):
                text = f"`min` is above `max`: nothing is between {self.min} and {self.max}"
                raise PydanticCustomError("bound", "{text}", {"text": text})
        return self

    @property
    def condition(self) -> str:
        name = sql_name(self.field)
        parts = [f"{name} {sign} {literal(b)}" for sign, b in ((">=", self.min), ("<=", self.max)) if b is not None]
        return self._condition(" and ".join(parts))


class Regex(_OfField):
    """Text that a regular expression matches, as a whole."""

    matches: Text = Field(description="A Java regular expression for the whole text.", examples=["[A-Z]{3}"])

    @field_validator("matches")
    @classmethod
    def _compiles(cls, text: str) -> str:
        if why := _surely_wrong(text):
            raise PydanticCustomError("pattern", "not a regular expression: {why}", {"why": why})
        return text

    @property
    def condition(self) -> str:
        whole = rf"\A(?:{self.matches})\z"
        return self._condition(f"{sql_name(self.field)} rlike {literal(whole)}")


class OneOf(_OfField):
    """A value out of a list."""

    values: list[Annotated[bool | int | float | str, Field(union_mode="left_to_right")]] = Field(
        min_length=1, description="The values that are allowed."
    )

    @property
    def condition(self) -> str:
        return self._condition(f"{sql_name(self.field)} in ({', '.join(map(literal, self.values))})")


class Rule(Part):
    """A condition every record of a view must meet: exactly one of `rule`, `not_null`, `range`, `regex`, `one_of` and
    `unique`.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in RULE_KINDS]})

    name: Name = Field(description="Name in dead letters, ledger and metrics.")
    rule: Text | None = Field(None, description="A SQL condition. A record for which it is not true breaks the rule.")
    not_null: FieldNames | None = Field(None, description="A field, or a list of them, that must not be null.")
    range: Range | None = Field(None, description="A value between two bounds.")
    regex: Regex | None = Field(None, description="Text that matches a regular expression.")
    one_of: OneOf | None = Field(None, description="A value out of a list.")
    unique: FieldNames | None = Field(
        None,
        description="A field, or a list of them, that tell the records of a batch apart: of several with the same "
        "values the first one, by partition and offset, keeps the rule. Records with a null in them are not compared, "
        "and neither are those of other batches.",
    )
    otherwise: Literal["dead-letter", "drop", "stop"] = Field(
        "dead-letter",
        description="What happens to a record that breaks the rule: it becomes a dead letter, it is dropped "
        "and counted, or the pipeline stops before the view is written. Sinks of other views may hold the batch by "
        "then; it runs again, and they keep it once.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Rule:
        require_one_of(self, RULE_KINDS, "a rule needs exactly one of")
        return self

    @property
    def kind(self) -> str:
        return next(kind for kind in RULE_KINDS if getattr(self, kind) is not None)

    @property
    def condition(self) -> str | None:
        """The rule as SQL; None for `unique`, which is none over one record."""
        if self.not_null is not None:
            return " and ".join(f"{sql_name(name)} is not null" for name in self.not_null)
        short = self.range or self.regex or self.one_of
        return short.condition if short else self.rule

    @property
    def text(self) -> str:
        """What it asks for, for people."""
        if self.unique is not None:
            return f"unique in its batch: {', '.join(self.unique)}"
        if self.regex is not None:
            return f"{self.regex.field} matches {self.regex.matches}{' or is null' * self.regex.or_null}"
        said = self.condition or ""
        return said if self.rule is not None else re.sub(r"`([A-Za-z_]\w*)`", r"\1", said)

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The fields it names; None where only the SQL says which they are."""
        if self.rule is not None:
            return None
        short = self.range or self.regex or self.one_of
        return (short.field,) if short else tuple(self.not_null or self.unique or ())


def sql_name(field: str) -> str:
    return ".".join(quoted(part) for part in field.split("."))


def literal(value: bool | int | float | str) -> str:
    """The value in SQL. A number with a point is a decimal there, and exact."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            number = Decimal(repr(value))
            return f"{number:f}" if 1e-15 < abs(value) < 1e20 or not value else f"{value!r}D"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def _above(least: Any, most: Any) -> bool:
    """Dates and times that are written alike compare as text does; others are not judged here."""
    if isinstance(least, str):
        return len(least) == len(most) and bool(re.fullmatch(r"[0-9][0-9T:. Z-]+", least + most)) and least > most
    return bool(Decimal(repr(least)) > Decimal(repr(most)))


def _surely_wrong(pattern: str) -> str | None:
    """What is wrong in Java too. Python knows less syntax than Java, so only plain mistakes count."""
    try:
        re.compile(pattern)
    except re.error as error:
        plain = ("missing ), unterminated subpattern", "unbalanced parenthesis", "unterminated character set")
        if error.msg in plain and not re.search(r"\\Q|\[[^\]]*(\[|&&)", pattern):
            return f"{error.msg} at position {error.pos}"
        if error.msg == "nothing to repeat":
            return f"{error.msg} at position {error.pos}"
    return None
