"""Rules against the schemas that a spec declares: fields that are not there, values that no field of that type has."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.record import KAFKA, KEY
from penstock.spec.fields import Schema
from penstock.spec.rules import Rule
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

if TYPE_CHECKING:
    from penstock.spec.cross import CrossMistake
    from penstock.spec.model import Pipeline

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_WHOLE, "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")


def rule_mistakes(spec: Pipeline) -> Iterator[CrossMistake]:
    """Called for what is sound of a spec, with its `base`. Schemas from a registry are for `plan`."""
    for view, rules in spec.contract.items():
        struct = declared_of(spec, view)
        if struct is None:
            continue
        for i, rule in enumerate(rules):
            for where, text, allowed in _of_rule(rule, struct):
                yield ("contract", view, i, *where), text, allowed


def declared_of(spec: Pipeline, view: str) -> Struct | None:
    """The fields of a source view; None where they are not in the spec or its files, or cannot be read there."""
    from penstock.spec.load import declared

    read = spec.source.reads().get(view)  # none: that is a mistake of its own
    written = getattr(read.value, "schema_", None) if read else None
    if read is None or written is None or read.value.format not in ("json", "csv"):
        return None
    try:
        return written.struct() if isinstance(written, Schema) else declared(spec.base, written).struct()
    except PenstockError:
        return None  # that is a mistake of its own


def _of_rule(rule: Rule, struct: Struct) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    kind = rule.kind
    place = (kind, "field") if kind in ("range", "regex", "one_of") else (kind,)
    for name in rule.fields or ():
        found = type_of(name, struct)
        if found is None:
            yield place, f"no field '{name}'", [member.name for member in struct.members]
        elif isinstance(found, Map) and rule.unique:
            yield place, f"'{name}' is a map: maps cannot be compared", []
        elif found is not _UNKNOWN:
            yield from _of_values(rule, name, found)


def _of_values(rule: Rule, name: str, type_: Type) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    if rule.regex and type_ != Scalar("string"):
        yield ("regex", "field"), f"'{name}' is not text but {type_.ddl()}", []
    if rule.range:
        for bound in ("min", "max"):
            value = getattr(rule.range, bound)
            if value is not None and (isinstance(value, bool) or not _fits(value, type_)):
                yield ("range", bound), f"{value!r} is no value of '{name}', which is {type_.ddl()}", []
    if rule.one_of:
        for i, value in enumerate(rule.one_of.values):
            if not _fits(value, type_):
                yield ("one_of", "values", i), f"{value!r} is no value of '{name}', which is {type_.ddl()}", []  # type: ignore[misc]


_UNKNOWN: Any = object()


def type_of(name: str, struct: Struct) -> Type | None:
    """None where the field is surely not there."""
    first, _, rest = name.partition(".")
    if first.lower() in (KAFKA, KEY):
        return _UNKNOWN  # type: ignore[no-any-return]
    member = next((member for member in struct.members if member.name.lower() == first.lower()), None)
    if member is None or not rest:
        return member.type if member else None
    if isinstance(member.type, Struct):
        return type_of(rest, member.type)
    return _UNKNOWN if isinstance(member.type, Array | Map) else None


def _fits(value: object, type_: Type) -> bool:
    match type_:
        case Scalar(name="boolean"):
            return isinstance(value, bool)
        case Scalar(name="string"):
            return isinstance(value, str)
        case Scalar(name=name) if name in _TIMES:
            return isinstance(value, str) and _is_time(value)
        case Scalar(name=name) if name in _NUMBERS:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Decimal():
            return isinstance(value, int | float) and not isinstance(value, bool) and Number(repr(value)).is_finite()
        case Scalar(name="binary"):
            return False
    return not isinstance(type_, Array | Map | Struct)


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
