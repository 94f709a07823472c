"""Parquet files as pyarrow sees them: how many rows, and which records they were made of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.record import PLACE

SPARK_COLUMNS = (
    b"org.apache.spark.sql.parquet.row.metadata"  # where Spark keeps the columns in a file, and looks for them
)


def rows_in(files: Iterable[Path]) -> int:
    """As the files themselves say."""
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(file).num_rows) for file in files)


def positions_in(files: Iterable[Path], column: str) -> dict[tuple[str, int], list[int]] | None:
    """Offsets per topic and partition, with repetitions; None when some rows do not say where they came from."""
    import pyarrow.parquet as pq

    found: dict[tuple[str, int], list[int]] = {}
    for path in files:
        with pq.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                return None
            for batch in file.iter_batches(columns=[f"{column}.{name}" for name in PLACE]):
                for at in batch.column(0).to_pylist():
                    found.setdefault((at["topic"], at["partition"]), []).append(at["offset"])
    return found
