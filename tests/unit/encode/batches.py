"""Arrow batches from rows in plain Python, as Spark hands them to an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.decode.arrow.columns import arrow_type
from penstock.encode.arrow.encoded import Encoded
from penstock.spec.types import Array, Map, Struct, Type


def batch_of(struct: Struct, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    columns = [pa.array([_arrow(m.type, row[m.name]) for row in rows], arrow_type(m.type)) for m in struct.members]
    return pa.RecordBatch.from_arrays(columns, names=[m.name for m in struct.members])


def _arrow(declared: Type, value: Any) -> Any:
    """Arrow takes a map as a list of pairs."""
    if value is None:
        return None
    match declared:
        case Array(item=item):
            return [_arrow(item, v) for v in value]
        case Map(value=inner):
            return [(k, _arrow(inner, v)) for k, v in value.items()]
        case Struct(members=members):
            return {m.name: _arrow(m.type, value[m.name]) for m in members}
    return value


def among_others(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows as a part of a longer batch: every buffer begins before them, with something else."""
    others = pa.RecordBatch.from_arrays([pa.nulls(3, column.type) for column in batch.columns], batch.schema.names)
    return pa.concat_batches([others, batch, others]).slice(3, len(batch))


def checked(encoded: Encoded) -> list[bytes | None]:
    """The values, after a look at whether they keep what every encoder promises."""
    encoded.values.validate(full=True)
    assert encoded.values.type == pa.binary()
    values = encoded.values.to_pylist()
    assert sorted(encoded.failures) == [i for i, value in enumerate(values) if value is None]
    return values
