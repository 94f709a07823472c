"""A start that is refused leaves `spec.json` alone: `plan` and `checkpoint diff` compare with what has been run."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.alerts import Alerts, payment
from tests.payments import Payments, good

from penstock import failpoint
from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.deadletters.browse import Wanted
from penstock.errors import NotInRealTime, PenstockError
from penstock.lifecycle import backfill
from penstock.lifecycle.changes import against_checkpoint
from penstock.lifecycle.replay import run as replay
from penstock.local.broker import Cluster

pytestmark = pytest.mark.usefixtures("spark")


def unresolved(spec: dict[str, Any]) -> None:
    spec["transform"][0]["sql"] = "select nothing_like_it from payments"


def unwritable(spec: dict[str, Any]) -> None:
    spec["sinks"]["more"] = {"from": "settled", "delta": {"path": "payments.yaml/lake"}}


def column_missing(spec: dict[str, Any]) -> None:
    spec["sinks"]["more"] = {"from": "settled", "delta": {"path": "more", "partition_by": ["nothing_like_it"]}}


def condition(spec: dict[str, Any]) -> None:
    spec["sinks"]["lake"]["where"] = "nothing_like_it > 1"


def moved(spec: dict[str, Any]) -> None:
    spec["sinks"]["lake"]["delta"]["path"] = "elsewhere"


def renamed(spec: dict[str, Any]) -> None:
    spec.update(name="another", checkpoint=".penstock/payments")


def topic_gone(spec: dict[str, Any]) -> None:
    spec["source"]["topics"]["no-such-topic"] = {"value": {"format": "string"}}


def real_time(spec: dict[str, Any]) -> None:
    topic = next(iter(spec["source"]["topics"]))
    out = {"kafka": {"topic": f"{topic}.DLT-out", "guarantee": "at-least-once"}, "from": "settled"}
    spec.update(trigger="real-time", rate={}, sinks={"out": out})


def reference_gone(spec: dict[str, Any]) -> None:
    spec["references"] = {"rates": {"file": {"path": "no-such-file", "format": "parquet"}}}
    spec["transform"].append({"view": "rated", "sql": "select * from rates"})


WAYS = [unresolved, unwritable, column_missing, condition, moved, renamed, topic_gone, real_time, reference_gone]


def test_a_refused_start_leaves_what_is_remembered_byte_for_byte(payments: Payments) -> None:
    payments.send(good(1))
    payments.run()
    file, spec = payments.home / "spec.json", payments.spec
    was = file.read_bytes()
    for way in WAYS:
        payments.spec = {**deepcopy(spec), "rate": {"max_offsets": 7}}
        way(payments.spec)
        with pytest.raises(PenstockError):
            payments.run()
        assert file.read_bytes() == was, way.__name__
    payments.spec = {**deepcopy(spec), "rate": {"max_offsets": 7}}
    assert [change.name for change in against_checkpoint(payments.pipeline)[1]] == ["rate.max_offsets"]
    payments.run()  # nothing is new in the topic, and the run ends well
    assert file.read_bytes() != was
    assert against_checkpoint(payments.pipeline)[1] == []


def test_a_batch_that_begins_is_remembered_before_anything_of_it_is_written(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.send(good(1))
    payments.run()
    payments.send(good(2))
    payments.spec["transform"].append({"view": "more", "sql": "select * from settled"})
    monkeypatch.setattr(failpoint, "reach", _fails)
    with pytest.raises(PenstockError):
        payments.run()
    assert remembered.read(Home.of(payments.pipeline)) == remembered.of(payments.pipeline)


def test_a_refused_backfill_or_replay_leaves_what_is_remembered(payments: Payments) -> None:
    payments.send(good(1), b"{")
    payments.run()
    file = payments.home / "spec.json"
    was = file.read_bytes()
    unresolved(payments.spec)
    for start in (_backfill, _replay):
        with pytest.raises(PenstockError):
            start(payments)
        assert file.read_bytes() == was


def test_a_refused_start_in_real_time_leaves_what_is_remembered(kafka: Cluster, tmp_path: Path) -> None:
    alerts = Alerts(kafka.bootstrap, tmp_path)
    with alerts.running():
        alerts.send(payment(1))
        alerts.until(lambda: len(alerts.read(alerts.out)) == 1)
    file = alerts.directory / ".penstock" / "alerts" / "spec.json"
    was = file.read_bytes()
    alerts.spec["transform"][0]["sql"] = "select * from payments order by amount"
    alerts.spec["sinks"]["large"]["from"] = alerts.spec["transform"][0]["view"]
    refused = alerts.cli("run", str(alerts.file))
    assert refused.returncode == NotInRealTime.exit_status, refused.stderr
    assert file.read_bytes() == was


def _fails(*_: Any) -> None:
    raise RuntimeError("before anything is written")


def _backfill(payments: Payments) -> None:
    backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:0=0", f"{payments.topic}:0=1"))


def _replay(payments: Payments) -> None:
    replay.run(payments.pipeline, Wanted())
