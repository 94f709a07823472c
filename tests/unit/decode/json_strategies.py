"""Random schemas, and random records that fit them, each with what decode must make of it."""

from __future__ import annotations

import base64
import datetime
import json
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any

from hypothesis import strategies as st

from penstock.spec.types import SCALARS, Array, Decimal, Map, Member, Scalar, Struct, Type

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)
PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
FIRST = -62_135_596_800_000_000
LAST = 253_402_300_799_999_999
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

# msgspec cannot match a name that JSON would have to escape; everything else is fair.
plain_text = st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=0x20)
names = st.one_of(
    st.text(plain_text, min_size=1, max_size=6),
    st.sampled_from(
        ["f0", "f1", "f2", "a.b", "a b", "`", "a`b", "it's", "😀", "[0]", "$", "class", "__init__", "ſ", "_"]
    ),
)


@dataclass(frozen=True)
class Written:
    """JSON text that goes into a document as it is: a number that no float could carry."""

    text: str


def to_json(value: Any) -> str:
    if isinstance(value, Written):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value)


scalar_types = st.one_of(
    st.sampled_from([Scalar(name) for name in SCALARS]),
    st.sampled_from([Scalar(name, unit) for name in ("timestamp", "timestamp_ntz") for unit in PER_UNIT]),
    st.integers(1, 38).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p))),
)


def structs(of: st.SearchStrategy[Type], most: int = 4) -> st.SearchStrategy[Struct]:
    members = st.builds(Member, names, of, st.booleans())
    return st.lists(members, min_size=1, max_size=most, unique_by=lambda m: m.name.lower()).map(
        lambda found: Struct(tuple(found))
    )


types = st.recursive(
    scalar_types, lambda inner: st.one_of(st.builds(Array, inner), st.builds(Map, inner), structs(inner)), max_leaves=5
)
schemas = structs(types)

Pair = tuple[Any, Any]
"""What stands in the JSON, and what decode must give."""


def fitting(declared: Type) -> st.SearchStrategy[Pair]:
    match declared:
        case Scalar():
            return _scalar(declared)
        case Decimal(precision=precision, scale=scale):
            return _decimal(precision, scale)
        case Array(item=item):
            return st.lists(_nullable(item), max_size=3).map(lambda ps: ([j for j, _ in ps], [e for _, e in ps]))
        case Map(value=value):
            return st.dictionaries(st.text(max_size=4), _nullable(value), max_size=3).map(
                lambda d: ({k: j for k, (j, _) in d.items()}, {k: e for k, (_, e) in d.items()})
            )
        case Struct():
            return records(declared)
    raise AssertionError(declared)


ABSENT = object()


def records(struct: Struct) -> st.SearchStrategy[Pair]:
    def one(member: Member) -> st.SearchStrategy[Pair]:
        fits = fitting(member.type)
        return fits if member.required else st.one_of(st.just((ABSENT, None)), st.just((None, None)), fits)

    return st.tuples(*map(one, struct.members)).map(
        lambda pairs: (
            {m.name: j for m, (j, _) in zip(struct.members, pairs, strict=True) if j is not ABSENT},
            {m.name: e for m, (_, e) in zip(struct.members, pairs, strict=True)},
        )
    )


def _nullable(declared: Type) -> st.SearchStrategy[Pair]:
    return st.one_of(st.just((None, None)), fitting(declared))


def _same(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return strategy.map(lambda v: (v, v))


def _scalar(scalar: Scalar) -> st.SearchStrategy[Pair]:
    if scalar.epoch:
        return _epoch(scalar.name, PER_UNIT[scalar.epoch])
    match scalar.name:
        case "string":
            return _same(st.text(max_size=8))
        case "boolean":
            return _same(st.booleans())
        case "float":
            return _same(st.floats(allow_nan=False, allow_infinity=False, width=32))
        case "double":
            return _same(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)))
        case "date":
            return st.dates().map(lambda d: (d.isoformat(), d))
        case "binary":
            return st.binary(max_size=8).map(lambda b: (base64.b64encode(b).decode(), b))
        case "timestamp":
            return _zoned()
        case "timestamp_ntz":
            return st.datetimes().map(lambda t: (t.isoformat(), t))
    half = 2 ** (BITS[scalar.name] - 1)
    return _same(st.integers(-half, half - 1))


def _zoned() -> st.SearchStrategy[Pair]:
    """A day from the ends of the calendar, so that every offset stays inside; the ends have tests of their own."""
    day = datetime.timedelta(days=1)
    times = st.datetimes(datetime.datetime.min + day, datetime.datetime.max - day)
    offsets = st.integers(-23 * 60, 23 * 60).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m)))
    zoned = st.builds(lambda t, z: t.replace(tzinfo=z), times, offsets).map(lambda t: (t.isoformat(), t))
    naive = times.map(lambda t: (t.isoformat(" "), t.replace(tzinfo=UTC)))
    return st.one_of(zoned, naive)


def _epoch(name: str, per_unit: int) -> st.SearchStrategy[Pair]:
    zone = UTC if name == "timestamp" else None
    return st.integers(-(-FIRST // per_unit), LAST // per_unit).map(
        lambda n: (n, (EPOCH + datetime.timedelta(microseconds=n * per_unit)).replace(tzinfo=zone))
    )


def _decimal(precision: int, scale: int) -> st.SearchStrategy[Pair]:
    most = 10**precision - 1
    numbers = st.integers(-most, most).map(lambda n: Number((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))
    ways = st.sampled_from(
        [lambda d: Written(str(d)), lambda d: Written(f"{d:f}"), str, lambda d: Written(f"{d:f}" + "e0")]
    )
    return st.builds(lambda d, way: (way(d), d), numbers, ways)
