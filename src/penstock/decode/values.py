"""The values of a record without faults, in the engine's expressions: variants as the declared types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.decode.variant import PER_UNIT, member, micros_of, text_of
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

if TYPE_CHECKING:
    from pyspark.sql import Column


def typed(of: Column, declared: Type) -> Column:
    """The value of a record without faults; null where it is absent or null."""
    from pyspark.sql import functions as F

    there = of.isNotNull() & ~F.is_variant_null(of)
    match declared:
        case Struct():
            fields = [typed(member(of, m.name), m.type).alias(m.name) for m in declared.members]
            return F.when(there, F.struct(*fields))
        case Array():
            items = F.try_variant_get(of, "$", "array<variant>")
            return F.when(there, F.transform(items, lambda item: typed(item, declared.item)))
        case Map():
            values = F.try_variant_get(of, "$", "map<string,variant>")
            return F.when(there, F.transform_values(values, lambda _name, item: typed(item, declared.value)))
        case Decimal():
            return F.when(there, text_of(of).try_cast(declared.ddl()))
    assert isinstance(declared, Scalar)
    return F.when(there, _SCALAR.get(declared.name, _plain)(of, declared))


def _plain(of: Column, declared: Scalar) -> Column:
    from pyspark.sql import functions as F

    return F.try_variant_get(of, "$", declared.ddl())


def _float(of: Column, _declared: Scalar) -> Column:
    from pyspark.sql import functions as F

    return F.try_variant_get(of, "$", "double").cast("float")


def _date(of: Column, _declared: Scalar) -> Column:
    return text_of(of).try_cast("date")


def _binary(of: Column, _declared: Scalar) -> Column:
    from pyspark.sql import functions as F

    return F.unbase64(text_of(of))


def _timestamp(of: Column, declared: Scalar) -> Column:
    from pyspark.sql import functions as F

    if declared.epoch:
        micros = F.try_variant_get(of, "$", "bigint") * PER_UNIT[declared.epoch]
    else:
        micros = micros_of(text_of(of))[0]
    at = F.timestamp_micros(micros)
    # In UTC, whatever the session's zone is.
    return (
        at
        if declared.name == "timestamp"
        else F.convert_timezone(F.current_timezone(), F.lit("UTC"), at.cast("timestamp_ntz"))
    )


_SCALAR: dict[str, Callable[[Column, Scalar], Column]] = {
    "float": _float,
    "date": _date,
    "binary": _binary,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
}
