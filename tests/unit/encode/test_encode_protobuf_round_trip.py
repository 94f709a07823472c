"""Whatever columns hold comes out of Protobuf as it went in: read by our decoder, and by protobuf's own runtime."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
from batches import among_others, batch_of, checked
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protobuf_strategies import Json, Schema, fill, records, same, schemas

from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.encode.protobuf.encoder import ProtobufEncoder
from penstock.registry.protobuf.shape import struct_of
from penstock.spec.types import Struct

patient = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def in_columns(value: Any) -> Any:
    """What decode would give: JSON is text."""
    if isinstance(value, Json):
        return json.dumps(value.value)
    if isinstance(value, dict):
        return {k: in_columns(v) for k, v in value.items()}
    return [in_columns(v) for v in value] if isinstance(value, list) else value


def in_microseconds(put: Any) -> Any:
    """What was put into a message, with times that a column can hold."""
    if isinstance(put, list):
        return [in_microseconds(v) for v in put]
    if isinstance(put, dict) and put.keys() == {"seconds", "nanos"}:
        return {**put, "nanos": int(put["nanos"] / 1000) * 1000}
    return {k: in_microseconds(v) for k, v in put.items()} if isinstance(put, dict) else put


def drawn(data: Any) -> tuple[Schema, Struct, list[tuple[Any, Any]], pa.RecordBatch]:
    schema = data.draw(schemas())
    pairs = data.draw(st.lists(records(schema.fields, schema.syntax), min_size=1, max_size=6))
    struct = struct_of(schema.compiled.descriptor())
    return schema, struct, pairs, batch_of(struct, [in_columns(row) for _, row in pairs])


@patient
@given(st.data())
def test_columns_of_a_random_message_come_back_from_our_decoder_as_they_were(data: Any) -> None:
    schema, struct, pairs, batch = drawn(data)
    encoder = ProtobufEncoder(schema.compiled, struct, None)
    values = checked(encoder(batch))
    assert values == checked(encoder(among_others(batch)))
    decoded = ProtobufDecoder(schema.compiled)(pa.array(values, pa.binary()))
    assert decoded.failures == {}
    names = batch.schema.names
    for values_of_row, (_, expected) in zip(
        zip(*map(pa.Array.to_pylist, decoded.columns), strict=True), pairs, strict=True
    ):
        found = dict(zip(names, values_of_row, strict=True))
        assert same(found, expected), (found, expected)


@patient
@given(st.data())
def test_records_of_a_random_message_are_to_protobuf_what_was_put_into_them(data: Any) -> None:
    schema, struct, pairs, batch = drawn(data)
    for value, (put, _) in zip(checked(ProtobufEncoder(schema.compiled, struct, None)(batch)), pairs, strict=True):
        expected = schema.new()
        fill(expected, in_microseconds(put))
        found = type(expected).FromString(value)
        assert found == expected, (found, expected)
        assert type(expected).__base__.ByteSize(expected) == len(value or b""), json_format.MessageToDict(expected)


@patient
@given(st.data())
def test_rows_with_nulls_where_none_may_be_fail_and_change_nothing_about_their_neighbours(data: Any) -> None:
    schema, struct, pairs, _ = drawn(data)
    good = [in_columns(row) for _, row in pairs]
    needed = [m.name for m in struct.members if m.required]
    broken = st.tuples(st.sampled_from(good), st.sampled_from(needed)) if needed else st.nothing()
    bad = [({**row, name: None}, name) for row, name in data.draw(st.lists(broken, max_size=4 if needed else 0))]
    mixed = data.draw(st.permutations([(row, None) for row in good] + bad))
    encoder = ProtobufEncoder(schema.compiled, struct, 1)
    encoded = encoder(batch_of(struct, [row for row, _ in mixed]))
    checked(encoded)
    reasons = {i: f"{name}: required, but null" for i, (_, name) in enumerate(mixed) if name is not None}
    assert {i: failure.reason for i, failure in encoded.failures.items()} == reasons
    alone = checked(encoder(batch_of(struct, [row for row, name in mixed if name is None])))
    assert [value for value in encoded.values.to_pylist() if value is not None] == alone


@patient
@given(st.data())
def test_an_encoder_that_travelled_writes_the_same(data: Any) -> None:
    schema, struct, _, batch = drawn(data)
    encoder = ProtobufEncoder(schema.compiled, struct, 12)
    assert pickle.loads(pickle.dumps(encoder))(batch).values.equals(encoder(batch).values)
