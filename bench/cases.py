"""The cases: what is measured, and what it is held against. To add one is to add a line here.

A job is one system doing one kind of work on the records of one shape. A case compares one job of ours with others:
with what users would write instead, or with another job of ours. Jobs of one group run in turn, round by round, so
everything that is compared is measured in the same minutes of the same machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from penstock.spec import sinks

PENSTOCK = "penstock"
PLAIN = "plain PySpark"
DECODE = "decode"


@dataclass(frozen=True)
class Job:
    system: str
    work: str  # `decode`, or a sink: see `ours` and `plain`
    shape: str  # see `shapes`


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    ours: Job
    against: tuple[Job, ...]
    needs: str = ""  # a kind of sink, or `kind.option`: the case waits until the spec has it

    @property
    def available(self) -> bool:
        kind, _, option = self.needs.partition(".")
        if not kind:
            return True
        if kind not in sinks.KINDS:
            return False
        parts = get_args(sinks.Sink.model_fields[kind].annotation)
        return not option or any(option in getattr(part, "model_fields", ()) for part in parts)


def _decode_cases() -> Iterable[Case]:
    """Bad records are also held against our own good ones. There is no from_protobuf to be had (its jar is not in the
    set), so Protobuf is held against our Avro."""
    for name, shape, stock, group in (
        ("json-decode", "json", "from_json", "JSON decode"),
        ("avro-decode", "avro", "from_avro", "Avro and Protobuf decode"),
        ("avro-decode-20-ids", "avro-20-ids", "from_avro", "Avro and Protobuf decode"),
        ("protobuf-decode", "protobuf", "", "Avro and Protobuf decode"),
    ):
        good = Job(PENSTOCK, DECODE, shape)
        for bad in ("", "-bad-10", "-bad-01"):
            ours = Job(PENSTOCK, DECODE, shape + bad)
            against = [Job(stock, DECODE, shape + bad) if stock else Job(PENSTOCK, DECODE, f"avro{bad}")]
            if ours != good:
                against.append(good)
            elif shape == "avro-20-ids":
                against.append(Job(PENSTOCK, DECODE, "avro"))
            yield Case(name + bad, group, ours, tuple(against))


def _sink_case(name: str, work: str, plain: str, shape: str = "payments", group: str = "", needs: str = "") -> Case:
    return Case(name, group or name, Job(PENSTOCK, work, shape), (Job(PLAIN, plain, shape),), needs)


_ALL = (
    *_decode_cases(),
    _sink_case("json-to-delta", "delta", "delta"),
    _sink_case("json-to-delta-poison", "delta", "delta", "payments-poison"),
    _sink_case("json-to-delta-append", "delta-append", "delta-append"),
    _sink_case("json-to-parquet-append", "parquet-append", "parquet-append", needs="parquet"),
    _sink_case("json-to-parquet", "parquet", "parquet", needs="parquet"),
    _sink_case("json-to-iceberg", "iceberg", "iceberg", needs="iceberg"),
    _sink_case("kafka-at-least-once", "kafka-at-least-once", "kafka", group="Kafka to Kafka"),
    _sink_case("kafka-exactly-once-partition", "kafka-by-partition", "kafka", group="Kafka to Kafka"),
    _sink_case("kafka-exactly-once-batch", "kafka-by-batch", "kafka", group="Kafka to Kafka"),
    _sink_case("delta-upsert", "delta-upsert", "delta-upsert", "changes", needs="delta.upsert"),
    _sink_case("postgres-upsert", "postgres-upsert", "postgres-upsert", "changes", needs="postgres"),
    Case(
        "observe-overhead",
        "observe-overhead",
        Job(PENSTOCK, "delta-append", "payments"),
        (Job(PENSTOCK, "delta-append-unobserved", "payments"),),
    ),
)
CASES = {case.name: case for case in _ALL}


def grouped(cases: Iterable[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return groups


def jobs(cases: Iterable[Case]) -> list[Job]:
    """Each once, also when several cases look at it."""
    return list(dict.fromkeys(job for case in cases for job in (*case.against, case.ours)))


def label(job: Job) -> str:
    """What the column `system` says. Of ours, as a baseline: `penstock`, and the case that measures it."""
    if job.system != PENSTOCK:
        return job.system
    return f"{PENSTOCK} {next((case.name for case in _ALL if case.ours == job), job.work)}"
