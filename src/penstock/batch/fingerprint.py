"""A fingerprint of a set of positions, whatever their order.

Spark takes it of the rows it hands to a sink, while it writes them, and the ledger keeps it. `verify` takes it of what
the table holds now. Where they are equal the table holds those records and not just as many.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.record import KAFKA, PLACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Every product stays below 2^63: Spark refuses to overflow, numpy would do it silently.
_PRIME = 2_147_483_647
_BY_OFFSET, _BY_PARTITION = 1_103_515_245, 1_000_003


def of_rows(rows: DataFrame) -> Column | None:
    """An aggregate over rows, or None where they do not say where they came from."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kafka = rows.schema[KAFKA].dataType if KAFKA in rows.columns else None
    if not isinstance(kafka, StructType) or not set(PLACE) <= set(kafka.names):
        return None
    at = F.col(KAFKA)
    place = at["partition"].cast("bigint") * _BY_PARTITION + F.crc32(at["topic"])
    mixed = ((at["offset"] % _PRIME) * _BY_OFFSET + place) % _PRIME
    return F.coalesce(F.sum((mixed * mixed) % _PRIME), F.lit(0))


def of_offsets(topic: str, partition: int, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    """The part of one partition; those of several are added."""
    mixed = ((offsets % _PRIME) * _BY_OFFSET + partition * _BY_PARTITION + zlib.crc32(topic.encode())) % _PRIME
    return int(((mixed * mixed) % _PRIME).sum())


def of_offset(topic: str, partition: int, offset: int) -> int:
    return of_offsets(topic, partition, np.array([offset], dtype=np.int64))
