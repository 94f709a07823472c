"""Random columns under names that every format allows, and random rows of them."""

from __future__ import annotations

import datetime
from decimal import Decimal as Number
from typing import Any

from hypothesis import strategies as st

from penstock.spec.types import SCALARS, Array, Decimal, Map, Member, Scalar, Struct, Type

BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
NAMES = ["id", "a", "b", "Amount", "_x", "tags", "f0", "google", "type", "message", "items", "a_b", "A_1", "ABC", "__"]
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
SCALAR_TYPES = st.one_of(st.sampled_from([Scalar(name) for name in SCALARS]), DECIMALS)


@st.composite
def structs(draw: Any, types: st.SearchStrategy[Type], most: int = 4) -> Struct:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique_by=str.lower))
    return Struct(tuple(Member(name, draw(types), draw(st.booleans())) for name in names))


def nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(inner.map(Array), inner.map(Map), structs(inner))


def not_list_in_list(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    flat = inner.filter(lambda t: not isinstance(t, Array | Map))
    return st.one_of(flat.map(Array), flat.map(Map), structs(inner))


any_struct = structs(st.recursive(SCALAR_TYPES, nested, max_leaves=4))
flat_struct = structs(st.recursive(SCALAR_TYPES, not_list_in_list, max_leaves=4))


def rows_of(struct: Struct, *, null_items: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({m.name: _maybe(values(m.type, null_items), not m.required) for m in struct.members})


def _maybe(strategy: st.SearchStrategy[Any], null: bool) -> st.SearchStrategy[Any]:
    return st.none() | strategy if null else strategy


def values(column: Type, null_items: bool) -> st.SearchStrategy[Any]:
    match column:
        case Array(item=item):
            return st.lists(_maybe(values(item, null_items), null_items), max_size=3)
        case Map(value=value):
            return st.dictionaries(st.text(max_size=3), _maybe(values(value, null_items), null_items), max_size=3)
        case Struct():
            return rows_of(column, null_items=null_items)
        case Decimal(precision=precision, scale=scale):
            most = 10**precision - 1
            return st.integers(-most, most).map(lambda n: Number((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))
        case Scalar(name=name) if name in BITS:
            return st.integers(-(2 ** BITS[name]), 2 ** BITS[name] - 1)
        case Scalar(name=name):
            return {
                "string": st.text(max_size=6),
                "boolean": st.booleans(),
                "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
                "double": st.floats(allow_nan=False, allow_infinity=False),
                "date": st.dates(),
                "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
                "timestamp_ntz": st.datetimes(),
                "binary": st.binary(max_size=6),
            }[name]
    raise AssertionError(column)
