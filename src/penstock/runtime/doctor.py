"""Gathering what `doctor` judges (`observe.doctor`), from outside and without the lock: a run may go on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import PenstockError
from penstock.kafka import admin
from penstock.kafka.connection import Config, client_config
from penstock.kafka.schema_registry import SchemaRegistry, settings_of
from penstock.observe.doctor import Facts, Files, Finding, Held, Ran, Stuck, examine
from penstock.observe.events import EventLog
from penstock.observe.lag import Lag
from penstock.observe.verdict import Commit, Verdict, verdict
from penstock.runtime import build
from penstock.runtime.lag import lag_of
from penstock.runtime.standing import running
from penstock.sink.contract import OfFiles
from penstock.spec.model import Pipeline
from penstock.spec.stateful import keeps_for

_BATCHES = 30  # looked back at
_COMMITS = 8  # that a verdict is over: Kafka is asked for the ends of each


def examined(pipeline: Pipeline) -> tuple[Facts, list[Finding]]:
    facts = facts_of(pipeline)
    return facts, examine(facts)


def facts_of(pipeline: Pipeline) -> Facts:
    """Raises what Kafka has against being asked, and CheckpointForeign."""
    config, home = client_config(pipeline), build.home(pipeline)
    lag, runs, now = lag_of(pipeline), running(home) is not None, time.time()
    # A batch of real-time mode lasts as long as the spec says: nothing follows from its length.
    entries = [entry for entry in Ledger(home.ledger).recent(_BATCHES) if not entry.real_time]
    events = EventLog(home.events)
    return Facts(
        running=runs,
        lag=lag,
        cap=pipeline.rate.max_offsets,
        adaptive=pipeline.rate.target_batch is not None,
        batches=_batches(entries, events),
        verdicts=_verdicts(config, entries, lag, now, runs),
        stuck=_stuck(home, events, now),
        retention_s=_retention(config, sorted({each.topic for each in lag.partitions})),
        expired=[(each.topic, each.partition) for each in lag.partitions if each.expired],
        files=_files(pipeline),
        keeps_s={s.view: keeps.total_seconds() for s in pipeline.transform if (keeps := keeps_for(s.stateful))},
        registry=_registry(pipeline),
    )


def _batches(entries: Sequence[Entry], events: EventLog) -> list[Ran]:
    took = {event.facts["batch"]: event.facts for event in events.last(["batch"], _BATCHES)}
    return [
        Ran(
            batch=entry.batch,
            seconds=took[entry.batch]["seconds"],
            offsets=sum(map(len, entry.ranges)),
            cap=took[entry.batch].get("cap"),
            state={
                view: Held(step.held, step.watermark / 1000)
                for view, step in entry.stateful.items()
                if step.held is not None
            },
            sinks={name: (sink.written, sink.seconds) for name, sink in entry.sinks.items()},
        )
        for entry in entries
        if entry.batch in took
    ]


def _verdicts(
    config: Config, entries: Sequence[Entry], lag: Lag, now: float, runs: bool
) -> dict[tuple[str, int], Verdict]:
    recent = entries[-_COMMITS:]
    places = [(each.topic, each.partition) for each in lag.partitions]
    ends = {(each.topic, each.partition): each.end for each in lag.partitions}
    commits: dict[tuple[str, int], list[Commit]] = {place: [] for place in places}
    for entry in recent:
        moment = _seconds(entry.time)
        then = admin.offsets_at(config, dict.fromkeys(places, round(moment * 1000)))
        at = {(r.topic, r.partition): r.end for r in entry.ranges}
        for place in places:
            if place in at:
                end = then.get(place)
                commits[place].append(Commit(moment, at[place], ends[place] if end is None else end))
    return {place: verdict(found, now, ends[place], running=runs) for place, found in commits.items()}


def _stuck(home: Home, events: EventLog, now: float) -> Stuck | None:
    log = SparkLog(home.spark)
    batch = log.pending()
    if batch is None:
        return None
    try:
        since = (log.path / "offsets" / str(batch)).stat().st_mtime
    except FileNotFoundError:  # committed and swept since
        return None
    ended = events.last(["retrying", "failed"], 100)
    codes = tuple(event.facts["code"] for event in ended if event.time.timestamp() >= since)
    return Stuck(batch, now - since, codes)


def _retention(config: Config, topics: Sequence[str]) -> dict[str, float]:
    """Topics whose records expire by age. Compacted ones do not."""
    found = {}
    for name, settings in admin.topic_configs(config, topics).items():
        kept = int(settings.get("retention.ms", "-1"))
        if "delete" in settings.get("cleanup.policy", "delete") and kept > 0:
            found[name] = kept / 1000
    return found


def _files(pipeline: Pipeline) -> dict[str, Files]:
    found = {}
    for outlet in build.outlets(pipeline):
        if isinstance(outlet.sink, OfFiles):
            sizes = outlet.sink.sizes()
            found[outlet.sink.name] = Files(len(sizes), sum(sizes))
    return found


def _registry(pipeline: Pipeline) -> str | None:
    if pipeline.registry is None:
        return None
    try:
        with SchemaRegistry(settings_of(pipeline)) as registry:
            registry.subjects()
    except PenstockError as error:
        return f"{error.what}: {error.cause}"
    return None


def _seconds(time_: str) -> float:
    return datetime.fromisoformat(time_).timestamp()
