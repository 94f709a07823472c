"""Short forms of rules that need no engine: the one-pass way stays open for them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.contract.native import condition
from penstock.spec.fields import Schema
from penstock.spec.rules import Rule

STRUCT = Schema.model_validate(
    {"fields": {"and": "string", "amount": "decimal(9,2)", "n": "int", "f": "double"}}
).struct()


def native(**rule: Any) -> Any:
    return condition(Rule.model_validate({"name": "r", **rule}).condition or "", STRUCT)


@pytest.mark.parametrize(
    ("rule", "column", "values", "kept"),
    [
        ({"not_null": "and"}, "and", ["a", None], [True, False]),
        ({"one_of": {"field": "and", "values": ["a", "b"]}}, "and", ["a", "c", None], [True, False, None]),
        ({"range": {"field": "n", "min": 1, "max": 3}}, "n", [0, 1, 3, 4, None], [False, True, True, False, None]),
        ({"range": {"field": "n", "min": -1}}, "n", [-2, -1], [False, True]),
    ],
)
def test_short_form_is_computed_without_the_engine(
    rule: dict[str, Any], column: str, values: list[Any], kept: list[bool | None]
) -> None:
    holds = native(**rule)
    types = {"n": pa.int32(), "and": pa.string()}
    assert holds({column: pa.array(values, types[column])}).to_pylist() == kept


def test_what_may_differ_from_the_engine_is_left_to_it() -> None:
    assert native(range={"field": "f", "min": 0}) is None
    assert native(regex={"field": "and", "matches": "a+"}) is None
    assert native(one_of={"field": "and", "values": ["it's"]}) is None
    assert native(range={"field": "n", "min": 0, "or_null": True}) is None
