"""Whatever the bytes: no exception, one row per record, and a row that fastavro reads alike, or a failure."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
from arrow_rows import keeps_required, rows
from avro_strategies import (
    binaries,
    fitting,
    framed,
    oracle_schemas,
    read_by_fastavro,
    registry,
    seen,
    text_of,
    written,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import record
from penstock.decode.arrow.columns import arrow_type
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.avro import walk
from penstock.decode.avro.decoder import AvroDecoder, struct_of
from penstock.decode.formats import Prepared
from penstock.decode.worker import DecodeBatches
from penstock.record import REASON_LIMIT

patient = settings(max_examples=50, suppress_health_check=list(HealthCheck))

CLASSES = {record.NULL_VALUE, record.EMPTY_VALUE, record.MALFORMED, record.OUT_OF_RANGE, record.UNKNOWN_SCHEMA}

# Numbers that lie about what follows: negative, huge, endless.
lies = st.sampled_from(
    [b"\x01", b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff" * 12, b"\x80\x80\x80\x80\x10"]
)


def both_ways(decoder: AvroDecoder, values: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> list[Decoded]:
    """Decoded side by side and one by one."""
    found = []
    for few in (1, 10**9):
        monkeypatch.setattr(walk, "FEW", few)
        found.append(decoder(binaries(values)))
    return found


@st.composite
def damaged(draw: Any, schema: Any) -> bytes:
    """A record with one byte changed, its end cut off, bytes added, or a lie in the middle."""
    raw = bytearray(written(schema, draw(fitting(schema))[0]))
    at = draw(st.integers(0, len(raw)))
    match draw(st.sampled_from(["flip", "cut", "add", "lie"])):
        case "flip" if at < len(raw):
            raw[at] = draw(st.integers(0, 255))
        case "cut":
            del raw[at:]
        case "add":
            raw += draw(st.binary(min_size=1, max_size=3))
        case _:
            raw[at : at + 1] = draw(lies)
    return bytes(raw)


def any_value(schema: Any) -> st.SearchStrategy[bytes | None]:
    fine = fitting(schema).map(lambda pair: written(schema, pair[0]))
    return st.one_of(fine, damaged(schema), damaged(schema), st.binary(max_size=12), st.none())


@patient
@given(st.data())
def test_any_bytes_are_a_failure_or_what_fastavro_reads_from_them(data: Any) -> None:
    schema = data.draw(oracle_schemas)
    values = data.draw(st.lists(any_value(schema), min_size=1, max_size=6))
    view = struct_of(text_of(schema))
    with pytest.MonkeyPatch.context() as monkeypatch:
        first, second = both_ways(AvroDecoder(text_of(schema)), values, monkeypatch)
    assert first.failures == second.failures
    for decoded in (first, second):
        for member, column in zip(view.members, decoded.columns, strict=True):
            column.validate(full=True)
            assert column.type == arrow_type(member.type)
            for i, value in enumerate(column):
                assert (
                    keeps_required(member.type, member.required, value)
                    if i not in decoded.failures
                    else not value.is_valid
                )
        for failure in decoded.failures.values():
            assert failure.error_class in CLASSES
            assert 0 < len(failure.reason) <= REASON_LIMIT
            failure.reason.encode()
        found = rows(view, decoded)
        for i, value in enumerate(values):
            if i not in decoded.failures:
                assert value is not None
                read, taken = read_by_fastavro(schema, value)
                assert taken == len(value)
                assert comparable(found[i]) == comparable(seen(schema, read))


@patient
@given(st.data())
def test_no_record_can_be_cut_anywhere_or_have_more_behind_it(data: Any) -> None:
    """An Avro datum is never the beginning of another: each of these is wrong, whatever its neighbours are."""
    schema = data.draw(oracle_schemas)
    raw = written(schema, data.draw(fitting(schema))[0])
    cut = [raw[:size] for size in range(len(raw))]
    longer = [raw + data.draw(st.binary(min_size=1, max_size=4)) for _ in range(2)]
    values: list[bytes | None] = [*cut, *longer, *([raw] if raw else [])]
    with pytest.MonkeyPatch.context() as monkeypatch:
        for decoded in both_ways(AvroDecoder(text_of(schema)), values, monkeypatch):
            assert sorted(decoded.failures) == list(range(len(cut) + len(longer)))
            classes = {f.error_class for f in decoded.failures.values()}
            assert classes <= {record.MALFORMED, record.EMPTY_VALUE}


@patient
@given(st.data())
def test_what_one_record_lacks_and_the_next_has_too_much_does_not_cancel_out(data: Any) -> None:
    schema = data.draw(oracle_schemas)
    one, other = (written(schema, data.draw(fitting(schema))[0]) for _ in range(2))
    at = data.draw(st.integers(0, len(one)))
    if at == len(one):
        return
    decoded = AvroDecoder(text_of(schema), registry({1: schema}))(
        binaries([framed(1, one), framed(1, one[:at]), framed(1, one[at:] + other), framed(1, other)])
    )
    assert 1 in decoded.failures
    assert not {0, 3} & decoded.failures.keys()
    if 2 not in decoded.failures:  # then it is a record in its own right
        assert read_by_fastavro(schema, one[at:] + other)[1] == len(one) - at + len(other)


@patient
@given(st.data())
def test_any_bytes_pass_the_worker_as_a_batch_that_spark_can_take(data: Any) -> None:
    schema = data.draw(oracle_schemas)
    headers = st.sampled_from([b"", b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x02", b"\x01", b"\x00\xff\xff\xff\xff"])
    values = data.draw(
        st.lists(st.builds(lambda h, v: None if v is None else h + v, headers, any_value(schema)), max_size=5)
    )
    raw = pa.RecordBatch.from_arrays(
        [binaries(values), pa.array(range(len(values)), pa.int64())], names=["_kafka_raw", "_kafka_offset"]
    )
    view = struct_of(text_of(schema))
    decoder = AvroDecoder(text_of(schema), registry({1: schema}))
    [out] = DecodeBatches(Prepared(view, lambda: decoder), None, False, True, ("_kafka_offset",))(iter([raw]))
    out.validate(full=True)
    assert out.column(out.num_columns - 1).to_pylist() == list(range(len(values)))


def comparable(value: Any) -> Any:
    """NaN is not itself, and there are several objects for UTC."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case datetime.datetime(tzinfo=datetime.tzinfo()):
            return value.replace(tzinfo=datetime.UTC)
        case list():
            return [comparable(v) for v in value]
        case dict():
            return {k: comparable(v) for k, v in value.items()}
    return value
