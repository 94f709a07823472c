"""Types and fields: what parses, what is refused, and how a type is written again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from penstock.spec import duration, types
from penstock.spec.fields import Field, Schema
from penstock.spec.types import Array, Decimal, Map, Member, Scalar, Struct


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", Scalar("string")),
        ("LONG", Scalar("bigint")),
        ("decimal", Decimal(10, 0)),
        ("decimal( 12 , 2 )", Decimal(12, 2)),
        ("array<map<string,int>>", Array(Map(Scalar("int")))),
        ("struct<a:int,`b c`:string>", Struct((Member("a", Scalar("int")), Member("b c", Scalar("string"))))),
    ],
)
def test_type_parses_and_reads_back_from_its_own_text(text: str, expected: types.Type) -> None:
    assert types.parse(text) == expected
    assert types.parse(expected.ddl()) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is not a type"),
        ("strin", "did you mean 'string'?"),
        ("decimal(39,2)", "precision of 1 to 38"),
        ("decimal(5,6)", "precision of 1 to 38"),
        ("decimal(²,1)", "expected a number"),
        ("array<int", "expected '>'"),
        ("int int", "nothing may follow"),
        ("map<int,int>", "the key of a map is a string"),
        ("struct<>", "expected a field name"),
        ("struct<a:int,A:int>", "two fields are named 'A'"),
        ("array<" * 5000, "nested at most"),
    ],
)
def test_what_is_no_type_says_why(text: str, part: str) -> None:
    with pytest.raises(types.TypeMistake, match=part.replace("?", r"\?")):
        types.parse(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"a": {"type": "struct"}},
        {"a": {"type": "struct", "fields": {}}},
        {"a": {"type": "int", "items": "int"}},
        {"a": {"type": "int", "epoch": "ms"}},
        {"a": "int", "A": "int"},
        {"": "int"},
        {},
    ],
)
def test_fields_that_make_no_schema_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Schema.model_validate({"fields": fields})


def test_timestamp_written_as_a_number_keeps_its_unit() -> None:
    assert Field(type="timestamp", epoch="ms").resolved() == Scalar("timestamp", "ms")


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("2 h", 7200), ("1d", 86400)])
def test_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["10", "s", "-1s", "0s", "0.5ms", "10s\n", "١s", "9999d", "999999999.9d", 5, None, True]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        duration.parse(text)
