"""A pipeline that keeps state, killed in the middle of batches: what it wrote is what the oracle says, once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from penstock.kafka.consume import visible
from penstock.local.broker import Cluster
from tests.crash.driver import ROUNDS, Driver
from tests.stateful import WINDOW, Event, Stream, seconds, windows

SHORT = ["mid-produce:2:driver", "after-sinks:3"]
DEATHS = [
    ["before-sinks:1", "mid-produce:2:driver", "after-sinks:3"],
    ["during-sinks:1", "after-commit:2:driver", "after-ledger:3"],
    ["after-ledger:1", "after-offsets:2:driver", "before-sinks:4"],
]


@pytest.mark.parametrize("deaths", DEATHS if ROUNDS > 1 else [SHORT])
@pytest.mark.usefixtures("spark")
def test_windows_into_delta_and_kafka_are_the_oracles_whatever_dies(
    kafka: Cluster, tmp_path: Path, deaths: list[str]
) -> None:
    stream = Stream.make(kafka.bootstrap, tmp_path, [{"view": "counts", "window": WINDOW}])
    payments = stream.payments
    out = f"{payments.topic}.counts"
    payments.create(out, 2)
    payments.spec["sinks"] = {
        "lake": {"from": "counts", "delta": {"path": "lake"}},
        "topic": {"from": "counts", "kafka": {"topic": out, "key": {"format": "string", "column": "key"}}},
        "late": {"from": "counts_late", "delta": {"path": "late"}},
    }
    # Four records a batch. From the third on every batch closes windows, and from the fourth on has one that is late.
    times = [t for n in range(2 * len(deaths)) for t in (n * 150, n * 150 + 20, n * 150 + 70, max(0, (n - 3) * 150))]
    stream.feed(Event("ab"[n % 2], at, n) for n, at in enumerate(times))
    driver = Driver(payments)
    for death in deaths:
        driver.dies_at(death)
    driver.taken_over()
    expected, late, still_open = windows(stream.batches(), 60, 60, 60)
    assert len(expected) > 6
    assert sum(late) > 0
    table = Counter((seconds(r["window_start"]), r["key"], r["n"]) for r in payments.rows())
    assert table == Counter((start, key, n) for (start, key), n in expected.items())
    sent = [json.loads(message.value() or b"") for message in visible(payments.config, out, 2)]
    found = Counter((seconds(datetime.fromisoformat(r["window_start"])), r["key"], r["n"]) for r in sent)
    assert found == table
    report = payments.verify()
    assert report.complete, report.findings
    assert report.late == {"counts": sum(late)}
    assert report.held == {"counts": still_open}
