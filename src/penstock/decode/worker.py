"""The Python-worker end of decode: from Arrow batches of raw records to typed columns plus `_error`.

`mapInArrow` pickles `DecodeBatches` to the workers; the decoders themselves are made there, once per task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.decode.arrow.decoded import Decoded
from penstock.decode.formats import Prepared
from penstock.record import DELETED, ERROR, KAFKA, KEY, NULL_VALUE, OF_KEY, Failure
from penstock.workers import forget_archives

RAW_VALUE, RAW_KEY, SCHEMA_ID = "_kafka_raw", "_kafka_raw_key", "_kafka_schema_id"
_VALUE = f"{KAFKA}_value"  # is there as what is decoded, and travels once
_ERROR_TYPE = pa.struct([("class", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True)
class DecodeBatches:
    """Called by Spark with the batches of one task, of the columns `_kafka_raw`, `_kafka_raw_key` where there is a key
    to decode, and those of `passed_on`, which go through untouched."""

    value: Prepared
    key: Prepared | None
    deletes: bool  # a null value is a delete
    with_ids: bool  # the schema id of each record is wanted, for dead letters
    passed_on: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        decode = self.value.make()
        decode_key = self.key.make() if self.key else None
        for batch in batches:
            decoded = decode(batch.column(RAW_VALUE))
            columns = {m.name: c for m, c in zip(self.value.struct.members, decoded.columns, strict=True)}
            failures = decoded.failures
            if self.deletes:
                failures = {i: f for i, f in failures.items() if f.error_class != NULL_VALUE}
            if decode_key is not None:
                of_key = decode_key(batch.column(RAW_KEY))
                columns[KEY] = self._key_column(of_key)
                failures = {**_of_key(of_key.failures), **failures}
            if self.deletes:
                columns[DELETED] = batch.column(RAW_VALUE).is_null()
            columns[ERROR] = _errors(failures, batch.num_rows)
            if self.with_ids:
                ids = decoded.schema_ids
                columns[SCHEMA_ID] = pa.nulls(batch.num_rows, pa.int32()) if ids is None else ids
            columns |= {name: batch.column(RAW_VALUE if name == _VALUE else name) for name in self.passed_on}
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _key_column(self, decoded: Decoded) -> pa.Array:
        """A key of one column is that column; one with fields is a struct, null where there is no key."""
        assert self.key is not None
        if self.key.is_scalar:
            return decoded.columns[0]
        names = [m.name for m in self.key.struct.members]
        rows = len(decoded.columns[0]) if decoded.columns else 0
        return pa.StructArray.from_arrays(
            decoded.columns, names, mask=pa.array([i in decoded.failures for i in range(rows)])
        )


def _of_key(failures: dict[int, Failure]) -> dict[int, Failure]:
    """No key is no failure; any other is one of the record."""
    return {
        i: replace(failure, reason=f"{OF_KEY}{failure.reason}")
        for i, failure in failures.items()
        if failure.error_class != NULL_VALUE
    }


def _errors(failures: dict[int, Failure], rows: int) -> pa.Array:
    if not failures:
        return pa.nulls(rows, _ERROR_TYPE)
    entries: list[dict[str, str] | None] = [None] * rows
    for i, failure in failures.items():
        entries[i] = {"class": failure.error_class, "reason": failure.reason}
    return pa.array(entries, _ERROR_TYPE)
