"""What is wrong with a record, in the engine's expressions: where a variant is not what the schema declares.

The classes are those of `decode/json.py`, and the reasons are worded alike.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from penstock import record
from penstock.decode.arrow.columns import PLAIN, VALUE_LIMIT
from penstock.decode.records import LARGEST_FLOAT
from penstock.decode.variant import (
    ERROR_TYPE,
    FIRST_TIME,
    LAST_TIME,
    PER_UNIT,
    failure,
    kind_of,
    member,
    micros_of,
    text_of,
)
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

if TYPE_CHECKING:
    from pyspark.sql import Column

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EXPECTED = {"string": "string", "boolean": "boolean", "float": "number", "double": "number", "date": "date"}
_NUMBER = rf"^{PLAIN}(?:[eE][+-]?[0-9]{{1,6}})?\z"
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"


def fault(of: Column, declared: Type, path: Column) -> Column:
    """Why a value that is there, and not null, is not of its type; null when it is."""
    from pyspark.sql import functions as F

    none, kind = F.lit(None).cast(ERROR_TYPE), kind_of(of)
    match declared:
        case Struct():
            inside = [_fault_of_member(of, m.name, m.type, m.required, path) for m in declared.members]
            return F.when(~kind.startswith("OBJECT"), _wrong(of, path, "object")).otherwise(F.coalesce(*inside, none))
        case Array():
            items = F.try_variant_get(of, "$", "array<variant>")
            inside_at = _each(items, declared.item, path)
            return F.when(~kind.startswith("ARRAY"), _wrong(of, path, "array")).otherwise(inside_at)
        case Map():
            values = F.map_values(F.try_variant_get(of, "$", "map<string,variant>"))
            inside_at = _each(values, declared.value, path, F.lit("[...]"))
            return F.when(~kind.startswith("OBJECT"), _wrong(of, path, "object")).otherwise(inside_at)
        case Decimal():
            text = text_of(of)
            bad = F.when(
                ~kind.isin("BIGINT", "STRING", "DOUBLE", "FLOAT") & ~kind.startswith("DECIMAL"),
                _wrong(of, path, "decimal"),
            ).when((kind == "STRING") & ~text.rlike(_NUMBER), _out(of, path, "a number", record.WRONG_TYPE))
            return bad.when(~_fits(kind, text, declared), _out(of, path, f"a value that fits {declared.ddl()}"))
    assert isinstance(declared, Scalar)
    return _fault_of_scalar(of, declared, path)


def _fault_of_member(of: Column, name: str, declared: Type, required: bool, path: Column) -> Column:
    from pyspark.sql import functions as F

    there, at = member(of, name), F.concat(path, F.lit(f".{name}"))
    if not required:
        return F.when(there.isNull() | F.is_variant_null(there), F.lit(None).cast(ERROR_TYPE)).otherwise(
            fault(there, declared, at)
        )
    absent = failure(record.MISSING_FIELD, F.concat(_where(at), F.lit(": required, but absent")))
    null = failure(record.MISSING_FIELD, F.concat(_where(at), F.lit(": required, but null")))
    return F.when(there.isNull(), absent).when(F.is_variant_null(there), null).otherwise(fault(there, declared, at))


def _each(items: Column, declared: Type, path: Column, step: Column | None = None) -> Column:
    """The first fault of some items, each of which may be null."""
    from pyspark.sql import functions as F

    def one(item: Column, i: Column) -> Column:
        at = F.concat(path, F.concat(F.lit("["), i.cast("string"), F.lit("]")) if step is None else step)
        return F.when(item.isNull() | F.is_variant_null(item), F.lit(None).cast(ERROR_TYPE)).otherwise(
            fault(item, declared, at)
        )

    return F.get(F.filter(F.transform(items, one), lambda fault: fault.isNotNull()), F.lit(0))


def _fault_of_scalar(of: Column, declared: Scalar, path: Column) -> Column:
    from pyspark.sql import functions as F

    kind, name = kind_of(of), declared.name
    number = kind.isin("BIGINT", "DOUBLE", "FLOAT") | kind.startswith("DECIMAL")
    if name in _BITS or declared.epoch:
        return _fault_of_whole(of, declared, path)
    if name in ("float", "double"):
        most = F.lit(LARGEST_FLOAT if name == "float" else 1.7976931348623157e308)
        found = F.try_variant_get(of, "$", "double")
        return F.when(~number, _wrong(of, path, "number")).when(F.abs(found) > most, _out(of, path, f"a {name}"))
    text = F.try_variant_get(of, "$", "string")
    wrong = F.when(kind != ("BOOLEAN" if name == "boolean" else "STRING"), _wrong(of, path, _EXPECTED.get(name, name)))
    match name:
        case "boolean" | "string":
            return wrong
        case "binary":
            return wrong.when(~text.rlike(_BASE64), _out(of, path, "base64 text", record.WRONG_TYPE))
        case "date":
            day = text.try_cast("date")
            good = text.rlike(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\z") & (F.substring(text, 1, 4) != "0000") & day.isNotNull()
            return wrong.when(~good, _out(of, path, "a date", record.WRONG_TYPE))
    micros, zone = micros_of(text)
    bad = wrong.when(micros.isNull(), _out(of, path, "an RFC 3339 time", record.WRONG_TYPE))
    if name == "timestamp_ntz":
        bad = bad.when(zone, _out(of, path, "a time without a zone", record.WRONG_TYPE))
    return bad.when(~micros.between(FIRST_TIME, LAST_TIME), _out(of, path, "a time in the years 1 to 9999"))


def _fault_of_whole(of: Column, declared: Scalar, path: Column) -> Column:
    from pyspark.sql import functions as F

    kind = kind_of(of)
    exact = F.try_variant_get(of, "$", "decimal(38,0)")
    past = (
        kind.startswith("DECIMAL") & (exact == F.try_variant_get(of, "$", "double")) & (F.abs(exact) > F.lit(2**63 - 1))
    )
    wrong = F.when(past, _out(of, path, "in the range of a bigint")).when(kind != "BIGINT", _wrong(of, path, "int"))
    found = F.try_variant_get(of, "$", "bigint")
    if declared.epoch:
        unit = PER_UNIT[declared.epoch]
        sound = found.between(-(-FIRST_TIME // unit), LAST_TIME // unit)
        return wrong.when(~sound, _out(of, path, "a time in the years 1 to 9999"))
    half = 2 ** (_BITS[declared.name] - 1)
    sound = found.between(-half, half - 1)
    return wrong.when(~sound, _out(of, path, f"in the range of a {declared.name}"))


def _fits(kind: Column, text: Column, declared: Decimal) -> Column:
    """Whether a number fits without rounding, from its digits. Of a double the digits that were written are gone."""
    from pyspark.sql import functions as F

    fraction = F.regexp_extract(text, r"\.([0-9]*)", 1)
    digits = F.concat(F.regexp_extract(text, r"^[+-]?([0-9]*)", 1), fraction)
    kept = F.regexp_replace(digits, "0+$", "")
    size = F.length(F.regexp_replace(kept, "^0+", ""))
    exponent = F.coalesce(F.regexp_extract(text, r"[eE]([+-]?[0-9]{1,6})$", 1).try_cast("int"), F.lit(0))
    last = exponent - F.length(fraction) + (F.length(digits) - F.length(kept))
    whole = declared.precision - declared.scale
    fits = (size == 0) | ((last >= -declared.scale) & (size + last <= whole))
    return ~kind.isin("DOUBLE", "FLOAT") & F.coalesce(fits, F.lit(False))


def _wrong(of: Column, path: Column, expected: str) -> Column:
    from pyspark.sql import functions as F

    said = F.concat(_where(path), F.lit(f": expected {expected}, got "), _got(of), F.lit("; the value is "), _shown(of))
    return failure(record.WRONG_TYPE, said)


def _out(of: Column, path: Column, expected: str, error_class: str = record.OUT_OF_RANGE) -> Column:
    from pyspark.sql import functions as F

    said = F.concat(_where(path), F.lit(": "), _shown(of), F.lit(f" is not {expected}"))
    return failure(error_class, said)


def _got(of: Column) -> Column:
    from pyspark.sql import functions as F

    kind = kind_of(of)
    words = {"STRING": "string", "BIGINT": "int", "BOOLEAN": "boolean", "VOID": "null"}
    named = reduce(lambda c, item: c.when(kind == item[0], item[1]), words.items(), F.when(F.lit(False), "x"))
    return named.when(kind.startswith("ARRAY"), "array").when(kind.startswith("OBJECT"), "object").otherwise("number")


def _where(path: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.length(path) == 0, F.lit("the record")).otherwise(F.regexp_replace(path, r"^\.", ""))


def _shown(of: Column) -> Column:
    from pyspark.sql import functions as F

    return F.substring(F.to_json(of), 1, VALUE_LIMIT)
