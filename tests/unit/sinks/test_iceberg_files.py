"""Iceberg's metadata, read without an engine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.handed import OTHER_QUERY, QUERY, batch

from penstock.sinks.iceberg.catalog import HadoopCatalog, JdbcCatalog
from penstock.sinks.iceberg.files import data_files, records
from penstock.sinks.iceberg.metadata import identity, state

SCHEMA = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "status", "type": "int"},
        {"name": "big", "type": ["null", "long"]},
        {"name": "yes", "type": "boolean"},
        {"name": "ratio", "type": "double"},
        {"name": "small", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "again", "type": ["null", "four"]},
        {"name": "many", "type": {"type": "array", "items": {"type": "array", "items": "string"}}},
        {"name": "named", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "string"}]}},
    ],
}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_files_are_read_as_the_reference_reader_reads_them(tmp_path: Path, codec: str) -> None:
    rows = [
        {
            "status": number - 3,
            "big": None if number % 2 else -(2**62) + number,
            "yes": bool(number % 3),
            "ratio": number / 7,
            "small": 0.5,
            "raw": b"\x00" * number,
            "four": b"abcd",
            "again": b"efgh" if number % 2 else None,
            "many": [["ü", ""], []] * number,
            "named": {"k": number},
            "inner": {"x": "y" * 1000},
        }
        for number in range(300)
    ]
    path = tmp_path / "file.avro"
    with path.open("wb") as file:
        fastavro.writer(file, SCHEMA, rows, codec=codec, sync_interval=5000)
    assert list(records(path)) == rows


def avro(path: Path, fields: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    schema = {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows)
    return f"file:{path}"


def manifests(tmp_path: Path, content: int = 0, kind: str = "PARQUET") -> str:
    file = {
        "type": "record",
        "name": "f",
        "fields": [{"name": n, "type": "string"} for n in ("file_path", "file_format")],
    }
    entries = [{"status": s, "data_file": {"file_path": f"/data/{s}", "file_format": kind}} for s in range(3)]
    manifest = avro(tmp_path / "m.avro", {"status": "int", "data_file": file}, entries)
    fields = {"manifest_path": "string", "content": "int"}
    return avro(tmp_path / "list.avro", fields, [{"manifest_path": manifest, "content": content}])


def test_files_of_a_snapshot_are_those_not_removed(tmp_path: Path) -> None:
    assert data_files(manifests(tmp_path)) == [Path("/data/0"), Path("/data/1")]


@pytest.mark.parametrize("odd", [{"content": 1}, {"kind": "ORC"}])
def test_snapshot_whose_files_do_not_tell_all_is_not_counted(tmp_path: Path, odd: dict[str, Any]) -> None:
    assert data_files(manifests(tmp_path, **odd)) is None


def snapshot(number: int, parent: int | None, **summary: str) -> dict[str, Any]:
    return {"snapshot-id": number, "parent-snapshot-id": parent, "summary": summary}


def test_only_published_batches_in_the_history_of_the_current_snapshot_count(tmp_path: Path) -> None:
    snapshots = [
        snapshot(2, 1, **{"wap.id": identity(batch(3)), "added-records": "30"}),  # its parent has expired
        snapshot(3, 2, **{"published-wap-id": identity(batch(4)), "added-records": "40"}),
        snapshot(4, 3, operation="replace"),  # somebody compacted
        snapshot(5, 4, **{"wap.id": identity(batch(5)), "added-records": "999", "penstock.rows": "50"}),
        snapshot(6, 5, **{"wap.id": identity(batch(6)), "penstock.attempt": "a", "added-records": "60"}),  # staged
    ]
    metadata = tmp_path / "db" / "t" / "metadata"
    metadata.mkdir(parents=True)
    content = {"current-snapshot-id": 5, "snapshots": snapshots, "properties": {}}
    (metadata / "v9.metadata.json").write_text("{}")
    (metadata / "v10.gz.metadata.json").write_bytes(gzip.compress(json.dumps(content).encode()))
    (metadata / "version-hint.text").write_text("9")  # behind, as after a crash
    found = state(HadoopCatalog(tmp_path), ("db", "t"))
    assert found is not None
    assert {held.batch: held.rows for held in found.held()} == {5: 50, 4: 40, 3: 30}
    assert {held.query for held in found.held()} == {QUERY}
    assert (found.rows_of(batch(6)), found.rows_of(batch(5, OTHER_QUERY)), found.staged("a")) == (None, None, 6)
    assert (found.builds_on(6, batch(5)), found.builds_on(6, batch(6))) == (True, False)
    assert state(HadoopCatalog(tmp_path), ("db", "other")) is None


def test_secrets_of_a_catalog_are_in_no_text_of_it() -> None:
    catalog = JdbcCatalog(lambda: "jdbc:postgresql://u:s3cret@h/d", Path("w"), lambda: "u", lambda: "s3cret")
    assert "s3cret" not in repr(catalog) + str(catalog.settings())
    assert catalog.secrets()["jdbc.password"] == "s3cret"
