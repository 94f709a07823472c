"""Step 2 of `verify`, and the dead-letter half of 3 and 4: Kafka's records and the dead letters against the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.checkpoint.ledger import Entry
from penstock.deadletters.dead_letter import DeadLetter
from penstock.errors import counted
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.kafka.consume import position, visible
from penstock.kafka.session import Kept
from penstock.kafka.transaction import left_open
from penstock.record import SINK, TRANSFORM, OffsetRange
from penstock.spec.model import Pipeline
from penstock.spec.topics import topics_of
from penstock.verification.offsets import NOTHING, By, Offsets, Spans, gathered, joined, named, once, outside, within
from penstock.verification.renewed import Former
from penstock.verification.report import Finding, Partition, Report

_UNKNOWN = ""  # of letters of older versions: a sink refused the record, and nobody said which


@dataclass(frozen=True)
class Deaths:
    """All dead letters, by the query and the batch they name: by where the record came from, and the sinks that do not
    have it (None: none has)."""

    batches: Mapping[tuple[str, int], dict[tuple[str, int, str | None], list[int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, letters: Iterable[DeadLetter]) -> Deaths:
        found: dict[tuple[str, int], dict[tuple[str, int, str | None], list[int]]] = {}
        for letter in letters:
            old = letter.sinks is None and letter.stage in (TRANSFORM, SINK)
            key = (letter.topic, letter.partition, _UNKNOWN if old else letter.sinks)
            found.setdefault((letter.query, letter.batch), {}).setdefault(key, []).append(letter.offset)
        return cls(found)

    def of(self, sink: str, query: str | None = None, batch: int | None = None) -> By:
        """What died for a sink: in one batch, or in any."""
        some = self.batches.values() if query is None else [self.batches.get((query, batch or 0), {})]
        return gathered(
            (topic, partition, offsets)
            for each in some
            for (topic, partition, sinks), offsets in each.items()
            if sinks is None or sink in sinks.split(",")
        )


@dataclass(frozen=True)
class Buried:
    """The dead letters of a query."""

    dead: By = field(default_factory=dict)
    by_batch: Mapping[tuple[int, str], int] = field(default_factory=Counter)  # batch and topic
    number: int = 0  # each once


def in_kafka(
    pipeline: Pipeline, entries: Sequence[Entry], others: Sequence[Entry], report: Report
) -> tuple[By, Former]:
    """Every committed record of the ranges the ledger covers, and which topics are not those that were read. `others`:
    of other ledgers, whose ranges are read too."""
    config = client_config(pipeline)
    every = [*entries, *others]
    read = {r.topic for entry in every for r in entry.ranges}
    facts = admin.of_those_there(Kept(config), read)
    if read and not facts:  # rather another cluster than topics that were all deleted
        admin.require_topics(config, sorted(read))
    former = Former.of(every, {name: fact.topic_id for name, fact in facts.items()})
    report.unproven += [
        f"topic '{name}' is gone: what was read of it cannot be counted again; sinks and dead letters are held against "
        "the ledger alone"
        for name in former.gone
    ]
    covered: dict[str, dict[int, tuple[int, int]]] = {}
    for entry in every:
        for r in (each for each in former.present(entry) if each.topic in facts):
            start, end = covered.setdefault(r.topic, {}).get(r.partition, (r.start, r.end))
            covered[r.topic][r.partition] = (min(start, r.start), max(end, r.end))
    report.compacted = sorted(admin.compacted(config, covered))
    for topic, fact in entries[-1].topics.items():
        if topic in facts and fact.id != facts[topic].topic_id:
            text = "the topic was deleted and created again: its offsets are of other records"
            report.findings.append(Finding("recreated", text, None, topic))
    marks = admin.watermarks(config, {t: facts[t].partitions for t in covered})
    found: By = {}
    for topic, ranges in covered.items():
        offsets: dict[int, list[int]] = {p: [] for p in ranges}
        for message in visible(config, topic, facts[topic].partitions, ranges):
            p, offset = position(message)
            offsets[p].append(offset)
        for p, (start, end) in ranges.items():
            low, high = marks.get((topic, p), (0, 0))
            if low > start:
                report.expired.append(OffsetRange(topic, p, start, min(low, end)))
            if high < end:
                text = (
                    f"the ledger covers offsets up to {end}, Kafka ends at {high}: the topic was recreated or truncated"
                )
                report.findings.append(Finding("vanished", text, None, topic, p))
            found[topic, p] = np.array(offsets[p], dtype=np.int64)
    return found, former


def without_record(entries: list[Entry], records: By, former: Former, report: Report) -> None:
    """How many offsets that were read hold no record: Kafka counts offsets, and not all of them are of records."""
    for (topic, p), spans in joined(r for entry in entries for r in former.present(entry)).items():
        first = report.judged_from((topic, p))
        for start, end in spans:
            r = OffsetRange(topic, p, max(start, first), max(end, first))
            empty = len(r) - len(within(records, r))
            if topic in report.compacted:
                report.gaps += empty
            else:
                report.markers += empty


def in_dead_letters(deaths: Deaths, query: str, report: Report, but: Spans | None = None) -> Buried:
    """`but`: where two letters of one offset may be of two records, which died in two batches."""
    found: dict[Partition, list[int]] = {}
    by_batch: Counter[tuple[int, str]] = Counter()
    renewed = {topic for topic, _ in but or {}}
    number = 0
    for (whose, batch), letters in deaths.batches.items():
        if whose != query:
            continue
        for (topic, partition, _), offsets in letters.items():
            found.setdefault((topic, partition), []).extend(offsets)
            by_batch[batch, topic] += len(offsets)
        once_each = gathered((topic, p, offsets) for (topic, p, _), offsets in letters.items() if topic in renewed)
        number += sum(map(len, once_each.values()))
    dead = once(found, report, but)
    number += sum(len(offsets) for (topic, _), offsets in dead.items() if topic not in renewed)
    return Buried(dead, by_batch, number)


def hidden(pipeline: Pipeline, report: Report) -> None:
    """Called where something is missing. Committed readers see a partition up to the first open transaction; what was
    committed after that began is there, and not to be seen before it ends."""
    config = client_config(pipeline)
    there = admin.topics(config)
    names = [name for name in topics_of(pipeline) if name in there and not pipeline.source.reads_topic(name)]
    counts = {name: there[name].partitions for name in names}
    marks, stable = admin.watermarks(config, counts), admin.stable_ends(config, counts)
    report.unproven += [
        f"an open transaction hides {counted(end - stable[place], 'offset')} of {place[0]}-{place[1]}, from "
        f"{stable[place]} on: what is missing may be there; {left_open()}"
        for place, (_, end) in sorted(marks.items())
        if stable[place] < end
    ]


def same_as_read(
    entries: list[Entry], records: By, buried: Buried, report: Report, former: Former | None = None
) -> None:
    """Batch by batch. Dead letters are counted by where they came from; where records were read twice, or an offset is
    that of two records, by the batch they name."""
    former = former or Former()
    gone = joined(former.all(entries))
    by_batch = {r.topic for entry in entries for r in entry.again} | {topic for topic, _ in gone}
    for entry in entries:
        not_there = former.ranges(entry)
        for view, count in entry.views.items():
            ranges = [r for r in entry.ranges if entry.topics[r.topic].view == view]
            expired = any(r.start < report.judged_from((r.topic, r.partition)) or r in not_there for r in ranges)
            there = sum(len(within(records, r)) for r in ranges)
            if expired:
                pass  # Kafka no longer holds all of this batch; how many there were only the ledger knows
            elif there < count.read and any(r.topic in report.compacted for r in ranges):
                since = count.read - there
                if not any(r.topic in by_batch for r in ranges):  # what was read twice is counted once
                    report.gaps = max(0, report.gaps - since)  # `without_record` took them for such
                report.unproven.append(f"batch {entry.batch}: {counted(since, 'record')} compacted away since the read")
            elif there != count.read:
                text = f"Kafka holds {counted(there, 'record')}, the ledger says {count.read:,}"
                report.findings.append(Finding("not-as-read", f"view '{view}': {text}", entry.batch))
            dead = sum(len(within(buried.dead, r)) for r in ranges if r.topic not in by_batch)
            dead += sum(buried.by_batch.get((entry.batch, t), 0) for t in {r.topic for r in ranges} & by_batch)
            if dead != count.dead + count.rejected:
                text = f"view '{view}': {counted(dead, 'dead letter')}, the ledger says {count.dead + count.rejected:,}"
                report.findings.append(Finding("dead-letters-differ", text, entry.batch))
    read = joined(r for entry in entries for r in former.present(entry))
    for where, offsets in buried.dead.items():
        known = [within(records, OffsetRange(*where, *span)) for span in read.get(where, ())]
        _invented(where, outside(offsets, gone.get(where, ())), np.concatenate([NOTHING, *known]), report)


def _invented(partition: Partition, offsets: Offsets, records: Offsets, report: Report) -> None:
    """Step 4. Offsets below the first one Kafka still holds cannot be judged."""
    if partition[0] in report.compacted:
        return
    offsets = offsets[offsets >= report.judged_from(partition)]
    flying = [(r.start, r.end) for r in report.in_flight if (r.topic, r.partition) == partition]
    strange = np.setdiff1d(outside(offsets, flying), records)
    if len(strange):
        text = f"{counted(len(strange), 'dead letter')} of records that no batch has read"
        report.findings.append(Finding("invented", text, None, *partition, named(strange)))
