"""Random schemas and values from serializers we did not write, through a real topic, with a real registry, to rows;
and what becomes of the same records when somebody has damaged them on the way.

What must come out is what was put in, and whether a damaged record can still be one is asked of protobuf's runtime, of
Python's UTF-8, or known from the format: a beginning of an Avro datum or of a JSON object is never another one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.samples.avro import avro_sample
from tests.samples.damage import CLASSES, EXPECTED, FROM_REGISTRY, damaged, must_fail, ways_of
from tests.samples.json import json_sample
from tests.samples.lab import Lab, Sample, id_in
from tests.samples.plain import bytes_sample, csv_sample, string_sample
from tests.samples.protobuf import protobuf_sample

from penstock import record
from penstock.decode.arrow.columns import arrow_type
from penstock.decode.arrow.decoded import Decoded

sys.path.append(str(Path(__file__).parent.parent / "unit" / "decode"))

import protobuf_strategies as proto
from arrow_rows import keeps_required, rows

patient = settings(max_examples=15, print_blob=True, suppress_health_check=list(HealthCheck))


SAMPLES = {
    "avro": avro_sample,
    "protobuf": protobuf_sample,
    "json": json_sample,
    "csv": csv_sample,
    "string": string_sample,
    "bytes": bytes_sample,
}


def decode(sample: Sample, values: list[bytes]) -> tuple[Decoded, list[dict[str, Any]]]:
    decoded = sample.prepared.make()(pa.array(values, pa.binary()))
    for member, column in zip(sample.prepared.struct.members, decoded.columns, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(member.type)
        assert len(column) == len(values)
    return decoded, rows(sample.prepared.struct, decoded)


@pytest.mark.parametrize("kind", list(SAMPLES))
@patient
@given(data=st.data())
def test_records_of_a_random_schema_come_out_of_kafka_as_they_went_in(lab: Lab, kind: str, data: Any) -> None:
    sample = SAMPLES[kind](data.draw, lab)
    values = lab.wire(kind).through(sample.values)
    decoded, found = decode(sample, values)
    assert decoded.failures == {}
    for row, expected in zip(found, sample.rows, strict=True):
        assert proto.same(row, expected), (row, expected)
        assert sample.holds(row)
    if kind in FROM_REGISTRY:
        assert decoded.schema_ids is not None
        assert decoded.schema_ids.to_pylist() == [id_in(value) for value in values]


@pytest.mark.parametrize("kind", list(SAMPLES))
@patient
@given(data=st.data())
def test_damaged_records_fail_with_a_reason_or_are_rows_of_the_schema(lab: Lab, kind: str, data: Any) -> None:
    """All in one batch: the good ones must not care."""
    sample = SAMPLES[kind](data.draw, lab)
    chance = data.draw(st.randoms())
    batch: list[tuple[str, int, bytes]] = [("", i, value) for i, value in enumerate(sample.values)]
    for how in ways_of(kind):
        for i, value in enumerate(sample.values[:4]):
            batch.append((how, i, damaged(how, value, sample, chance, lab.of_kind)))
    chance.shuffle(batch)
    decoded, found = decode(sample, lab.wire(kind).through([value for *_, value in batch]))
    ids = decoded.schema_ids.to_pylist() if decoded.schema_ids is not None else [None] * len(batch)
    for at, (how, i, value) in enumerate(batch):
        failure = decoded.failures.get(at)
        if not how:
            assert failure is None
            assert proto.same(found[at], sample.rows[i])
        elif failure is None:
            assert not must_fail(how, value, sample.values[i], sample), (how, value)
            assert sample.holds(found[at]), (how, value, found[at])
            for member, column in zip(sample.prepared.struct.members, decoded.columns, strict=True):
                assert keeps_required(member.type, member.required, column[at])
        else:
            assert failure.error_class in EXPECTED.get(how, CLASSES), (how, value, failure)
            assert 0 < len(failure.reason) <= record.REASON_LIMIT
            assert not any(column[at].is_valid for column in decoded.columns)
        if kind in FROM_REGISTRY:
            named_id = id_in(value)
            assert ids[at] == named_id or (ids[at] is None and named_id is not None and named_id < 0)
    if kind == "bytes":
        assert decoded.failures == {}
