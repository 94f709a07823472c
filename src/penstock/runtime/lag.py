"""Measuring the lag of a pipeline from outside, running or not: checkpoint, mirror, Kafka's ends and times."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.checkpoint.log import SparkLog
from penstock.kafka import admin, transaction
from penstock.kafka.connection import Config, client_config
from penstock.kafka.mirror import group_of
from penstock.kafka.peek import Place, estimated, times_at
from penstock.observe.events import EventLog
from penstock.observe.lag import Lag, PartitionLag, measured
from penstock.runtime import build
from penstock.runtime.standing import Waiting, standing
from penstock.source.subscription import subscribe
from penstock.spec.model import Pipeline

_RECENT = 5  # batches
_MINUTE_MS = 60_000
_LOOKED_BACK_MS = tuple(minutes * _MINUTE_MS for minutes in (1, 5, 15, 60, 360, 1_440, 10_080))


def lag_of(pipeline: Pipeline) -> Lag:
    """Raises what Kafka has against being asked, and CheckpointForeign."""
    config = client_config(pipeline)
    home = build.home(pipeline)
    found = standing(config, pipeline.source, SparkLog(home.spark), subscribe(config, pipeline.source).topics)
    waiting = {(each.topic, each.partition): each for each in found.partitions}
    now = round(time.time() * 1000)
    group = transaction.marks(config, group_of(pipeline.name), waiting)
    before = admin.offsets_at(config, dict.fromkeys(waiting, now - _MINUTE_MS))
    late = {place: each for place, each in waiting.items() if each.lag}
    times = times_at(config, {place: each.next for place, each in late.items()})
    guessed = _estimates(config, {place: each for place, each in late.items() if place not in times}, now)
    partitions = []
    for place, each in waiting.items():
        at = times.get(place, guessed.get(place))
        since = before[place]
        partitions.append(
            PartitionLag(
                topic=each.topic,
                partition=each.partition,
                position=each.next,
                group=group[place].offset if place in group else None,
                end=each.end,
                behind_s=None if at is None else max(0, now - at) / 1000,
                estimated=place in guessed,
                arriving=0.0 if since is None else max(0, each.end - since) / (_MINUTE_MS / 1000),
                first=each.first,
            )
        )
    return measured(partitions, _capacity(EventLog(home.events)))


def _capacity(log: EventLog) -> float | None:
    """Offsets per second while a batch runs."""
    batches = [event.facts for event in log.last(["batch"], _RECENT) if event.facts.get("offsets")]
    seconds = sum(each["seconds"] for each in batches)
    return sum(each["offsets"] for each in batches) / seconds if seconds else None


def _estimates(config: Config, late: Mapping[Place, Waiting], now: int) -> dict[Place, int]:
    """Times of positions whose record could not be read in time, from the offsets that Kafka had at some times."""
    if not late:
        return {}
    known: dict[Place, list[tuple[int, int]]] = {place: [(each.end, now)] for place, each in late.items()}
    for back in _LOOKED_BACK_MS:
        for place, offset in admin.offsets_at(config, dict.fromkeys(late, now - back)).items():
            if offset is not None:
                known[place].append((offset, now - back))
    found = {place: estimated(each.next, known[place]) for place, each in late.items()}
    return {place: at for place, at in found.items() if at is not None}
