"""Whatever fits a schema comes out as it went in, whoever its neighbours in the batch are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from arrow_rows import rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_strategies import records, schemas, to_json

from penstock.decode.arrow.decoded import Decoded
from penstock.decode.json import JsonDecoder
from penstock.spec.types import Array, Map, Member, Scalar, Struct

patient = settings(max_examples=100, suppress_health_check=list(HealthCheck))


def decode(struct: Struct, values: list[bytes | None]) -> Decoded:
    return JsonDecoder(struct)(pa.array(values, pa.binary()))


@patient
@given(st.data())
def test_records_that_fit_a_random_schema_decode_to_the_values_they_were_written_from(data: Any) -> None:
    struct = data.draw(schemas)
    pairs = data.draw(st.lists(records(struct), min_size=1, max_size=4))
    decoded = decode(struct, [to_json(written).encode() for written, _ in pairs])
    assert decoded.failures == {}
    assert rows(struct, decoded) == [expected for _, expected in pairs]


@patient
@given(st.data())
def test_bad_neighbours_change_nothing_about_the_good_records_of_a_batch(data: Any) -> None:
    struct = data.draw(schemas)
    bad = st.sampled_from([b"", b"{", b"\xff", b"[]", b"null", None, b'{"' + b"[" * 2000])
    batch = data.draw(st.lists(st.one_of(records(struct), bad.map(lambda b: (None, b))), max_size=8))
    values = [to_json(first).encode() if first is not None else second for first, second in batch]
    good = [i for i, (first, _) in enumerate(batch) if first is not None]
    mixed, alone = decode(struct, values), decode(struct, [values[i] for i in good])
    assert sorted(mixed.failures) == [i for i in range(len(batch)) if i not in good]
    assert alone.failures == {}
    for of_mixed, of_alone in zip(mixed.columns, alone.columns, strict=True):
        assert of_mixed.take(pa.array(good, pa.int64())).equals(of_alone)


def test_values_that_only_arrow_refuses_leave_their_neighbours_as_they_are() -> None:
    struct = Struct(
        (
            Member("d", Struct((Member("x", Array(Scalar("timestamp", "s"))),))),
            Member("t", Scalar("timestamp")),
        )
    )
    good = b'{"d":{"x":[1,null]},"t":"2024-01-01T00:00:00Z"}'
    batch = [good, b'{"d":{"x":[1,253402300800]}}', good, b'{"t":"0001-01-01T00:00:00+10:00"}', b"", good]
    mixed, alone = decode(struct, batch), decode(struct, [good] * 3)
    assert sorted(mixed.failures) == [1, 3, 4]
    for of_mixed, of_alone in zip(mixed.columns, alone.columns, strict=True):
        assert of_mixed.take(pa.array([0, 2, 5])).equals(of_alone)


def test_an_empty_batch_has_every_column_and_no_row() -> None:
    struct = Struct((Member("a", Array(Struct((Member("b", Map(Scalar("date"))),)))), Member("c", Scalar("float"))))
    decoded = decode(struct, [])
    assert [len(column) for column in decoded.columns] == [0, 0]
    assert decoded.failures == {}


def test_a_slice_of_an_arrow_array_decodes_only_the_slice() -> None:
    struct = Struct((Member("a", Scalar("int")),))
    values = pa.array([b"junk", b'{"a":1}', b'{"a":2}', b"junk"], pa.binary()).slice(1, 2)
    decoded = JsonDecoder(struct)(values)
    assert decoded.columns[0].to_pylist() == [1, 2]
    assert decoded.failures == {}


def test_timestamps_with_and_without_an_offset_mix_in_one_batch_in_any_order() -> None:
    struct = Struct((Member("t", Scalar("timestamp")),))
    zoned, naive = b'{"t":"2024-01-01T05:30:00+05:30"}', b'{"t":"2024-01-01T00:00:00"}'
    for batch in ([zoned, naive], [naive, zoned]):
        first, second = decode(struct, batch).columns[0].to_pylist()
        assert first == second
