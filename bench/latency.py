"""The latency of real-time mode against the same pipeline in micro-batches, record by record, in one run.

A steady 1,000 records a second go in; each carries the time it was produced at. What comes out carries the time the
broker appended it at, and in a header the record it was made of. The difference is the latency: producer, broker,
engine and broker again. Kafka counts in whole milliseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer

from bench.process import memory
from bench.report import Row, say
from penstock.kafka import admin, connection
from penstock.kafka.consume import headers_of, visible
from penstock.record import ORIGIN_HEADER
from penstock.spec.model import TopicSettings

CASE = "real-time-latency"
REAL_TIME, BATCHES = "penstock", "penstock micro-batches"
PARTITIONS = 2
_START_S = 60
_PENSTOCK = Path(sys.executable).with_name("penstock")


@dataclass(frozen=True)
class Load:
    rate: int = 1000  # records a second
    warm_s: int = 30  # not counted
    seconds: int = 60


QUICK = Load(rate=200, warm_s=3, seconds=5)


def rows(bootstrap: str, directory: Path, load: Load) -> tuple[list[Row], dict[str, list[int]]]:
    """The rows of the two systems, and every latency in milliseconds, sorted."""
    measured, peaks = {}, {}
    for system, trigger in ((REAL_TIME, "real-time"), (BATCHES, "continuous")):
        say(f"{CASE}: {system}, {load.rate} records/s for {load.seconds} s")
        measured[system], peaks[system] = _measured(bootstrap, directory / trigger, trigger, load)
    base = _share(measured[BATCHES], 0.5)
    made: list[Row] = []
    for system, found in measured.items():
        p50, p99 = _share(found, 0.5), _share(found, 0.99)
        made.append(
            {
                "case": CASE,
                "system": system,
                "records_per_s": round(len(found) / load.seconds),
                "peak_mb": round(peaks[system]),
                "ratio": round(base / max(p50, 0.5), 2),  # of the medians; below a millisecond Kafka cannot say
                "against": BATCHES,
                "records": len(found),
                "rounds": 1,
                "p50_ms": p50,
                "p99_ms": p99,
                "p100_ms": found[-1],
            }
        )
    return made, measured


def table(results: Iterable[Row]) -> str:
    lines = [CASE, f"{'system':<26} {'records/s':>10} {'peak MB':>8} {'p50 ms':>8} {'p99 ms':>8} {'most ms':>8}"]
    lines += [
        f"{r['system']:<26} {r['records_per_s']:>10,} {r['peak_mb']:>8,} {r['p50_ms']:>8} {r['p99_ms']:>8} "
        f"{r['p100_ms']:>8}"
        for r in results
    ]
    return "\n".join(lines)


def _share(found: Sequence[int], share: float) -> int:
    return found[min(len(found) - 1, int(len(found) * share))]


def _measured(bootstrap: str, directory: Path, trigger: str, load: Load) -> tuple[list[int], float]:
    config = connection.connect_to(bootstrap)
    topic, out = f"latency-{trigger}", f"latency-{trigger}-out"
    appended = {"message.timestamp.type": "LogAppendTime"}
    topics = {topic: TopicSettings(partitions=PARTITIONS), out: TopicSettings(partitions=PARTITIONS, config=appended)}
    admin.create_missing(config, {**topics, f"{topic}.DLT": TopicSettings()})
    directory.mkdir(parents=True)
    spec = directory / "spec.json"
    spec.write_text(json.dumps(_spec(bootstrap, topic, out, trigger)))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [_PENSTOCK, "run", str(spec)], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "TZ": "UTC"}
        )
    try:
        # One producer for all of it: what it needs to be let in, half a second now and then, is not the pipeline's.
        producer = Producer({**config, "linger.ms": 0, "acks": "all", "enable.idempotence": True})
        _await_first(config, producer, topic, out, process)
        _paced(producer, topic, load.rate * load.warm_s, load.rate, warm=True)
        _paced(producer, topic, load.rate * load.seconds, load.rate)
        time.sleep(5)  # what is under way arrives
        peak = memory(process.pid) / 2**20  # now, because looking at a process makes it wait
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            for each in psutil.Process(process.pid).children(recursive=True):
                each.kill()
            process.kill()
    in_order = _latencies(config, topic, out)
    part = load.rate * 10  # when the slow ones came: at the start, or all the time
    slow = (str(_share(sorted(in_order[at : at + part]), 0.99)) for at in range(0, len(in_order), part))
    say(f"p99 of each ten seconds, in ms: {', '.join(slow)}")
    found = sorted(in_order)
    if len(found) < load.rate * load.seconds:
        raise SystemExit(f"{CASE}: {load.rate * load.seconds - len(found)} records did not arrive; see {directory}")
    return found, peak


def _spec(bootstrap: str, topic: str, out: str, trigger: str) -> dict[str, object]:
    fields = {
        "id": {"type": "bigint", "required": True},
        "warm": "boolean",
        "amount": "decimal(18,2)",
        "note": "string",
    }
    return {
        "name": f"latency-{trigger}",
        "kafka": {"bootstrap": bootstrap},
        "source": {"topics": {topic: {"view": "payments", "value": {"format": "json", "schema": {"fields": fields}}}}},
        "contract": {"payments": [{"name": "positive", "rule": "amount > 0"}]},
        "transform": [{"view": "large", "sql": "select *, amount * 2 as twice from payments where amount > 1"}],
        "sinks": {"out": {"from": "large", "kafka": {"topic": out, "guarantee": "at-least-once", "origin": True}}},
        "trigger": trigger,
    }


def _value(number: int, warm: bool) -> bytes:
    fields = {"id": number, "warm": warm, "amount": f"{number % 1000 + 2}.50", "note": "x" * 80}
    return json.dumps(fields).encode()


def _await_first(
    config: dict[str, str], producer: Producer, topic: str, out: str, process: subprocess.Popen[bytes]
) -> None:
    """The engine is up when a record has come through."""
    _paced(producer, topic, 10, 100, warm=True)
    end = time.monotonic() + _START_S
    while not sum(high for _, high in admin.watermarks(config, {out: PARTITIONS}).values()):
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{CASE}: nothing arrives from {topic}; the pipeline's log is beside its spec")
        time.sleep(0.5)


def _paced(producer: Producer, topic: str, count: int, rate: int, *, warm: bool = False) -> None:
    """Send records one by one at a steady pace."""
    began = time.perf_counter()
    for number in range(count):
        ahead = began + number / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        producer.produce(topic, _value(number, warm), partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(30):
        raise SystemExit(f"{CASE}: the broker did not take every record")


def _latencies(config: dict[str, str], topic: str, out: str) -> list[int]:
    """Of every record that counts, as they were sent: when the broker appended what came out, less when it was
    produced."""
    began: Mapping[tuple[int, int], int] = {
        (message.partition() or 0, message.offset() or 0): message.timestamp()[1]
        for message in visible(config, topic, PARTITIONS)
        if b'"warm": false' in (message.value() or b"")
    }
    found: dict[tuple[int, int], int] = {}
    for message in visible(config, out, PARTITIONS):
        origin = dict(headers_of(message)).get(ORIGIN_HEADER) or b""
        _, partition, offset = origin.decode().rsplit("/", 2)
        where = int(partition), int(offset)
        if where in began:
            found.setdefault(where, message.timestamp()[1] - began[where])
    return [found[where] for where in sorted(found, key=lambda where: (began[where], where))]
