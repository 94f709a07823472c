"""What every decoder returns: typed columns and, for each record that failed, an error. Failures are data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

REASON_LIMIT = 500  # characters; a reason is for reading, and a record of 1 MB must not become a reason of 1 MB


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one record could not be decoded: a class that statistics group by, and a reason for people."""

    error_class: str
    reason: str


@dataclass(slots=True)
class Decoded:
    """`columns` has one row per record, all null where `failures` has an entry for that row."""

    columns: list[pa.Array]
    failures: dict[int, Failure] = field(default_factory=dict)
    schema_ids: pa.Array | None = None  # int32, null where a record names none; for formats that carry one


class Decoder(Protocol):
    """One format. Called once per Arrow batch, in a Python worker; any bytes are accepted, none raise.

    Only RegistryUnreachable may be raised: it says that nothing is known about the records, and the batch runs again.
    """

    def __call__(self, values: pa.Array) -> Decoded: ...


def shortened(text: str, limit: int = REASON_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
