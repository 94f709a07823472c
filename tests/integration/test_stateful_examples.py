"""The examples with state, each run over a few records that show what it is for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from penstock.kafka import connection
from penstock.lifecycle import stream
from penstock.local.broker import Cluster
from penstock.spec.load import load
from penstock.spec.model import Pipeline
from penstock.verification.verify import verify

pytestmark = pytest.mark.usefixtures("spark")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def ran(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, *parts: dict[str, list[dict[str, Any]]]
) -> Pipeline:
    """Run an example on topics of its own, over records by topic: one run for each part. A run ends with a batch
    without records, which closes what can be closed; what comes too late is so from the next run on."""
    from penstock.kafka import admin
    from penstock.spec.topics import topics_of

    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    config = connection.connect_to(kafka.bootstrap)
    directory, mark = tmp_path / "example", tmp_path.name.replace("_", "-")
    shutil.copytree((EXAMPLES / file).parent, directory)
    spec = directory / Path(file).name
    text = spec.read_text()
    for topic in {topic for part in parts for topic in part}:
        text = text.replace(topic, f"{topic}.{mark}")
    spec.write_text(text)
    pipeline = load(spec)
    admin.create_missing(config, topics_of(pipeline))
    producer = connection.producer(config)
    for part in parts:
        for topic, rows in part.items():
            for row in rows:
                producer.produce(f"{topic}.{mark}", json.dumps(row).encode())
        assert producer.flush(30) == 0
        stream.run(pipeline, until_caught_up=True)
    report = verify(pipeline)
    assert report.complete, report.findings
    return pipeline


def delta(pipeline: Pipeline, path: str) -> list[dict[str, Any]]:
    return list(DeltaTable(str(pipeline.base / path)).to_pyarrow_table().to_pylist())


def at(minutes: int) -> str:
    return f"2026-11-01T{10 + minutes // 60:02}:{minutes % 60:02}:00Z"


def payment(number: int, minutes: int, amount: float = 20.0) -> dict[str, Any]:
    return {"payment_id": f"p-{number}", "account": "a-1", "amount": amount, "event_time": at(minutes)}


def test_fraud_windows(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [*(payment(n, 0) for n in range(6)), payment(0, 0), payment(7, 1, 11_000.0), payment(8, 2), payment(9, 40)]
    parts = ({"fraud.payments": payments} for payments in (first, [payment(11, 3)]))
    example = ran(kafka, tmp_path, monkeypatch, "fraud-windows/spec.yaml", *parts)
    minutes = {(row["window_start"].minute, row["payments"]) for row in delta(example, "lake/minutes")}
    assert minutes == {(0, 6), (1, 1), (2, 1)}
    assert [row["payment_id"] for row in delta(example, "lake/late")] == ["p-11"]


def test_fraud_windows_live(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [{"fraud.payments": [payment(n, 0)]} for n in range(2)]
    example = ran(kafka, tmp_path, monkeypatch, "fraud-windows/live.yaml", *parts)
    assert [(row["payments"], row["total"]) for row in delta(example, "lake/live")] == [(2, 40)]


def click(visitor: str, minutes: int) -> dict[str, Any]:
    return {"visitor": visitor, "page": f"/{minutes}", "at": at(minutes)}


def test_sessions(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = [click("v", 0), click("v", 20), click("w", 25), click("v", 70), click("x", 200)]
    example = ran(kafka, tmp_path, monkeypatch, "sessions/spec.yaml", {"shop.clicks": clicks})
    rows = ds.dataset(example.base / "lake/visits", partitioning="hive").to_table().to_pylist()
    assert sorted((row["visitor"], row["clicks"]) for row in rows) == [("v", 1), ("v", 2), ("w", 1)]


def test_silent_visitors(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = [click("v", 0), click("v", 20), click("w", 25), click("x", 200)]
    example = ran(kafka, tmp_path, monkeypatch, "sessions/silent.yaml", {"shop.clicks": clicks})
    rows = ds.dataset(example.base / "lake/silent", partitioning="hive").to_table().to_pylist()
    found = sorted((row["visitor"], row["clicks"], row["last_page"]) for row in rows)
    assert found == [("v", 2, "/20"), ("w", 1, "/25")]


def test_orders_and_payments(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def order(number: int, minutes: int) -> dict[str, Any]:
        return {"order_id": f"o-{number}", "amount": 10.0, "ordered_at": at(minutes)}

    def paid(number: int, minutes: int) -> dict[str, Any]:
        return {"order_id": f"o-{number}", "amount": 10.0, "paid_at": at(minutes)}

    first = {"shop.orders": [order(1, 0), order(2, 5), order(3, 240)], "shop.payments": [paid(1, 30), paid(4, 240)]}
    last = {"shop.payments": [paid(2, 31)]}
    example = ran(kafka, tmp_path, monkeypatch, "orders-payments/spec.yaml", first, last)
    assert [row["order_id"] for row in delta(example, "lake/settled")] == ["o-1"]
    assert [row["order_id"] for row in delta(example, "lake/unpaid")] == ["o-2"]
    assert [row["order_id"] for row in delta(example, "lake/late_payments")] == ["o-2"]
