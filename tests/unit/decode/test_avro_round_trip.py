"""Whatever fastavro writes comes out as it went in, whoever its neighbours in the batch are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from arrow_rows import rows
from avro_strategies import binaries, fitting, framed, registry, schemas, text_of, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.decode.arrow.columns import arrow_type
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.avro import walk
from penstock.decode.avro.decoder import AvroDecoder, struct_of

patient = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=[1, 10**9], ids=["side by side", "one by one"], autouse=True)
def both_ways_of_walking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "FEW", request.param)


def decode(schema: Any, values: list[bytes | None]) -> Decoded:
    return AvroDecoder(text_of(schema))(binaries(values))


@patient
@given(st.data())
def test_records_of_a_random_schema_decode_to_the_values_they_were_written_from(data: Any) -> None:
    schema = data.draw(schemas)
    pairs = data.draw(st.lists(fitting(schema), min_size=1, max_size=5))
    values = [written(schema, value) for value, _ in pairs]
    kept = [i for i, value in enumerate(values) if value]  # a record of no bytes is an empty value
    decoded = decode(schema, values)
    assert sorted(decoded.failures) == [i for i in range(len(pairs)) if i not in kept]
    found = rows(struct_of(text_of(schema)), decoded)
    assert [found[i] for i in kept] == [pairs[i][1] for i in kept]
    for member, column in zip(struct_of(text_of(schema)).members, decoded.columns, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(member.type)


@patient
@given(st.data())
def test_records_of_several_schema_ids_are_decoded_in_one_batch_and_keep_their_order(data: Any) -> None:
    """Each id wrote the same fields in an order of its own, and a field that nobody reads."""
    schema = data.draw(schemas)
    writers = {}
    for schema_id in range(1, 4):
        fields = [*schema["fields"], {"name": "dropped", "type": data.draw(st.sampled_from(["string", "long"]))}]
        writers[schema_id] = {**schema, "fields": data.draw(st.permutations(fields))}
    batch = data.draw(st.lists(st.tuples(st.integers(1, 3), fitting(schema)), max_size=6))
    values = []
    for schema_id, (value, _) in batch:
        dropped = next(f["type"] for f in writers[schema_id]["fields"] if f["name"] == "dropped")
        values.append(
            framed(schema_id, written(writers[schema_id], {**value, "dropped": "x" if dropped == "string" else 7}))
        )
    decoded = AvroDecoder(text_of(schema), registry(writers))(binaries(values))
    assert decoded.failures == {}
    assert decoded.schema_ids is not None
    assert decoded.schema_ids.to_pylist() == [schema_id for schema_id, _ in batch]
    assert decoded.schema_ids.type == pa.int32()
    assert rows(struct_of(text_of(schema)), decoded) == [expected for _, (_, expected) in batch]


@patient
@given(st.data())
def test_bad_neighbours_change_nothing_about_the_good_records_of_a_batch(data: Any) -> None:
    schema = data.draw(schemas)
    good = fitting(schema).map(lambda pair: framed(1, written(schema, pair[0])))
    bad = st.sampled_from([b"", None, b"\x00", b"\x00\x00\x00\x00\x02", b"{}", b"\x00\xff\xff\xff\xff\x00"])
    damaged = good.map(lambda value: value + b"\xff" * 11)
    marked = st.one_of(good.map(lambda v: (v, True)), st.one_of(bad, damaged).map(lambda v: (v, False)))
    batch = data.draw(st.lists(marked, max_size=8))
    values, fine = [v for v, _ in batch], [i for i, (_, ok) in enumerate(batch) if ok]
    decoder = AvroDecoder(text_of(schema), registry({1: schema}))
    mixed, alone = decoder(binaries(values)), decoder(binaries([values[i] for i in fine]))
    assert sorted(mixed.failures) == [i for i in range(len(batch)) if i not in fine]
    assert alone.failures == {}
    for of_mixed, of_alone in zip(mixed.columns, alone.columns, strict=True):
        assert of_mixed.null_count >= len(mixed.failures)
        assert of_mixed.take(pa.array(fine, pa.int64())).equals(of_alone)
