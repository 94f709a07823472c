"""A record as the engine's variant: what was written, and the texts that numbers and times are told from.

A variant keeps apart what JSON keeps apart: a string is not a number, `1.0` is a decimal and `1` a bigint. What
`faults` finds out and what `values` reads both rest on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import record

if TYPE_CHECKING:
    from pyspark.sql import Column

ERROR_TYPE = "struct<class:string,reason:string>"
FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999, in microseconds
PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds of an epoch number
_TIME = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2}))?\z"
)


def failure(error_class: str, reason: Column) -> Column:
    """Why a record cannot be read, as columns."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(error_class).alias("class"), F.substring(reason, 1, record.REASON_LIMIT).alias("reason"))


def member(of: Column, name: str) -> Column:
    """The field of an object: null where it is absent; what is written as null is a variant."""
    from pyspark.sql import functions as F

    return F.try_variant_get(of, f'$["{name}"]', "variant")


def kind_of(of: Column) -> Column:
    """What was written: VOID, BOOLEAN, BIGINT, DECIMAL(p,s), DOUBLE, STRING, ARRAY<...>, OBJECT<...>."""
    from pyspark.sql import functions as F

    return F.schema_of_variant(of)


def text_of(of: Column) -> Column:
    """A string as it is, a number as digits."""
    from pyspark.sql import functions as F

    return F.try_variant_get(of, "$", "string")


def micros_of(text: Column) -> tuple[Column, Column]:
    """An RFC 3339 time in microseconds since 1970 (null where it is none), past them rounded; and whether it says a
    zone."""
    from pyspark.sql import functions as F

    def part(n: int) -> Column:
        return F.regexp_extract(text, _TIME, n)

    seconds = F.unix_micros(F.concat(part(1), F.lit(" "), part(2), F.lit("Z")).try_cast("timestamp"))
    fraction = F.rpad(F.substring(part(3), 1, 6), 6, "0").try_cast("bigint")
    up = F.when(F.substring(part(3), 7, 1) >= "5", F.lit(1)).otherwise(F.lit(0))
    hours, minutes = part(5).try_cast("int"), part(6).try_cast("int")
    ahead = F.when(part(4) == "", F.lit(0)).when((hours < 24) & (minutes < 60), hours * 60 + minutes)
    sign = F.when(part(4) == "-", F.lit(-1)).otherwise(F.lit(1))
    micros = seconds + F.coalesce(fraction, F.lit(0)) + up - sign * ahead.cast("bigint") * 60_000_000
    good = text.rlike(_TIME) & (F.substring(text, 1, 4) != "0000")
    return F.when(good, micros), text.rlike(r"(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})\z")
