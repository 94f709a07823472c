"""Whatever columns hold comes out of JSON as it went in: read by plain parsers, and by our decoder."""

from __future__ import annotations

import base64
import json
from decimal import Decimal as Number
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from batches import among_others, batch_of, checked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from struct_strategies import any_struct, rows_of

from penstock.decode.json import JsonDecoder
from penstock.encode.arrow.encoded import Encoded
from penstock.encode.json import JsonEncoder
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

patient = settings(max_examples=120, suppress_health_check=list(HealthCheck))


def parsed(value: bytes | None) -> Any:
    """By two parsers that allow nothing but JSON; the numbers as exact as they were written."""
    assert value is not None
    msgspec.json.decode(value)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(value.decode(), parse_int=Number, parse_float=Number, parse_constant=refuse)


def expected(declared: Type, value: Any) -> Any:
    """What a parser must find, said without a look at how it is written."""
    if value is None:
        return None
    match declared:
        case Struct(members=members):
            return {m.name: expected(m.type, value[m.name]) for m in members if value[m.name] is not None}
        case Array(item=item):
            return [expected(item, v) for v in value]
        case Map(value=inner):
            return {key: expected(inner, v) for key, v in value.items()}
        case Decimal():
            return value
        case Scalar(name="boolean" | "string"):
            return value
        case Scalar(name="float"):
            return Number(str(np.float32(value)))
        case Scalar(name="binary"):
            return base64.b64encode(value).decode()
        case Scalar(name="date"):
            return value.isoformat()
        case Scalar(name="timestamp" | "timestamp_ntz"):
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return Number(repr(value))


def encoded_alike(encoder: JsonEncoder, batch: pa.RecordBatch) -> Encoded:
    """The same, whether the batch is whole or part of a longer one."""
    encoded = encoder(batch)
    assert checked(encoded) == checked(encoder(among_others(batch)))
    return encoded


@patient
@given(st.data())
def test_rows_of_random_columns_are_read_as_they_were_and_back_into_the_same_columns(data: Any) -> None:
    struct = data.draw(any_struct)
    rows = data.draw(st.lists(rows_of(struct), min_size=1, max_size=8))
    batch = batch_of(struct, rows)
    encoded = encoded_alike(JsonEncoder(struct), batch)
    assert encoded.failures == {}
    assert [parsed(value) for value in encoded.values.to_pylist()] == [expected(struct, row) for row in rows]
    decoded = JsonDecoder(struct)(encoded.values)
    assert decoded.failures == {}
    for column, name in zip(decoded.columns, batch.schema.names, strict=True):
        assert column.equals(batch.column(name))


@patient
@given(st.data())
def test_a_row_is_written_the_same_alone_and_among_others_and_behind_a_header(data: Any) -> None:
    struct = data.draw(any_struct)
    rows = data.draw(st.lists(rows_of(struct), min_size=2, max_size=6))
    together = checked(JsonEncoder(struct)(batch_of(struct, rows)))
    alone = [checked(JsonEncoder(struct)(batch_of(struct, [row])))[0] for row in rows]
    assert together == alone
    header = data.draw(st.binary(max_size=5))
    behind = checked(JsonEncoder(struct, header)(batch_of(struct, rows)))
    assert behind == [header + value for value in together if value is not None]


@given(any_struct)
@settings(max_examples=40)
def test_columns_of_nulls_are_empty_objects_and_no_rows_are_no_values(struct: Struct) -> None:
    nulls = [dict.fromkeys(member.name for member in struct.members)] * 3
    assert checked(encoded_alike(JsonEncoder(struct), batch_of(struct, nulls))) == [b"{}"] * 3
    assert checked(encoded_alike(JsonEncoder(struct), batch_of(struct, []))) == []
