"""The Python-worker end of decode: from Arrow batches of raw records to typed columns plus `_error`.

`mapInArrow` pickles `DecodeBatches` to the workers; the decoder itself is made there, once per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.decode.decoded import Decoder, Failure
from penstock.record import ERROR
from penstock.spec.types import Struct

_ERROR_TYPE = pa.struct([("class", pa.string()), ("reason", pa.string())])


@dataclass(frozen=True)
class DecodeBatches:
    """Called by Spark with the batches of one task. The first input column is the raw value; the columns of
    `passed_on` go through untouched."""

    struct: Struct
    make: Callable[[Struct], Decoder]
    passed_on: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode = self.make(self.struct)
        names = [*(m.name for m in self.struct.members), ERROR, *self.passed_on]
        for batch in batches:
            decoded = decode(batch.column(0))
            errors = _errors(decoded.failures, batch.num_rows)
            yield pa.RecordBatch.from_arrays(
                [*decoded.columns, errors, *(batch.column(name) for name in self.passed_on)], names=names
            )


def _errors(failures: dict[int, Failure], rows: int) -> pa.Array:
    if not failures:
        return pa.nulls(rows, _ERROR_TYPE)
    entries: list[dict[str, str] | None] = [None] * rows
    for i, failure in failures.items():
        entries[i] = {"class": failure.error_class, "reason": failure.reason}
    return pa.array(entries, _ERROR_TYPE)
