"""Whatever columns hold comes out of Avro as it went in: read by our decoder, and by fastavro."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from arrow_rows import rows
from avro_strategies import (
    binaries,
    fitting,
    framed,
    numbers_of_time,
    oracle_schemas,
    read_by_fastavro,
    registry,
    schemas_of,
    seen,
    text_of,
    without_odd_times,
    written,
)
from batches import among_others, batch_of, checked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.decode.avro.decoder import AvroDecoder, struct_of
from penstock.encode.avro.encoder import AvroEncoder

patient = settings(max_examples=100, suppress_health_check=list(HealthCheck))
not_uuid = numbers_of_time.filter(lambda schema: schema["logicalType"] != "uuid")  # any text is one to decode
schemas = schemas_of(st.one_of(without_odd_times, without_odd_times, not_uuid))


@patient
@given(st.data())
def test_columns_of_a_random_schema_come_back_from_our_decoder_as_they_were(data: Any) -> None:
    schema = data.draw(schemas)
    pairs = data.draw(st.lists(fitting(schema), min_size=1, max_size=8))
    struct = struct_of(text_of(schema))
    batch = batch_of(struct, [expected for _, expected in pairs])
    encoder = AvroEncoder(text_of(schema), struct, 7)
    values = checked(encoder(batch))
    assert values == checked(encoder(among_others(batch)))
    decoded = AvroDecoder(text_of(schema), registry({7: schema}))(binaries(values))
    assert decoded.failures == {}
    for column, name in zip(decoded.columns, batch.schema.names, strict=True):
        assert column.equals(batch.column(name))
    by_fastavro = [framed(7, written(schema, value)) for value, _ in pairs]
    assert rows(struct, AvroDecoder(text_of(schema), registry({7: schema}))(binaries(by_fastavro))) == rows(
        struct, decoded
    )


@patient
@given(st.data())
def test_records_of_a_random_schema_are_read_by_fastavro_to_their_last_byte(data: Any) -> None:
    schema = data.draw(oracle_schemas)
    expected = [row for _, row in data.draw(st.lists(fitting(schema), min_size=1, max_size=6))]
    struct = struct_of(text_of(schema))
    for datum, row in zip(
        checked(AvroEncoder(text_of(schema), struct, None)(batch_of(struct, expected))), expected, strict=True
    ):
        assert datum is not None
        value, size = read_by_fastavro(schema, datum)
        assert size == len(datum)
        assert seen(schema, value) == row


@patient
@given(st.data())
def test_rows_with_nulls_where_none_may_be_fail_and_change_nothing_about_their_neighbours(data: Any) -> None:
    schema = data.draw(schemas)
    struct = struct_of(text_of(schema))
    good = [row for _, row in data.draw(st.lists(fitting(schema), min_size=1, max_size=6))]
    needed = [m.name for m in struct.members if m.required]
    broken = st.tuples(st.sampled_from(good), st.sampled_from(needed)) if needed else st.nothing()
    bad = [({**row, name: None}, name) for row, name in data.draw(st.lists(broken, max_size=4 if needed else 0))]
    mixed = data.draw(st.permutations([(row, None) for row in good] + bad))
    encoder = AvroEncoder(text_of(schema), struct, None)
    encoded = encoder(batch_of(struct, [row for row, _ in mixed]))
    checked(encoded)
    reasons = {i: f"{name}: required, but null" for i, (_, name) in enumerate(mixed) if name is not None}
    assert {i: failure.reason for i, failure in encoded.failures.items()} == reasons
    alone = checked(encoder(batch_of(struct, [row for row, name in mixed if name is None])))
    assert [value for value in encoded.values.to_pylist() if value is not None] == alone


def test_an_encoder_that_travelled_writes_the_same() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "long"]}]}
    struct = struct_of(text_of(schema))
    encoder = AvroEncoder(text_of(schema), struct, 300)
    batch = batch_of(struct, [{"x": None}, {"x": 5}])
    assert pickle.loads(pickle.dumps(encoder))(batch).values.equals(encoder(batch).values)
    assert encoder(batch).values.to_pylist() == [b"\0\0\0\x01\x2c\0", b"\0\0\0\x01\x2c\x02\x0a"]


def test_a_batch_without_rows_has_no_values() -> None:
    schema = text_of(
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "array", "items": "int"}}]}
    )
    encoded = AvroEncoder(schema, struct_of(schema), 1)(batch_of(struct_of(schema), []))
    assert len(encoded.values) == 0
    assert encoded.values.type == pa.binary()
    assert encoded.failures == {}
