"""Gathering what `doctor` judges (`doctor.rules`), from outside and without the lock: a run may go on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.doctor import condition
from penstock.doctor.dead_letter_facts import LOOKED_BACK, dying
from penstock.doctor.event_time_facts import timed
from penstock.doctor.facts import Facts, Files, Finding, Held, Ran, Recreated
from penstock.doctor.lag_verdict import Commit, Verdict, verdict
from penstock.doctor.rules import examine
from penstock.errors import PenstockError
from penstock.kafka import admin
from penstock.kafka.connection import Config, client_config
from penstock.kafka.topics import look
from penstock.observe.events import EventLog
from penstock.observe.lag import Lag
from penstock.observe.measure_lag import if_answered, instead, lag_in, waiting
from penstock.plan import build
from penstock.record import ends_of
from penstock.registry.client.registry import SchemaRegistry, settings_of
from penstock.sinks.contract import OfFiles
from penstock.source.position import if_sound, known_positions, next_positions, running
from penstock.source.start import partitions_of
from penstock.source.subscription import subscribe
from penstock.source.topics import made_again, recreated
from penstock.spec.model import Pipeline
from penstock.spec.stateful import keeps_for
from penstock.spec.topics import topics_of

_BATCHES = 30  # looked back at
_EVENTS = 10 * _BATCHES  # of batches and starts: one that failed and was tried again and again has many starts
_COMMITS = 8  # that a verdict is over: Kafka is asked for the ends of each


def examined(pipeline: Pipeline) -> tuple[Facts, list[Finding]]:
    facts = facts_of(pipeline)
    return facts, examine(facts)


def facts_of(pipeline: Pipeline) -> Facts:
    """Raises what Kafka has against being asked, TopicMissing and StartNotThere."""
    config, home = client_config(pipeline), Home.of(pipeline)
    runs, now = running(home) is not None, time.time()
    log, events = SparkLog(home.spark), EventLog(home.events)
    damage = condition.damage(pipeline, home)
    newest = if_sound(lambda: Ledger(home.ledger).recent(LOOKED_BACK)) or []
    entries = newest[-_BATCHES:]
    topics = subscribe(config, pipeline.source, entries[-1].topics if entries else ()).topics  # none that are held back
    gone = made_again(entries[-1].topics if entries else {}, topics)
    places = partitions_of(pipeline.source, {name: of for name, of in topics.items() if name not in gone})
    looked = look(config, [name for name in {**topics_of(pipeline), **topics} if name]).topics
    at = known_positions(log, entries)
    begun = at is not None
    if at is None:
        at = if_sound(lambda: if_answered(lambda: next_positions(config, pipeline.source, log, places)))
    lag = lag_in(pipeline, waiting(places, looked, at))
    stuck = if_sound(lambda: condition.stuck(home, events, now, runs=runs))
    # A batch of real-time mode lasts as long as the spec says: nothing follows from its length.
    batches = [entry for entry in entries if not entry.real_time]
    target = pipeline.rate.target_batch
    return Facts(
        running=runs,
        lag=lag,
        cap=pipeline.rate.max_offsets,
        adaptive=target is not None,
        batches=ran(batches, events),
        verdicts=_verdicts(config, batches, lag, now, began(home, events) if runs else None),
        stuck=stuck,
        failed=condition.failed(events, None if stuck is None else now - stuck.since_s),
        rest=None if runs else condition.rest(pipeline, events, begun=begun, planned=stuck is not None),
        damage=damage,
        recreated=[
            Recreated(name, error.cause or "", error.next_command or "")
            for name, was in sorted(gone.items())
            for error in [recreated(name, was, topics[name].topic_id, instead(pipeline, log))]
        ],
        states=condition.states(looked),
        retention_s=condition.retention(topic for topic in looked if topic.name in topics),
        begun=begun,
        goes_on=pipeline.source.on_data_loss == "continue",
        target_s=None if target is None else target.total_seconds(),
        overhead_s=_overhead(events),
        files=_files(pipeline),
        keeps_s={s.view: keeps.total_seconds() for s in pipeline.transform if (keeps := keeps_for(s.stateful))},
        timed=timed(
            pipeline.transform,
            entries,
            [sink.from_ for sink in pipeline.sinks.values()],
            watermark_ms=if_sound(lambda: _watermark(log)) or 0,
            now_s=now,
            earlier=newest[:-_BATCHES],
        ),
        dying=dying(pipeline, newest),
        registry=_registry(pipeline),
    )


def ran(entries: Sequence[Entry], events: EventLog) -> list[Ran]:
    """The batches that the event log knows too."""
    told = events.last(["started", "batch"], _EVENTS)
    took = {event.facts["batch"]: event.facts for event in told if event.kind == "batch"}
    first = ("started", "batch")
    cold = {after.facts["batch"] for before, after in pairwise(told) if (before.kind, after.kind) == first}
    return [
        Ran(
            batch=entry.batch,
            seconds=took[entry.batch]["seconds"],
            offsets=sum(map(len, entry.ranges)),
            cap=took[entry.batch].get("cap"),
            cold=entry.batch in cold,
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


def _watermark(log: SparkLog) -> int:
    """That of the next batch."""
    committed = log.committed()
    return log.next_watermark(committed) if committed is not None and log.stateful else 0


def _overhead(events: EventLog) -> float | None:
    for event in events.last(["rate"], 1):
        found: float | None = event.facts.get("overhead")
        return found
    return None


def _verdicts(
    config: Config, entries: Sequence[Entry], lag: Lag, now: float, since: float | None
) -> dict[tuple[str, int], Verdict]:
    """Of partitions that answer. `since`: when the present run began; None: nothing runs."""
    known = {(each.topic, each.partition): each for each in lag.partitions if each.known}
    commits: dict[tuple[str, int], list[Commit]] = {place: [] for place in known}
    for entry in since_seek(entries)[-_COMMITS:]:
        moment = _seconds(entry.time)
        then = if_answered(partial(admin.offsets_at, config, dict.fromkeys(known, round(moment * 1000)))) or {}
        at = ends_of(entry.ranges)
        for place in known.keys() & at.keys() & then.keys():
            end = then[place]
            commits[place].append(Commit(moment, at[place], known[place].end or 0 if end is None else end))
    return {
        place: verdict(
            commits[place], now, each.end or 0, running=since is not None, begin=each.position, since=since or 0.0
        )
        for place, each in known.items()
    }


def began(home: Home, events: EventLog) -> float:
    """When the present run took the lock, or when its engine was there, which the event log says if there is one: until
    then nothing could be committed."""
    started = [event.time.timestamp() for event in events.last(["started"], 1)]
    return max([home.lock.stat().st_mtime, *started])


def since_seek(entries: Sequence[Entry]) -> Sequence[Entry]:
    """A person who moves positions back is no rewind. An entry of a seek says where they are after it."""
    return entries[max((at for at, entry in enumerate(entries) if entry.is_seek), default=0) :]


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
