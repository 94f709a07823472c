"""Records as Python objects, between a parser and Arrow's columns: for formats that are read record by record.

A class is made from the schema, so that msgspec checks types, ranges and required fields while it parses; what only
shows in a column (a decimal that is no number, or has too many digits) is found when the columns are built.
"""

from __future__ import annotations

import datetime
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Optional

import msgspec
import pyarrow as pa

from penstock.decode.arrow.columns import DoesNotFit, builder, transposed
from penstock.record import Failure, shortened
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

Whole = Callable[[int], Any]
"""The type of whole numbers of so many bits."""


def _bits(n: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (n - 1)), le=2 ** (n - 1) - 1)]


_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
# The last double that is rounded to the largest float: 3.4028235e38, as Java prints that float, must be one.
LARGEST_FLOAT = 3.4028235677973362e38
_PYTHON: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "float": Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)],
    "double": float,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "timestamp_ntz": Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    "binary": bytes,
}


def _python_type(declared: Type, whole: Whole) -> Any:
    match declared:
        case Scalar(epoch=str()):
            return whole(64)
        case Scalar(name=name):
            return whole(_WHOLE[name]) if name in _WHOLE else _PYTHON[name]
        case Decimal():
            return msgspec.Raw  # as it is written: Python's decimals take texts that JSON does not call numbers
        case Array(item=item):
            return list[_nullable(item, whole)]  # type: ignore[misc]  # a type made at run time
        case Map(value=value):
            return dict[str, _nullable(value, whole)]  # type: ignore[misc]
        case Struct():
            return class_of(declared, whole)
    raise AssertionError(declared)


def _nullable(declared: Type, whole: Whole) -> Any:
    python = _python_type(declared, whole)
    return python if python is msgspec.Raw else Optional[python]  # noqa: UP045  Raw takes null by itself


def class_of(struct: Struct, whole: Whole = _bits) -> type[msgspec.Struct]:
    """A class whose attributes are f0, f1, ... (any text can be a JSON name, not an attribute) under the JSON names."""
    fields: list[Any] = []
    for i, member in enumerate(struct.members):
        if member.required:
            fields.append((f"f{i}", _python_type(member.type, whole)))
        else:
            absent = msgspec.Raw(b"null") if isinstance(member.type, Decimal) else None
            fields.append((f"f{i}", _nullable(member.type, whole), absent))
    return msgspec.defstruct(
        "Record",
        fields,  # in the order of the schema: `transposed` counts on it
        rename={f"f{i}": m.name for i, m in enumerate(struct.members)},
        kw_only=True,
        gc=False,  # records live for one batch and hold no cycles
    )


@contextmanager
def no_cycles() -> Iterator[None]:
    """Keep Python from looking for cycles while a batch makes objects by the ten thousand: records hold none, and the
    search costs as much as the decoding."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


class Columns:
    """Arrow columns from records of `class_of(struct)`, None where one failed."""

    def __init__(self, struct: Struct) -> None:
        self._members = [(m.name, builder(m.type, required=m.required)) for m in struct.members]

    def build(self, records: list[Any], failures: dict[int, Failure]) -> list[pa.Array]:
        """One column per field. Records that do not fit are added to `failures`, and are null in every column."""
        while True:
            columns: list[pa.Array] = []
            refused: dict[int, Failure] = {}
            for (name, build), picked in zip(self._members, transposed(records, len(self._members)), strict=True):
                try:
                    columns.append(build(picked))
                except DoesNotFit as values:
                    for i, misfit in values.rows.items():
                        reason = f"{name}{misfit.path}: {misfit.said}"
                        refused.setdefault(i, Failure(misfit.error_class, shortened(reason)))
            if not refused:
                return columns
            failures.update(refused)
            for i in refused:
                records[i] = None
