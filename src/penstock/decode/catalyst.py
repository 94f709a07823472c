"""JSON, text and bytes decoded by the engine's own expressions, for real-time mode, where no Python worker runs.

`from_json` is not used: it fills what does not fit with null and says nothing. A record is parsed into a variant, which
keeps what was written (a string stays a string, `1.0` stays a decimal), and every declared field is then tested for
what was written, for its range and for being there, with the classes that `decode/json.py` gives. Where the engine
cannot tell what the other decoder can, a record is refused, never guessed. It refuses these, which `JsonDecoder` reads:

- a name that is written twice in one object;
- a decimal written as a number with an exponent or past 38 digits;
- nesting past a thousand levels, numbers past a thousand digits.

What it reads has the same value, but that `-0.0` becomes `0.0`, and that the entries of a map come in the order of
their keys. `tests/integration/test_decode_catalyst.py` holds the two against each other.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import record
from penstock.decode.arrow.columns import VALUE_LIMIT
from penstock.decode.arrow.decoded import NULL
from penstock.decode.faults import fault
from penstock.decode.formats import Prepared
from penstock.decode.text import BytesDecoder, StringDecoder
from penstock.decode.values import typed
from penstock.decode.variant import ERROR_TYPE, failure, member
from penstock.errors import SpecInvalid
from penstock.spec.types import Array, Map, Struct, Type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Half of a surrogate pair, in text from which escaped backslashes were taken out. Java would write a `?` for it.
_HALF = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


@dataclass(frozen=True)
class Read:
    """Columns over the rows of `rows`: the fields, all null where `error` is not, and why the record failed."""

    rows: DataFrame
    fields: list[Column]
    error: Column


def decoded(how: Prepared, rows: DataFrame, raw: Column, at: str) -> Read:
    """How the bytes in `raw` are read. `at` begins the names of columns that are added on the way. Raises SpecInvalid
    for what the engine cannot read with the same result."""
    from pyspark.sql import functions as F

    none = F.lit(None).cast(ERROR_TYPE)
    absent = F.when(raw.isNull(), failure(NULL.error_class, F.lit(NULL.reason)))
    if how.make is BytesDecoder:
        return Read(rows, [raw.alias(how.struct.members[0].name)], absent.otherwise(none))
    text = raw.cast("string")
    bad_text = failure(record.MALFORMED, F.lit("invalid UTF-8"))
    if how.make is StringDecoder:
        sound = F.is_valid_utf8(text)
        error = absent.when(~sound, bad_text).otherwise(none)
        return Read(rows, [F.when(sound, text).alias(how.struct.members[0].name)], error)
    _require_names(how.struct)
    root, failed = F.col(f"{at}_root"), F.col(f"{at}_failed")
    # The end of a record is told by what comes after it, which no record can know; the parser itself stops early.
    mark = f"end{uuid.uuid4().hex}"
    whole = F.try_parse_json(F.concat(F.lit('{"r":'), text, F.lit(f',"{mark}":0}}')))
    opened = rows.withColumn(f"{at}_whole", whole)
    whole = F.col(f"{at}_whole")
    ended = F.try_variant_get(whole, f"$.{mark}", "variant").isNotNull()
    unescaped = F.replace(text, F.lit("\\\\"), F.lit(""))
    sound = F.is_valid_utf8(text) & ended & ~F.coalesce(unescaped.rlike(_HALF), F.lit(False))
    opened = opened.withColumn(f"{at}_root", F.when(sound, F.try_variant_get(whole, "$.r", "variant")))
    begins = F.concat(F.lit("not JSON; begins with "), F.substring(text, 1, VALUE_LIMIT))
    error = (
        absent.when(
            text.rlike(r"^[ \t\n\r\x0B\f]*\z"),
            failure(
                record.EMPTY_VALUE,
                F.concat(F.lit("the value is empty ("), F.octet_length(raw).cast("string"), F.lit(" bytes)")),
            ),
        )
        .when(~F.is_valid_utf8(text), bad_text)
        .when(root.isNull(), failure(record.MALFORMED, begins))
        .otherwise(fault(root, how.struct, F.lit("")))
    )
    judged = opened.withColumn(f"{at}_failed", error)
    fields = [
        F.when(failed.isNull(), typed(member(root, m.name), m.type)).cast(m.type.ddl()).alias(m.name)
        for m in how.struct.members
    ]
    return Read(judged, fields, failed)


def _require_names(struct: Struct) -> None:
    for each in struct.members:
        if any(c < " " or c in '"\\' for c in each.name):
            raise SpecInvalid(
                f"not in real-time mode: a field is called {each.name!r}",
                cause="the engine has no path to a name with quotes, backslashes or control characters",
                next_command="run it as `trigger: continuous`",
            )
        inner: Type = each.type
        while isinstance(inner, Array | Map):
            inner = inner.item if isinstance(inner, Array) else inner.value
        if isinstance(inner, Struct):
            _require_names(inner)
