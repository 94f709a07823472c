"""Measuring the lag of a pipeline from outside, running or not: checkpoint, mirror, Kafka's ends and times.

A part of the cluster that is down is an answer and not an error: of its partitions the lag is not known, of the others
it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import Positions, SparkLog
from penstock.errors import ANEW, KafkaUnreachable
from penstock.kafka import admin, transaction
from penstock.kafka.connection import Config, client_config
from penstock.kafka.mirror import group_of
from penstock.kafka.peek import Place, estimated, times_at
from penstock.kafka.topics import Topic, look
from penstock.observe.events import EventLog
from penstock.observe.lag import Lag, PartitionLag, measured
from penstock.source.position import JOINED, next_positions
from penstock.source.start import partitions_of
from penstock.source.subscription import subscribe
from penstock.source.topics import require_same
from penstock.spec.model import Pipeline
from penstock.spec.real_time import batch_of
from penstock.spec.start import EARLIEST, LATEST

T = TypeVar("T")

_RECENT = 5  # batches
_MIRROR_S = 5.0  # for the group to answer: the rest can be shown without it
_MINUTE_MS = 60_000
_LOOKED_BACK_MS = tuple(minutes * _MINUTE_MS for minutes in (1, 5, 15, 60, 360, 1_440, 10_080))


def lag_of(pipeline: Pipeline) -> Lag:
    """Raises what Kafka has against being asked, CheckpointForeign, and TopicRecreated: positions in another topic are
    no lag."""
    config, home = client_config(pipeline), Home.of(pipeline)
    log, last = SparkLog(home.spark), Ledger(home.ledger).last()
    topics = subscribe(config, pipeline.source, last.topics if last else ()).topics  # none that are held back
    require_same(last.topics if last else {}, topics, instead(pipeline, log))
    places = partitions_of(pipeline.source, topics)
    looked = look(config, topics).topics  # before the checkpoint is read: a run may go on meanwhile
    at = if_answered(lambda: next_positions(config, pipeline.source, log, places))
    return lag_in(pipeline, waiting(places, looked, at))


def instead(pipeline: Pipeline, log: SparkLog) -> str | None:
    """What helps with a topic that was made again, where the checkpoint cannot be moved."""
    return ANEW if log.stateful or batch_of(pipeline.trigger) is not None else None


def waiting(places: Iterable[Place], looked: Iterable[Topic], at: Positions | None) -> list[PartitionLag]:
    """What waits in each partition, without times. `at`: where the next batch begins; None where nobody could say."""
    there = {(topic.name, each.number): each for topic in looked for each in topic.partitions}
    found = []
    for place in sorted(places):
        part = there.get(place)
        first, end = (part.first, part.end) if part and not part.silent else (None, None)
        begin = None if at is None else at.get(place, JOINED)
        next_ = first if begin == EARLIEST else end if begin == LATEST else begin
        state = "offline" if part and part.offline else "silent" if part is None or part.silent else ""
        gone = first or 0 if begin == EARLIEST else 0
        found.append(PartitionLag(*place, next_, None, end, None, False, None, first or 0, state, gone))
    return found


def lag_in(pipeline: Pipeline, found: Iterable[PartitionLag]) -> Lag:
    """The lag of these partitions, with times and rates as far as they can be had."""
    config = client_config(pipeline)
    each_of = {(each.topic, each.partition): each for each in found}
    now = round(time.time() * 1000)
    mirror = group_of(pipeline.name)
    group = if_answered(lambda: transaction.marks(config, mirror, each_of, _MIRROR_S, stable=False)) or {}
    answering = [place for place, each in each_of.items() if each.known]
    before = if_answered(lambda: admin.offsets_at(config, dict.fromkeys(answering, now - _MINUTE_MS))) or {}
    late = {place: each_of[place] for place in answering if each_of[place].lag}
    times = times_at(config, {place: each.position or 0 for place, each in late.items()})
    guessed = _estimates(config, {place: each for place, each in late.items() if place not in times}, now)
    partitions = []
    for place, each in each_of.items():
        at = times.get(place, guessed.get(place))
        partitions.append(
            replace(
                each,
                group=group[place].offset if place in group else None,
                behind_s=None if at is None else max(0, now - at) / 1000,
                estimated=place in guessed,
                arriving=_arriving(each, before),
            )
        )
    return measured(partitions, _capacity(EventLog(Home.of(pipeline).events)))


def if_answered(ask: Callable[[], T]) -> T | None:
    """What Kafka says; None where a broker that is away would have to say it."""
    try:
        return ask()
    except KafkaUnreachable:
        return None


def _arriving(each: PartitionLag, before: Mapping[Place, int | None]) -> float | None:
    """`before`: the offsets of a minute ago; None: every record is older."""
    place = (each.topic, each.partition)
    if each.end is None or place not in before:
        return None
    since = before[place]
    return 0.0 if since is None else max(0, each.end - since) / (_MINUTE_MS / 1000)


def _capacity(log: EventLog) -> float | None:
    """Offsets per second while a batch runs."""
    batches = [event.facts for event in log.last(["batch"], _RECENT) if event.facts.get("offsets")]
    seconds = sum(each["seconds"] for each in batches)
    return sum(each["offsets"] for each in batches) / seconds if seconds else None


def _estimates(config: Config, late: Mapping[Place, PartitionLag], now: int) -> dict[Place, int]:
    """Times of positions whose record could not be read in time, from the offsets that Kafka had at some times."""
    if not late:
        return {}
    known: dict[Place, list[tuple[int, int]]] = {place: [(each.end or 0, now)] for place, each in late.items()}
    for back in _LOOKED_BACK_MS:
        asked = dict.fromkeys(late, now - back)
        answers = if_answered(partial(admin.offsets_at, config, asked)) or {}
        for place, offset in answers.items():
            if offset is not None:
                known[place].append((offset, now - back))
    found = {place: estimated(each.position or 0, known[place]) for place, each in late.items()}
    return {place: at for place, at in found.items() if at is not None}
