"""Each cause is brought about on real servers; doctor must name it, and must name no other.

The results are kept (`tests/doctor_score.py`): precision and recall in docs/doctor.md come from them. A cap that is too
high takes three batches of more than two minutes: that scenario runs with PENSTOCK_CHAOS_ROUNDS=15 only.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from jsonschema import Draft202012Validator
from tests.crash.driver import ROUNDS
from tests.doctor_score import named
from tests.observe_documents import DOCTOR
from tests.payments import Heard, Payments, good

from penstock.checkpoint.home import Home
from penstock.deadletters.browse import Wanted
from penstock.doctor.facts import Facts, Finding
from penstock.doctor.gather import examined
from penstock.errors import OffsetsVanished, RuleStopped
from penstock.kafka import connection
from penstock.lifecycle import stream
from penstock.lifecycle.replay import run as replay
from penstock.local.postgres import LocalPostgres
from penstock.spec.model import Pipeline
from penstock.watch import StopRequest

pytestmark = pytest.mark.usefixtures("spark")
SLEEPING = "select *, java_method('java.lang.Thread', 'sleep', 8L) as slept from payments"


def causes(payments: Payments) -> list[str]:
    return [finding.cause for finding in examined(payments.pipeline)[1]]


def while_it_runs(payments: Payments, batch: int) -> list[str]:
    """The causes named after a batch, with the pipeline running; it is then stopped."""
    stop, seen = StopRequest(), list[list[str]]()

    class Looking(Heard):
        def batch_done(self, entry: Any, seconds: float) -> None:
            if entry.batch == batch + 1:  # now the event log knows of the one before
                seen.append(causes(payments))
                stop.ask()

    stream.run(payments.pipeline, watch=Looking(), stop=stop)
    return seen[0]


def send_to(payments: Payments, partition: int, count: int, at_ms: int | None = None) -> None:
    producer = connection.producer(payments.config)
    for number in range(count):
        stamp = {} if at_ms is None else {"timestamp": at_ms}
        producer.produce(payments.topic, good(number), partition=partition, **stamp)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_healthy_pipeline_has_nothing_wrong(payments: Payments) -> None:
    payments.produce(300)
    payments.run()
    done = payments.cli("doctor", str(payments.file))
    assert "payments: not running, caught up" in done.stdout
    assert done.stdout.endswith("nothing is wrong\n")
    named([], causes(payments))
    (payments.home / "spark" / "metadata").unlink()
    named(["checkpoint-damaged"], causes(payments))


def test_not_running(payments: Payments) -> None:
    payments.produce(300)
    named(["never-ran"], causes(payments))
    payments.run()
    payments.produce(200, seed=8)
    named(["between-runs"], causes(payments))
    stop = StopRequest()
    stop.ask()
    stream.run(payments.pipeline, until_caught_up=True, stop=stop)
    done = payments.cli("doctor", str(payments.file), "--json", expect=2)
    told = json.loads(done.stdout)
    Draft202012Validator(DOCTOR).validate(told)
    named(["not-running"], [finding["cause"] for finding in told["findings"]])
    assert {verdict["verdict"] for verdict in told["verdicts"]} == {"STOP"}
    page = payments.cli("doctor", str(payments.file), expect=2).stdout
    assert "critical[not-running]\n  nothing runs this pipeline, and records wait\n" in page
    assert f"    fix: penstock run {payments.file}\n" in page


def test_stuck_batch(payments: Payments) -> None:
    payments.spec["contract"]["payments"] = [{"name": "positive", "rule": "amount > 0", "otherwise": "stop"}]
    payments.send(good(1, amount=-1))
    for _ in range(2):
        with pytest.raises(RuleStopped):
            payments.run()
    named(["stuck-batch"], causes(payments))


def test_records_that_die(payments: Payments) -> None:
    payments.send(*(b"{" for _ in range(30)), *(good(n, amount=-1) for n in range(5)), *(good(n) for n in range(65)))
    payments.run()
    named(["dead-letters"], causes(payments))
    page = payments.cli("doctor", str(payments.file), expect=1).stdout
    assert "warning[dead-letters]\n  35.0% of records are dead letters\n" in page
    assert "- 30 × decode, malformed: " in page
    assert f"fix: penstock dlq stats {payments.file}" in page
    payments.spec["contract"] = {}
    replay.run(payments.pipeline, Wanted())
    [found] = examined(payments.pipeline)[1]
    assert found.facts["dead"] == 30  # the others are home


def test_offsets_that_expired_unread(payments: Payments) -> None:
    send_to(payments, 0, 1)
    payments.run()
    send_to(payments, 0, 10)
    payments.expire(6)
    with pytest.raises(OffsetsVanished):
        payments.run()
    named(["offsets-expired"], causes(payments))


def test_retention_that_is_about_to_overtake(payments: Payments) -> None:
    payments.create(topic := f"{payments.topic}-short", 1, **{"retention.ms": "3600000"})
    payments.spec["source"]["topics"] = {topic: payments.spec["source"]["topics"].pop(payments.topic)}
    payments.topic = topic
    payments.create(f"{topic}.DLT")
    send_to(payments, 0, 1)
    payments.run()
    send_to(payments, 0, 5, at_ms=round((time.time() - 2_400) * 1000))
    findings = examined(payments.pipeline)[1]
    named(["retention-overtakes", "between-runs"], [finding.cause for finding in findings])
    assert findings[0].what == "first loss in 20 min"


def test_registry_that_is_down(payments: Payments) -> None:
    payments.spec["registry"] = {"url": "http://127.0.0.1:9", "timeout": "1s", "wait": "1s"}
    payments.produce(100)
    payments.run()
    named(["registry-down"], causes(payments))


def test_cap_that_is_too_low(payments: Payments) -> None:
    payments.spec["rate"]["max_offsets"] = 30
    payments.produce(1_000)
    named(["cap-too-low"], while_it_runs(payments, batch=3))
    nobody_is_silent_right_after_a_start(payments)


def nobody_is_silent_right_after_a_start(payments: Payments) -> None:
    """Though nothing was committed for longer than the commits before took together."""
    commits = [datetime.fromisoformat(entry.time) for entry in payments.entries()]
    time.sleep((commits[-1] - commits[0]).total_seconds() + 1)
    stop, seen = StopRequest(), list[tuple[Facts, list[Finding]]]()

    class Looking(Heard):
        def started(self, pipeline: Pipeline, home: Home) -> None:
            seen.append(examined(pipeline))
            stop.ask()

    stream.run(payments.pipeline, watch=Looking(), stop=stop)
    [(facts, findings)] = seen
    assert facts.running
    assert facts.lag.total
    assert "STOP" not in facts.verdicts.values()
    named(["cap-too-low"], [finding.cause for finding in findings])


def test_target_that_a_batch_of_no_size_can_meet(payments: Payments) -> None:
    payments.spec["rate"] = {"max_offsets": 100, "target_batch": "100ms"}
    for partition in range(3):
        send_to(payments, partition, 10_000, at_ms=round((time.time() - 3_600) * 1000))
    named(["target-below-overhead"], while_it_runs(payments, batch=5))


@pytest.mark.skipif(ROUNDS == 1, reason="takes nine minutes")
@pytest.mark.timeout(1_200)
def test_cap_that_is_too_high(payments: Payments) -> None:
    payments.spec["transform"][0]["sql"] = SLEEPING.replace("8L", "3300L")
    payments.spec["sinks"]["lake"]["delta"] = {"path": "lake"}
    payments.spec["rate"]["max_offsets"] = 60
    for partition in range(3):
        send_to(payments, partition, 90, at_ms=round((time.time() - 3_600) * 1000))
    named(["cap-too-high"], while_it_runs(payments, batch=2))


def test_more_input_than_capacity(payments: Payments) -> None:
    payments.spec["transform"][0]["sql"] = SLEEPING
    payments.spec["sinks"]["lake"]["delta"] = {"path": "lake"}
    payments.spec["rate"]["max_offsets"] = 300
    payments.produce(30_000)
    named(["input-above-capacity"], while_it_runs(payments, batch=0))


def test_sink_that_has_become_slow(payments: Payments, postgres: LocalPostgres) -> None:
    url, table = postgres.up(), f"slow_{payments.topic.replace('-', '_')}"
    upsert = {"key": ["payment_id"]}
    payments.spec["sinks"] = {"db": {"from": "payments", "postgres": {"url": url, "table": table, "upsert": upsert}}}
    payments.spec["transform"] = []
    payments.spec["rate"]["max_offsets"] = 50
    payments.produce(250)
    payments.run()
    named([], causes(payments))
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "create or replace function doze() returns trigger language plpgsql as "
            "$$ begin perform pg_sleep(0.1); return new; end $$"
        )
        database.execute(f"create trigger doze before insert on {table} for each row execute function doze()")
    payments.produce(200, seed=8)  # three warm batches, after the first
    payments.run()
    named(["slow-sink"], causes(payments))


def test_hot_partition(payments: Payments) -> None:
    for partition, count in enumerate((20_000, 50, 50)):
        send_to(payments, partition, count)
    payments.spec["rate"]["max_offsets"] = 50_000
    payments.run()
    findings = examined(payments.pipeline)[1]
    named(["hot-partition"], [finding.cause for finding in findings])
    assert findings[0].facts["partition"] == 0


def test_small_files(payments: Payments) -> None:
    payments.produce(50)
    payments.run()
    table = DeltaTable(str(payments.directory / "lake"))
    row = pa.table({"payment_id": ["x"], "day": [datetime.now(UTC).date()]})
    for _ in range(200):
        write_deltalake(table, row, mode="append", schema_mode="merge")
    named(["small-files"], causes(payments))
