"""Values and names that mean something to SQL are data: every sink holds them as they were sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
from deltalake import DeltaTable
from psycopg.rows import dict_row
from pyspark.sql import SparkSession
from tests.committed import committed
from tests.databases import Database
from tests.handed import hand
from tests.payments import Payments

from penstock.sinks.iceberg.catalog import HadoopCatalog
from penstock.sinks.iceberg.sink import IcebergSink
from penstock.spec.types import quoted

VALUES = [
    "${env:PATH}",
    "${env:HOSTILE_UNKNOWN}",
    "${system:user.home}",
    "${spark.app.name}",
    "' OR 1=1 --",
    "\\' or true or t.id = \\'",
    "back\\slash\\",
    "`back``tick`",
    'a "quote", {1,NULL}',
    "line\nbreak\ttab",
    "%s %(x)s $1 :p ?",
    "\\N",
]
# Delta takes no blank, comma, semicolon, brace, parenthesis or equals sign in a name.
NAMES = ["it's", "ba`ck", "$dollar", "%s", "a.b", "--"]
ODD_NAMES = ["${env:PATH}", "' OR 1=1 --", "a=b, c", "};("]


def test_no_value_and_no_name_is_read_as_sql_on_its_way_into_any_sink(
    payments: Payments, db: Database, spark: SparkSession
) -> None:
    payments.create(out := f"{payments.topic}-out")
    names = [*NAMES, *ODD_NAMES]
    fields = {"id": "int", "region": "string", **dict.fromkeys(names, "string")}
    fields["inside"] = {"type": "struct", "fields": dict.fromkeys(names, "string")}  # type: ignore[assignment]
    payments.spec["source"]["topics"][payments.topic] = {
        "view": "decoded",
        "value": {"format": "json", "schema": {"fields": fields}},
    }
    plain = ", ".join(map(quoted, NAMES))
    first = f"select id, region, {plain}, _kafka from hostile"
    payments.spec["contract"] = {}
    whole = f"select {plain}, {', '.join(map(quoted, ODD_NAMES))}, id, region, inside, _kafka from decoded"
    payments.spec["transform"] = [{"view": "hostile", "sql": whole}, {"view": "tame", "sql": first}]
    by_both, iceberg = {"key": ["id", "region"]}, {"catalog": {"type": "hadoop", "warehouse": "warehouse"}}
    parts = {"partition_by": ["region"]}
    payments.spec["sinks"] = {
        "lake": {"from": "tame", "delta": {"path": "lake", **parts}},
        "newest": {"from": "tame", "delta": {"path": "newest", "upsert": by_both, **parts}},
        "files": {"from": "hostile", "parquet": {"path": "files", **parts}},
        "ice": {"from": "hostile", "iceberg": {"table": "h.rows", **parts, **iceberg, "evolve": "add-columns"}},
        "ice_newest": {"from": "hostile", "iceberg": {"table": "h.newest", "upsert": by_both, **parts, **iceberg}},
        "rows": {"from": "hostile", "postgres": {"table": f"{db.schema}.rows", "url": db.url}},
        "pg_newest": {
            "from": "hostile",
            "postgres": {"table": f"{db.schema}.newest", "url": db.url, "upsert": by_both},
        },
        "out": {"from": "hostile", "kafka": {"topic": out}},
    }

    def sent(value: str, number: int, changed: str) -> dict[str, Any]:
        inside = dict.fromkeys(names, value)
        return {"id": number, "region": value, **inside, "it's": changed, "inside": inside}

    once = [sent(value, i, "old") for i, value in enumerate(VALUES)]
    again = [sent(value, i, value) for i, value in enumerate(VALUES)]
    for records in (once, again):  # the second time every row of an upsert is there already
        payments.send(*(json.dumps(record, ensure_ascii=False).encode() for record in records))
        payments.run()
    assert payments.dead() == []

    def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [{name: value for name, value in row.items() if name in fields} for row in rows]
        return sorted(kept, key=lambda row: (row["id"], row["it's"] != "old"))

    def delta(name: str) -> list[dict[str, Any]]:
        return told(DeltaTable(str(payments.directory / name)).to_pyarrow_table().to_pylist())

    def ice(name: str) -> list[dict[str, Any]]:
        place = payments.directory / "warehouse" / "h" / name
        return told(spark.read.format("iceberg").load(str(place)).toArrow().to_pylist())

    def postgres(name: str) -> list[dict[str, Any]]:
        with psycopg.connect(db.url, row_factory=dict_row) as connection:
            return told(connection.execute(f"select * from {db.schema}.{name}").fetchall())

    both, tame = told([*once, *again]), {"id", "region", *NAMES}
    files = ds.dataset(payments.directory / "files", partitioning="hive").to_table().to_pylist()
    seen = {
        "lake": delta("lake"),
        "files": told(files),
        "ice": ice("rows"),
        "rows": postgres("rows"),
        "out": told([json.loads(each.value or b"") for each in committed(payments.bootstrap, out)]),
        "newest": delta("newest"),
        "ice_newest": ice("newest"),
        "pg_newest": postgres("newest"),
    }
    for sink, rows in seen.items():
        wanted = again if "newest" in sink else both
        if sink in ("lake", "newest"):
            wanted = [{name: value for name, value in row.items() if name in tame} for row in wanted]
        assert rows == wanted, sink
    assert payments.verify().findings == []


def test_fields_of_a_column_that_iceberg_gains_keep_their_names(spark: SparkSession, tmp_path: Path) -> None:
    inside = ", ".join(f"{quoted(name)}: string" for name in [*NAMES, *ODD_NAMES])
    sink = IcebergSink("ice", "h.gains", HadoopCatalog(tmp_path, "gains"), evolve=True)
    hand(sink, 0, spark.createDataFrame([(1,)], "id int"))
    hand(sink, 1, spark.createDataFrame([(2, VALUES[: len(NAMES + ODD_NAMES)])], f"id int, inside struct<{inside}>"))
    found = spark.read.format("iceberg").load(str(tmp_path / "h" / "gains")).toArrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "inside": None},
        {"id": 2, "inside": dict(zip([*NAMES, *ODD_NAMES], VALUES, strict=False))},
    ]
