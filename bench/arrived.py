"""What a sink holds after a run, counted by something that is neither Spark nor the system that wrote it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.order import Order
from bench.shapes import PARTITIONS
from penstock.kafka import connection, consume


@dataclass(frozen=True)
class Arrived:
    rows: int
    times: int | None = None  # of upserts, as in `shapes.Produced`


def arrived(order: Order) -> Arrived:
    kind = order.work.split("-")[0]
    if kind == "postgres":
        return _postgres(order)
    if kind == "kafka":
        records = consume.visible(connection.connect_to(order.bootstrap), order.out, PARTITIONS)
        return Arrived(sum(1 for _ in records))
    if kind == "iceberg":
        return Arrived(_iceberg(order.iceberg / "metadata"))
    if kind == "parquet":
        return Arrived(_parquet(order.lake))
    return _delta(order.lake, with_times=order.work.endswith("upsert"))


def _delta(path: Path, *, with_times: bool) -> Arrived:
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    data: Any = DeltaTable(path).to_pyarrow_dataset()
    if not with_times:
        return Arrived(data.count_rows())
    moments = data.to_table(columns=["event_time"]).column("event_time").cast(pa.timestamp("ms", "UTC"))
    return Arrived(len(moments), pc.sum(moments.cast("int64")).as_py() or 0)


def _parquet(path: Path) -> int:
    """As readers do: names that begin with a dot or an underscore are not looked at."""
    import pyarrow.parquet as pq

    files = [
        file
        for file in path.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)


def _iceberg(metadata: Path) -> int:
    newest = max(metadata.glob("v*.metadata.json"), key=lambda file: int(file.name[1:].split(".")[0]))
    table = json.loads(newest.read_text())
    current = next(s for s in table["snapshots"] if s["snapshot-id"] == table["current-snapshot-id"])
    return int(current["summary"]["total-records"])


def _postgres(order: Order) -> Arrived:
    import psycopg
    from psycopg import sql

    counted = sql.SQL("select count(*), sum(round(extract(epoch from event_time) * 1000))::bigint from {}")
    with psycopg.connect(order.postgres) as database:
        rows, times = database.execute(counted.format(sql.Identifier(order.table))).fetchone() or (0, None)
    return Arrived(rows, times)
