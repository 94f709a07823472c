"""`checkpoint fork`: a new pipeline that begins where this one is (C3).

The new one gets what Spark writes down before its first batch, and nothing else: an id of its own, and the position to
begin at. Its ledger is empty, its first batch is number 0, and its sinks must be others: what lies before the position
is in the old ones, and what comes after it would be in both.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import Positions, SparkLog, as_json
from penstock.errors import BadArgument, CheckpointMissing
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.kafka.session import Kept
from penstock.lifecycle import preconditions
from penstock.observe.measure_lag import if_answered
from penstock.observe.noted import note
from penstock.record import OffsetRange
from penstock.source import position
from penstock.spec.model import Pipeline
from penstock.spec.references import located
from penstock.spec.sinks import Sink, target_of
from penstock.spec.steps import stateful_steps
from penstock.spec.topics import topics_of

_NOTE = "fork.json"


@dataclass(frozen=True)
class Fork:
    pipeline: str
    checkpoint: str
    query: str
    of_pipeline: str
    of_query: str
    of_batch: int | None  # the last one that the old pipeline had committed
    time: str
    begins: list[OffsetRange]  # empty ranges: where each partition begins
    anew: list[str]  # topics that the old pipeline does not read: they begin at their first offset


def fork(old: Pipeline, new: Pipeline, *, dry_run: bool = False) -> Fork:
    """The old pipeline may be running: its newest committed batch is where the new one begins."""
    home, to = Home.of(old), Home.of(new)
    preconditions.require_checkpoint(home)
    _require_another(old, new, home, to)
    if SparkLog(home.spark).stateful and stateful_steps(new.transform):
        raise BadArgument(
            f"the state of '{old.name}' cannot be forked",
            cause="the new pipeline would begin in the middle of windows, joins and keys, with nothing in them",
            next_command=f"give '{new.name}' a `start:` of its own, before the windows it has to be right about",
        )
    query, committed, at = position.steady(home, lambda: _standing(home))
    if at is None:
        raise CheckpointMissing(
            f"pipeline '{old.name}' has not begun yet",
            cause="its checkpoint has no position",
            next_command="give the new pipeline the same `start:`",
        )
    begins = {where: offset for where, offset in at.items() if _reads(new, where)}
    if not begins:
        raise BadArgument(
            f"'{new.name}' reads none of the topics of '{old.name}'",
            cause=f"those are {', '.join(sorted({topic for topic, _ in at}))}",
            next_command="correct `source` of the new spec",
        )
    made = Fork(
        pipeline=new.name,
        checkpoint=str(to.path),
        query=str(uuid.uuid4()),
        of_pipeline=old.name,
        of_query=query,
        of_batch=committed,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        begins=[OffsetRange(*where, offset, offset) for where, offset in sorted(begins.items())],
        anew=sorted(new.source.topics.keys() - {topic for topic, _ in begins}),
    )
    if not dry_run:
        with to.held():
            _require_empty(to)
            _write(to, made, begins)
        for each in (old, new):
            facts = {"of_pipeline": old.name, "of_batch": committed, "checkpoint": str(to.path)}
            note(each, "fork", pipeline=new.name, **facts)
    return made


def lacking(new: Pipeline) -> list[str] | None:
    """Topics that the new pipeline reads or writes and Kafka lacks, such as that of its dead letters; None where no
    broker answers. A fork needs no topic, and its first run all of them."""
    wanted = [name for name in topics_of(new) if name]
    there = if_answered(lambda: admin.of_those_there(Kept(client_config(new)), wanted))
    return None if there is None else [name for name in wanted if name not in there]


def origin(home: Home) -> dict[str, Any] | None:
    """Of which pipeline this one is a fork, and since when; None: of none."""
    try:
        made: dict[str, Any] = json.loads((home.path / _NOTE).read_text())
    except (OSError, ValueError):
        return None
    return {name: made.get(name) for name in ("of_pipeline", "of_query", "of_batch", "time")}


def _standing(home: Home) -> tuple[str, int | None, Positions | None]:
    """The query, its newest committed batch, and where the next one begins."""
    preconditions.require_sound(home)
    log = SparkLog(home.spark)
    committed = log.committed()
    at = log.next_positions() if committed is None else log.end_of(committed)
    return log.query_id() or "", committed, at


def _write(to: Home, made: Fork, begins: Positions) -> None:
    """The id last: without it there is no checkpoint."""
    put(to.path / _NOTE, json.dumps(asdict(made), indent=1).encode())
    # Spark reads one byte before the version, as it has done since 2.1.
    put(to.spark / "sources" / "0" / "0", f"\0v1\n{as_json(begins)}".encode())
    put(to.spark / "metadata", json.dumps({"id": made.query}, separators=(",", ":")).encode())


def _require_another(old: Pipeline, new: Pipeline, home: Home, to: Home) -> None:
    if new.name == old.name:
        raise BadArgument(
            f"both specs are of pipeline '{old.name}'",
            cause="what a pipeline leaves in Kafka and in tables is known by its name",
            next_command="give the new one a `name` of its own",
        )
    if to.path.resolve() == home.path.resolve():
        raise BadArgument(
            f"both pipelines have the checkpoint {home.path}",
            next_command="give the new one a `checkpoint:` of its own",
        )
    _require_empty(to)
    places = {place: name for name, sink in old.sinks.items() if (place := _place(old, sink))}
    shared = [name for name, sink in new.sinks.items() if _place(new, sink) in places]
    if shared:
        raise BadArgument(
            f"sink '{shared[0]}' of '{new.name}' is also one of '{old.name}'",
            cause=f"both would write what comes from here on to {target_of(new.sinks[shared[0]]).to}",
            next_command=f"give sink '{shared[0]}' of the new spec another place",
        )


def _require_empty(to: Home) -> None:
    if to.spark.exists() or any(to.ledger.glob("*.jsonl")):
        raise BadArgument(
            f"{to.path} has a checkpoint already",
            cause="a fork begins with an empty one",
            next_command="give the new pipeline another `checkpoint:`",
        )


def _place(pipeline: Pipeline, sink: Sink) -> tuple[str, str] | None:
    """What makes two sinks the same one; None for those that hold nothing."""
    target = target_of(sink)
    if sink.console or sink.memory:
        return None
    if files := sink.delta or sink.parquet:
        return "files", str(located(files.path, pipeline.base).resolve())
    if sink.iceberg:
        return "iceberg", f"{located(sink.iceberg.catalog.warehouse, pipeline.base).resolve()} {target.to}"
    if sink.postgres:
        return "postgres", f"{sink.postgres.url} {target.to}"
    return target.kind, target.to


def _reads(pipeline: Pipeline, where: tuple[str, int]) -> bool:
    topic, partition = where
    if not pipeline.source.reads_topic(topic):
        return False
    some = pipeline.source.topics[topic].partitions if topic in pipeline.source.topics else None
    return some is None or partition in some
