"""The worker end of decode: what Spark pickles, sends and gets back."""

from __future__ import annotations

import pickle
from functools import partial

import pyarrow as pa

from penstock.decode.formats import Prepared
from penstock.decode.json import JsonDecoder
from penstock.decode.worker import DecodeBatches
from penstock.record import ERROR
from penstock.spec.types import Member, Scalar, Struct

STRUCT = Struct((Member("a", Scalar("int")), Member("b", Scalar("string"))))
ERROR_TYPE = pa.struct([("class", pa.string()), ("reason", pa.string())])


def batches_of(*passed_on: str) -> DecodeBatches:
    return DecodeBatches(Prepared(STRUCT, partial(JsonDecoder, STRUCT)), None, False, False, passed_on)


def raw(*values: bytes | None, first_offset: int = 0) -> pa.RecordBatch:
    offsets = pa.array(range(first_offset, first_offset + len(values)), pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), offsets], names=["_kafka_raw", "_kafka_offset"])


def test_batches_of_a_task_come_back_in_order_with_errors_beside_their_rows() -> None:
    decode = batches_of("_kafka_offset")
    first, second = decode(iter([raw(b'{"a":1}', b"junk", first_offset=7), raw(b'{"b":"x"}', first_offset=9)]))
    assert first.schema.names == ["a", "b", ERROR, "_kafka_offset"]
    assert first.column("a").to_pylist() == [1, None]
    assert [error and error["class"] for error in first.column(ERROR).to_pylist()] == [None, "malformed"]
    assert first.column("_kafka_offset").to_pylist() == [7, 8]
    assert second.column("b").to_pylist() == ["x"]


def test_every_batch_has_the_same_schema_with_or_without_failures() -> None:
    decode = batches_of("_kafka_offset")
    batches = list(decode(iter([raw(b"{}"), raw(b"junk"), raw(), raw(None)])))
    assert {batch.schema for batch in batches} == {batches[0].schema}
    assert batches[0].schema.field(ERROR).type == ERROR_TYPE
    assert [batch.num_rows for batch in batches] == [1, 1, 0, 1]


def test_decode_survives_the_pickle_that_takes_it_to_the_workers() -> None:
    decode = pickle.loads(pickle.dumps(batches_of()))
    [out] = decode(iter([raw(b'{"a":5,"b":"y"}')]))
    assert out.to_pylist() == [{"a": 5, "b": "y", ERROR: None}]


def test_task_without_a_batch_makes_none() -> None:
    assert list(batches_of()(iter([]))) == []
