"""What the spec says otherwise than the checkpoint, what follows from it, and whether a start goes on with it (C4).

`plan` and `penstock checkpoint diff` show the same. The ledger says what was read and written, `spec.json` what the
spec said at the last start; where there is no such file, only the ledger is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.checkpoint.remembered import Remembered
from penstock.errors import PenstockError
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.lifecycle import preconditions
from penstock.spec.model import Pipeline
from penstock.spec.start import start_text_of
from penstock.transform.state_limits import in_stream

_OLDER = "the pipeline was not started by this version yet"
_TABLES = ("delta", "parquet", "iceberg", "postgres")  # they are asked at a start whether they hold what they got


@dataclass(frozen=True)
class Change:
    what: str  # <thing>-<what was done to it>, such as sink-added
    name: str
    effect: str
    compatible: bool = True  # a start goes on with it


def against_checkpoint(pipeline: Pipeline) -> tuple[Home, list[Change], list[str]]:
    """For `checkpoint diff`: the changes, and what could not be compared. Kafka only says which topics match."""
    home = Home.of(pipeline)
    preconditions.require_checkpoint(home)
    source, unchecked = pipeline.source, []
    topics = set(source.topics)
    if source.pattern:
        try:
            topics = {name for name in admin.topics(client_config(pipeline)) if source.reads_topic(name)}
        except PenstockError as error:
            last = Ledger(home.ledger).last_batch()
            topics = {name for name in last.topics if source.reads_topic(name)} if last else set()
            unchecked.append(f"topics that came since: {error.what}")
    before = remembered.read(home)
    if before is None:
        unchecked.append(f"places of sinks, rules, steps, trigger, limits: {_OLDER}")
    elif before.rules is None:
        unchecked.append(f"rules: {_OLDER}")
    return home, changes_of(pipeline, home, topics), unchecked


def changes_of(pipeline: Pipeline, home: Home, topics: Iterable[str]) -> list[Change]:
    """What the spec says otherwise than this checkpoint. `topics`: those that would be read."""
    last, log, before = Ledger(home.ledger).last_batch(), SparkLog(home.spark), remembered.read(home)
    if last is None and log.planned() is None:
        return []
    return changes(pipeline, last, topics, before, stateful=log.stateful)


def changes(
    pipeline: Pipeline,
    last: Entry | None,
    topics: Iterable[str],
    before: Remembered | None = None,
    *,
    stateful: bool = False,
) -> list[Change]:
    """What a run after `last` would do otherwise than the one before. `topics`: those that would be read; `before`:
    what the spec said then; `stateful`: the checkpoint holds state. Without `last` the first batch is planned and has
    not ended: no sink need hold any of it, but the steps in the stream are settled."""
    found: list[Change] = []
    if last is not None:
        found += [*_of_name(pipeline, last), *_of_topics(pipeline, last, set(topics)), *_of_sinks(pipeline, last)]
    if before is not None:
        now = remembered.of(pipeline)
        stream = in_stream(pipeline) or ([] if stateful else None)
        found += _of_reading(before, now)
        found += _of_targets(before, now) if last is not None else ()
        found += [*_of_rules(before, now), *_of_steps(before, now, stream)]
    return found


def _of_name(pipeline: Pipeline, last: Entry) -> Iterator[Change]:
    if last.pipeline != pipeline.name:
        effect = f"has a checkpoint that belongs to '{last.pipeline}': a start is refused; give it one of its own"
        yield Change("pipeline-renamed", pipeline.name, effect, compatible=False)
    began = start_text_of(last.start)
    if began != pipeline.source.start_text():
        effect = f"has no effect: the pipeline began with `{began}`, and the checkpoint owns the offsets"
        yield Change("start-changed", pipeline.source.start_text(), effect)


def _of_topics(pipeline: Pipeline, last: Entry, now: set[str]) -> Iterator[Change]:
    for name in sorted(now - last.topics.keys()):
        yield Change("topic-added", name, "is read from its first offset on, whatever `start` says")
    goes_on = pipeline.source.on_data_loss == "continue"
    for name in sorted(last.topics.keys() - now):
        effect = "is no longer read; what was not read of it yet never will be"
        if not goes_on:
            effect += ": a start is refused, unless `on_data_loss: continue`"
        yield Change("topic-removed", name, effect, compatible=goes_on)
    for name in sorted(now & last.topics.keys()):
        if pipeline.source.reads_topic(name) and pipeline.source.view_of(name) != last.topics[name].view:
            yield Change("topic-moved", name, f"is read into view '{pipeline.source.view_of(name)}' from now on")


def _of_sinks(pipeline: Pipeline, last: Entry) -> Iterator[Change]:
    for name in pipeline.sinks:
        if name not in last.sinks:
            yield Change("sink-added", name, "gets the rows of the next batch and later ones")
    for name in last.sinks:
        if name not in pipeline.sinks:
            yield Change("sink-removed", name, "is no longer written; what it holds stays")


def _of_reading(before: Remembered, now: Remembered) -> Iterator[Change]:
    if before.subscription != now.subscription:
        effect = f"was {before.subscription}; offsets stay, which topics and partitions are read is listed here"
        yield Change("subscription-changed", now.subscription, effect)
    for topic in sorted(before.partitions.keys() & now.partitions.keys()):
        for gone in sorted(set(before.partitions[topic]) - set(now.partitions[topic])):
            goes_on = now.on_data_loss == "continue"
            effect = "is no longer read" + ("" if goes_on else ": a start is refused, unless `on_data_loss: continue`")
            yield Change("partition-removed", f"{topic}-{gone}", effect, compatible=goes_on)
    for name, old, new in (
        ("trigger", before.trigger, now.trigger),
        ("on_data_loss", before.on_data_loss, now.on_data_loss),
        ("rate.max_offsets", str(before.max_offsets), str(now.max_offsets)),
    ):
        if old != new:
            yield Change("option-changed", name, f"is {new}, and was {old}; a batch that is planned stays as it is")


def _of_targets(before: Remembered, now: Remembered) -> Iterator[Change]:
    for name in before.sinks.keys() & now.sinks.keys():
        old, new = before.sinks[name], now.sinks[name]
        if old == new:
            continue
        held = new["kind"] in _TABLES
        effect = f"is {new['kind']} {new['to']}, and was {old['kind']} {old['to']}: " + (
            "a start is refused where it lacks the batches so far; move the table along, or name a new sink"
            if held
            else "it gets the records of the next batch and later ones"
        )
        yield Change("sink-moved", name, effect, compatible=not held)


def _of_rules(before: Remembered, now: Remembered) -> Iterator[Change]:
    if before.rules is None:
        return
    old, new = _by_name(before.rules), _by_name(now.rules or {})
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield Change("rule-removed", name, "counts no more, from the next batch on, also if that one is planned")
        elif name not in old:
            yield Change("rule-added", name, "counts from the next batch on, also if that one is planned")
        elif old[name] != new[name]:
            effect = f"is {new[name]}, and was {old[name]}; a batch that is planned runs with it"
            yield Change("rule-changed", name, effect)


def _by_name(rules: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {f"{view}.{name}": text for view, named in rules.items() for name, text in named.items()}


def _of_steps(before: Remembered, now: Remembered, stream: list[str] | None) -> Iterator[Change]:
    """`stream`: views whose rows get into state; None where there is no state, then and now."""
    for view in [*before.steps, *(view for view in now.steps if view not in before.steps)]:
        if before.steps.get(view) != now.steps.get(view):
            done = "removed" if view not in now.steps else "added" if view not in before.steps else "changed"
            effect = "counts from the next batch on"
            stateful = stream is not None and (view in stream or view not in now.steps or not stream)
            if stateful:
                effect = "does not fit the state in the checkpoint: begin with a new `checkpoint:`"
            yield Change(f"step-{done}", view, effect, compatible=not stateful)
