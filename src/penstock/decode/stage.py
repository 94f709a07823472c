"""Decode as a step of the plan: raw Kafka rows in, typed columns plus `_kafka` and `_error` out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock import record
from penstock.decode.formats import Prepared
from penstock.decode.worker import RAW_KEY, RAW_VALUE, SCHEMA_ID, DecodeBatches
from penstock.spec.source import Read
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Through = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Wrap = Callable[[DecodeBatches, tuple[str, ...]], Through]
_DDL = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "header_map": "map<string,binary>",
}
# Where Spark's Kafka source has another name than we have, or none.
EXPRESSION = {
    "timestamp_type": "timestampType",
    "header_map": "map_from_arrays(array_distinct(headers.key), transform(array_distinct(headers.key), "
    "name -> element_at(filter(headers, header -> header.key = name), -1).value))",
}


@dataclass(frozen=True)
class Decode:
    """How the records of one view are decoded; `topic` is known when the view has just one."""

    topic: str | None
    read: Read
    value: Prepared
    key: Prepared | None

    def rows(self, raw: DataFrame, *, with_raw: bool = False, wrapped: Wrap | None = None) -> DataFrame:
        """Typed columns, `_kafka` and `_error`. A record's own bytes come along for dead letters (`with_raw`) or when
        the spec asks for them (`kafka_columns`).

        `wrapped` is put around what decodes in the worker: it sees the records with their bytes, and passes on the
        columns it is given the names of."""
        from pyspark.sql import functions as F

        sent, worker = self.handed(raw, with_raw=with_raw or wrapped is not None)
        inside = self._inside(with_raw=with_raw)
        schema = [
            self.value.struct.columns(),
            *([f"{record.KEY} {self._key_type()}"] if self.key else []),
            *([f"{record.DELETED} boolean"] if self._deletes else []),
            f"{record.ERROR} struct<class:string,reason:string>",
            *([f"{SCHEMA_ID} int"] if with_raw else []),
            *(f"{column} {_DDL[name]}" for name, column in inside.items()),
        ]
        through: Through = worker
        if wrapped is not None:
            through = wrapped(worker, (*self._fields(), record.ERROR, *inside.values()))
        decoded = sent.mapInArrow(through, ", ".join(schema))
        kept: list[Column] = [F.col(quoted(name)) for name in self._fields()]
        origin = [F.lit(self.topic).alias("topic")] if self.topic is not None else []
        origin += [F.col(column).alias(name) for name, column in inside.items()]
        origin += [F.col(SCHEMA_ID).alias("schema_id")] if with_raw else []
        return decoded.select(*kept, F.struct(*origin).alias(record.KAFKA), record.ERROR)

    def handed(self, raw: DataFrame, *, with_raw: bool = False) -> tuple[DataFrame, DecodeBatches]:
        """What travels to the Python worker, only the columns somebody needs, and what decodes it there."""
        from pyspark.sql import functions as F

        inside = self._inside(with_raw=with_raw)
        sent = raw.select(
            F.col("value").alias(RAW_VALUE),
            *([F.col("key").alias(RAW_KEY)] if self.key else []),
            *(F.expr(EXPRESSION.get(name, name)).alias(at) for name, at in inside.items() if name != "value"),
        )
        return sent, self.worker(with_raw=with_raw)

    def worker(self, *, with_raw: bool = False) -> DecodeBatches:
        inside = self._inside(with_raw=with_raw)
        return DecodeBatches(self.value, self.key, self._deletes, with_raw, tuple(inside.values()))

    def _fields(self) -> list[str]:
        names = [member.name for member in self.value.struct.members]
        return [*names, *([record.KEY] if self.key else []), *([record.DELETED] if self._deletes else [])]

    def _inside(self, *, with_raw: bool) -> dict[str, str]:
        """Columns of `_kafka`, and their names on the way. No field begins with `_kafka_` (`record.reserved`)."""
        told = record.ORIGIN[1:] if self.topic is not None else record.ORIGIN
        wanted = (*told, *(record.ON_REQUEST if with_raw else ()), *self.read.kafka_columns)
        return {name: f"{record.KAFKA}_{name}" for name in dict.fromkeys(wanted)}

    @property
    def _deletes(self) -> bool:
        return self.read.value.tombstones == "delete"

    def _key_type(self) -> str:
        assert self.key is not None
        if self.key.is_scalar:
            return self.key.struct.members[0].type.ddl()
        return self.key.struct.ddl()
