"""Whatever the bytes: no exception, one row per record, and a row that fits the schema or a failure, nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from arrow_rows import keeps_required
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_strategies import Written, names, records, schemas, to_json

from penstock import record
from penstock.decode.arrow.columns import arrow_type
from penstock.decode.formats import Prepared
from penstock.decode.json import JsonDecoder
from penstock.decode.worker import DecodeBatches
from penstock.record import REASON_LIMIT
from penstock.spec.types import Struct

patient = settings(max_examples=100, suppress_health_check=list(HealthCheck))

CLASSES = {
    record.NULL_VALUE,
    record.EMPTY_VALUE,
    record.MALFORMED,
    record.WRONG_TYPE,
    record.OUT_OF_RANGE,
    record.MISSING_FIELD,
}

odd_numbers = st.sampled_from(
    ["1e400", "-0", "1E+999999999", "1E-999999999", "1e-41", "9" * 40, "9" * 5000, "0.1", "1e38", "-1e19", "01", "NaN"]
)
odd_text = st.sampled_from(
    ["NaN", "1_0", "9999-12-31T23:59:59.9999999Z", "0001-01-01T00:00:00+23:59", "\ud800", "\x00", "AA=", "10000-01-01"]
)
any_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), odd_text)
    | odd_numbers.map(Written),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: Any, struct: Struct) -> bytes:
    """A record that fits, with one field replaced by anything, or one byte changed, or its end cut off."""
    written, _ = draw(records(struct))
    if draw(st.booleans()):
        written[draw(st.sampled_from([m.name for m in struct.members]))] = draw(any_json)
        return to_json(written).encode("utf-8", "surrogatepass")
    raw = bytearray(to_json(written).encode())
    at = draw(st.integers(0, len(raw) - 1))
    if draw(st.booleans()):
        return bytes(raw[:at])
    raw[at] = draw(st.integers(0, 255))
    return bytes(raw)


def anything(struct: Struct) -> st.SearchStrategy[bytes | None]:
    return st.one_of(
        st.none(),
        st.binary(max_size=20),
        any_json.map(lambda v: to_json(v).encode("utf-8", "surrogatepass")),
        records(struct).map(lambda pair: to_json(pair[0]).encode()),
        damaged(struct),
    )


@patient
@given(st.data())
def test_any_bytes_give_one_row_each_that_fits_the_schema_or_is_all_null_with_a_failure(data: Any) -> None:
    struct = data.draw(schemas)
    values = data.draw(st.lists(anything(struct), max_size=6))
    decoded = JsonDecoder(struct)(pa.array(values, pa.binary()))
    assert decoded.failures.keys() <= set(range(len(values)))
    assert len(decoded.columns) == len(struct.members)
    for member, column in zip(struct.members, decoded.columns, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(member.type)
        assert len(column) == len(values)
        for i, value in enumerate(column):
            if i in decoded.failures:
                assert not value.is_valid
            else:
                assert keeps_required(member.type, member.required, value)
    for failure in decoded.failures.values():
        assert failure.error_class in CLASSES
        assert 0 < len(failure.reason) <= REASON_LIMIT
        failure.reason.encode()  # half a surrogate pair would kill the worker when the reason becomes a column


@patient
@given(st.data())
def test_any_bytes_pass_the_worker_as_a_batch_that_spark_can_take(data: Any) -> None:
    struct = data.draw(schemas)
    values = data.draw(st.lists(anything(struct), max_size=4))
    raw = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(range(len(values)), pa.int64())], names=["_kafka_raw", "_kafka_offset"]
    )
    prepared = Prepared(struct, partial(JsonDecoder, struct))
    [out] = DecodeBatches(prepared, None, False, False, ("_kafka_offset",))(iter([raw]))
    out.validate(full=True)
    assert out.schema.names == [*(m.name for m in struct.members), record.ERROR, "_kafka_offset"]
    assert out.column(out.num_columns - 1).to_pylist() == list(range(len(values)))
