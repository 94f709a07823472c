"""Whatever protobuf's runtime writes comes out as it went in, whoever its neighbours are and however it is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protobuf_strategies import Kind, Schema, Spec, compiled, fill, records, same, schemas, written

from penstock.decode.arrow.columns import arrow_type
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.protobuf.batch import Batch, suits
from penstock.decode.protobuf.bundle import bundled
from penstock.decode.protobuf.decoder import ProtobufDecoder, reader_of
from penstock.registry.protobuf.shape import shape_of, struct_of

patient = settings(max_examples=80, suppress_health_check=list(HealthCheck))


def decode(schema: Schema, values: list[bytes | None]) -> Decoded:
    return ProtobufDecoder(schema.compiled)(pa.array(values, pa.binary()))


def rows(schema: Schema, columns: list[pa.Array]) -> list[dict[str, Any]]:
    names = [spec.name for spec in schema.fields]
    return [dict(zip(names, values, strict=True)) for values in zip(*map(pa.Array.to_pylist, columns), strict=True)]


@patient
@given(st.data())
def test_messages_of_a_random_schema_decode_to_the_values_they_were_written_from(data: Any) -> None:
    schema = data.draw(schemas())
    pairs = data.draw(st.lists(records(schema.fields, schema.syntax), min_size=1, max_size=4))
    decoded = decode(schema, [written(schema, put) for put, _ in pairs])
    assert decoded.failures == {}
    for found, (_, expected) in zip(rows(schema, decoded.columns), pairs, strict=True):
        assert same(found, expected), (found, expected)


@patient
@given(st.data())
def test_columns_have_the_types_of_the_struct_whatever_the_records(data: Any) -> None:
    schema = data.draw(schemas())
    types = [arrow_type(member.type) for member in struct_of(schema.compiled.descriptor()).members]
    good = data.draw(st.lists(records(schema.fields, schema.syntax).map(lambda pair: written(schema, pair[0]))))
    for batch in ([], good, [None, b"\xff"], [*good, None]):
        decoded = decode(schema, batch)
        assert [column.type for column in decoded.columns] == types
        assert {len(column) for column in decoded.columns} == {len(batch)}
        for column in decoded.columns:
            column.validate(full=True)


@patient
@given(st.data())
def test_reading_a_batch_at_once_and_record_by_record_give_the_same(data: Any) -> None:
    schema = data.draw(schemas())
    bodies = data.draw(
        st.lists(records(schema.fields, schema.syntax).map(lambda pair: written(schema, pair[0])), max_size=4)
    )
    shape = shape_of(schema.compiled.descriptor())
    each, failures = reader_of(schema.compiled).rows.read_each(bodies)
    assert failures == {}
    if suits(shape):
        columns, refused = Batch(shape)([bundled(bodies)])
        assert refused == []
        assert all(one.equals(other) for one, other in zip(each, columns, strict=True))
    assert all(one.equals(other) for one, other in zip(each, decode(schema, bodies).columns, strict=True))


@patient
@given(st.data())
def test_bad_neighbours_change_nothing_about_the_good_records_of_a_batch(data: Any) -> None:
    schema = data.draw(schemas())
    bad = st.sampled_from([b"\x00", b"\xff", b"\x0b", b"\x0c", b"\x0a\x7f", b"\x80" * 11, b"\x0e", None])
    batch = data.draw(st.lists(st.one_of(records(schema.fields, schema.syntax), bad), max_size=8))
    values = [written(schema, entry[0]) if isinstance(entry, tuple) else entry for entry in batch]
    good = [i for i, entry in enumerate(batch) if isinstance(entry, tuple)]
    mixed, alone = decode(schema, values), decode(schema, [values[i] for i in good])
    assert sorted(mixed.failures) == [i for i in range(len(batch)) if i not in good]
    assert alone.failures == {}
    for of_mixed, of_alone in zip(mixed.columns, alone.columns, strict=True):
        assert of_mixed.take(pa.array(good, pa.int64())).equals(of_alone)
        assert of_mixed.null_count >= len(batch) - len(good)


def test_random_schemas_are_read_both_at_once_and_record_by_record() -> None:
    """The tests above would prove half of what they say if ptars never had a schema to read."""
    small = (Spec("a", 1, Kind(5), "plain"),)
    assert suits(shape_of(compiled("proto3", small).compiled.descriptor()))
    assert not suits(shape_of(compiled("proto3", (Spec("a", 2**29 - 1, Kind(5), "plain"),)).compiled.descriptor()))
    group = (Spec("g", 1, Kind("message", small), "group"),)
    assert not suits(shape_of(compiled("proto2", group).compiled.descriptor()))


def test_a_slice_of_an_arrow_array_decodes_only_the_slice() -> None:
    schema = compiled("proto3", (Spec("a", 1, Kind(5), "plain"),))
    values = pa.array([b"junk", b"\x08\x01", b"\x08\x02", b"junk"], pa.binary()).slice(1, 2)
    decoded = ProtobufDecoder(schema.compiled)(values)
    assert decoded.columns[0].to_pylist() == [1, 2]
    assert decoded.failures == {}


def test_binary_of_other_widths_is_taken() -> None:
    schema = compiled("proto3", (Spec("a", 1, Kind(5), "plain"),))
    decoded = ProtobufDecoder(schema.compiled)(pa.array([b"\x08\x01", None, b""], pa.large_binary()))
    assert decoded.columns[0].to_pylist() == [1, None, 0]
    assert list(decoded.failures) == [1]


def test_maps_come_out_sorted_by_key_whatever_order_they_were_written_in() -> None:
    schema = compiled("proto3", (Spec("m", 1, Kind(5), "map"),))
    message = schema.new()
    fill(message, {"m": dict.fromkeys("zyxabcé", 1)})
    decoded = decode(schema, [bytes(message.SerializeToString())] * 2)
    assert [key for key, _ in decoded.columns[0][0].as_py()] == sorted("zyxabcé")
    assert decoded.columns[0][0] == decoded.columns[0][1]


def test_more_records_than_share_a_message_object_come_out_in_order() -> None:
    schema = compiled("proto3", (Spec("a", 1, Kind(5), "plain"), Spec("b", 2, Kind(12), "plain")))
    bodies = [written(schema, {"a": i, "b": b"x" * 300_000}) for i in range(9)]
    bodies[4] = bodies[4][:-1]
    decoded = decode(schema, bodies)
    assert decoded.columns[0].to_pylist() == [0, 1, 2, 3, None, 5, 6, 7, 8]
    assert list(decoded.failures) == [4]
