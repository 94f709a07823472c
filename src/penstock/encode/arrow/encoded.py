"""What every encoder takes and returns, and how it tells which values do not fit. Failures are data here too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.record import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    MISSING_FIELD,
    OUT_OF_RANGE,
    Failure,
    quoted,
    shortened,
)

Numbers = npt.NDArray[Any]
Reason = str | Callable[[int], str]
"""The text, or a function from a position to the text."""

VALUE_LIMIT = 80  # characters of the offending value that a reason shows


@dataclass(slots=True)
class Encoded:
    """`values` has one row per record: its bytes, or null where `failures` has an entry for that row."""

    values: pa.Array  # binary
    failures: dict[int, Failure] = field(default_factory=dict)


class Encoder(Protocol):
    """One format. Called once per Arrow batch, in a Python worker, with the fields of the records as columns by name.

    Pickles. A row that does not fit the schema is a failure with a reason; all other rows are encoded. It never raises
    for data; made with columns that can never fit, it raises ColumnsMistake.
    """

    def __call__(self, columns: pa.RecordBatch) -> Encoded: ...


class ColumnsMistake(ValueError):
    """The columns cannot be written with the schema, whatever the rows are: which fields, and why, all of them."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Places:
    """The values of one column on their way out, and the rows they belong to: a row has one, or as many as a list in it
    has items. A row that fails is written down once, with its first reason. Its values are written all the same, as
    whatever is harmless, so that its neighbours need not stop; `finished` drops them."""

    def __init__(self, rows: Numbers, failures: dict[int, Failure]) -> None:
        self.rows = rows
        self.failures = failures
        self.outer: Places | None = None
        self.outer_index: Numbers = rows
        self.ordinals: Numbers | None = None  # which item of its list a place is

    @classmethod
    def of_rows(cls, count: int) -> Places:
        return cls(np.arange(count), {})

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, index: Numbers) -> Places:
        part = Places(self.rows[index], self.failures)
        part.outer, part.outer_index = self, index
        return part

    def items(self, owners: Numbers, ordinals: Numbers | None) -> Places:
        """The items of lists, or without ordinals the entries of maps: a key is data, which would part statistics."""
        items = self.part(owners)
        items.ordinals = ordinals
        return items

    def fail(self, where: Numbers, path: str, error_class: str, reason: Reason) -> None:
        for i in np.flatnonzero(where).tolist():
            row = int(self.rows[i])
            if row not in self.failures:
                text = reason if isinstance(reason, str) else reason(i)
                self.failures[row] = Failure(error_class, shortened(f"{self._placed(path, i)}: {text}"))

    def fail_nulls(self, column: pa.Array, path: str, reason: str = "required, but null") -> None:
        if column.null_count:
            self.fail(column.is_null().to_numpy(zero_copy_only=False), path, MISSING_FIELD, reason)

    def fail_days(self, days: Numbers, path: str) -> None:
        outside = (days < FIRST_DAY) | (days > LAST_DAY)
        if outside.any():
            self.fail(outside, path, OUT_OF_RANGE, lambda i: f"{int(days[i])} is not a date in the years 1 to 9999")

    def fail_times(self, times: Numbers, path: str) -> None:
        """Of microseconds."""
        outside = (times < FIRST_MICROSECOND) | (times > LAST_MICROSECOND)
        if outside.any():
            self.fail(outside, path, OUT_OF_RANGE, lambda i: f"{int(times[i])} us is not a time in the years 1 to 9999")

    def _placed(self, path: str, i: int) -> str:
        """`tags[].name` as `tags[2].name`."""
        ordinals: list[int] = []
        places: Places | None = self
        while places is not None and "[]" in path:
            if places.ordinals is not None:
                ordinals.append(int(places.ordinals[i]))
            i = int(places.outer_index[i])
            places = places.outer
        for ordinal in reversed(ordinals):
            path = path.replace("[]", f"[{ordinal}]", 1)
        return path or "the record"


def shown(value: object) -> str:
    """A value in a reason: text in quotes, bytes as hexadecimal digits."""
    text = value.hex() if isinstance(value, bytes) else quoted(value) if isinstance(value, str) else str(value)
    return shortened(text, VALUE_LIMIT)


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
