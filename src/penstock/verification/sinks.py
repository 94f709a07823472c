"""Steps 3 and 4 of `verify` for one sink: what it holds against all ledgers, offset by offset or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from penstock.batch.failure import translate
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, SinkCount
from penstock.errors import BatchUnbalanced, counted
from penstock.record import OffsetRange
from penstock.sinks.contract import Forgetful, Sink
from penstock.spec.model import Pipeline
from penstock.verification import recount
from penstock.verification.judge import Part, judge
from penstock.verification.kafka import Deaths
from penstock.verification.offsets import By, Offsets, gathered, within
from penstock.verification.renewed import Former
from penstock.verification.report import Finding, Partition, Report
from penstock.verification.writers import Writer

Held = dict[Partition, list[int]]


@dataclass(frozen=True)
class Evidence:
    """What a sink is held against."""

    pipeline: Pipeline
    judged: str  # name of the writer whose ledger is
    writers: Sequence[Writer]
    records: By  # Kafka's, in the ranges of:
    read: Set[str]  # writers
    deaths: Deaths = field(default_factory=Deaths)
    former: Former = field(default_factory=Former)

    @property
    def batches(self) -> Iterator[tuple[Writer, Entry]]:
        return ((writer, entry) for writer in self.writers for entry in writer.entries)

    def whose(self, writer: Writer) -> str:
        return "" if writer.name == self.judged else writer.name


def in_sink(found: Evidence, sink: Sink, positions: Held | None, report: Report) -> None:
    """Where there are no positions, or rows are not records one for one, batches are counted."""
    name = sink.name
    own = [e.sinks[name] for w, e in found.batches if w.name == found.judged and name in e.sinks]
    report.superseded[name] = sum(count.superseded for count in own)
    report.left_out[name] = sum(count.dropped or 0 for count in own)
    counts = [(w, e, e.sinks[name]) for w, e in found.batches if name in e.sinks and not _accepted(e, name)]
    if positions is None or not counts or any(count.dropped is None or count.superseded for _, _, count in counts):
        _by_count(found, sink, report)
        return
    report.proof[name] = "by offset"
    report.sinks[name] = sum(map(len, positions.values()))
    written = report.written.setdefault(name, {})
    for writer, entry in found.batches:
        if count := entry.sinks.get(name):
            written[writer.name] = written.get(writer.name, 0) + count.written
        if _accepted(entry, name):
            whose = _said(found, writer, entry)
            text = f"sink '{name}': {whose} counts as it was written before a crash, because that was accepted"
            report.unproven.append(text)
    held = {where: np.sort(np.array(offsets, dtype=np.int64)) for where, offsets in positions.items()}

    def steps_give(ranges: list[OffsetRange]) -> By:
        try:
            ran = max((e.time for _, e in found.batches if any(r in ranges for r in e.ranges)), default=None)
            then = datetime.fromisoformat(ran) if ran else datetime.now(UTC)
            return recount.expected(found.pipeline, ranges, name, round(then.timestamp() * 1000))
        except Exception as error:
            raise translate(error, Home.of(found.pipeline).logs) from error

    parts = list(_parts(found, name, held, report))
    judge(name, held, parts, found.deaths.of(name), found.records, steps_give, report)


def _accepted(entry: Entry, name: str) -> bool:
    """The sink holds more of the batch than passed, and nobody knows of what (`Outcome.sink_counts`)."""
    return BatchUnbalanced.code in entry.accepted and name in entry.sinks and entry.sinks[name].dropped is None


def _said(found: Evidence, writer: Writer, entry: Entry) -> str:
    return f"batch {entry.batch}" + (f" of {whose}" if (whose := found.whose(writer)) else "")


def _parts(found: Evidence, name: str, held: By, report: Report) -> Iterator[Part]:
    """What each batch may have written to the sink: the records of Kafka in its ranges, of a replay the letters on its
    list, but for those that died in it. Where Kafka does not speak, it may be whatever the sink holds."""
    there = {where: np.unique(offsets) for where, offsets in held.items()}
    for writer in found.writers:
        whose = found.whose(writer)
        for entry in writer.entries:
            count: SinkCount | None = None if _accepted(entry, name) else entry.sinks.get(name)
            present = found.former.present(entry) if writer.name in found.read else []
            if writer.letters is not None:
                taken = writer.letters.get(entry.batch, {})
                may = gathered((t, p, [o]) for (t, p, o), letter in taken.items() if name not in letter.spared)
            else:
                may = gathered(
                    (r.topic, r.partition, _may(r, present, found.records, there, report)) for r in entry.ranges
                )
            for where, dead in found.deaths.of(name, entry.query, entry.batch).items():
                if where in may:
                    may[where] = np.setdiff1d(may[where], dead, assume_unique=True)
            yield Part(
                *(entry.batch, whose, may),
                written=count.written if count else None,
                fingerprint=count.fingerprint if count else None,
                ranges=[r for r in present if len(r)],
            )
        if writer.unfinished:
            yield Part(None, whose, gathered((r.topic, r.partition, within(there, r)) for r in writer.unfinished))


def _may(r: OffsetRange, present: Sequence[OffsetRange], records: By, there: By, report: Report) -> Offsets:
    held = within(there, r)
    if r not in present:
        return held
    forgotten = held if r.topic in report.compacted else held[held < report.judged_from((r.topic, r.partition))]
    return np.union1d(within(records, r), forgotten)


def _by_count(found: Evidence, sink: Sink, report: Report) -> None:
    name, written = sink.name, report.written.setdefault(sink.name, {})
    report.proof[name] = "by count"
    for writer in found.writers:
        if not writer.entries:
            continue
        query, first, last = writer.entries[-1].query, writer.entries[0].batch, writer.entries[-1].batch
        there = sink.rows_by_batch(query)
        if there is None:
            kafka = found.pipeline.sinks[name].kafka if name in found.pipeline.sinks else None
            chosen = kafka is not None and kafka.topic_column is not None
            why = "writes to topics that its records chose" if chosen else "does not say which records it holds"
            report.proof[name] = "not proven"
            report.unproven.append(f"sink '{name}' {why}")
            return
        written[writer.name] = sum(there.values())
        since = sink.remembered_from(query) if isinstance(sink, Forgetful) else 0
        if since > first:
            whose = f" of {found.whose(writer)}" if found.whose(writer) else ""
            until = min(since, last + 1) - 1
            which = f"batch {first}" if first == until else f"batches {first} to {until}"
            report.unproven.append(f"sink '{name}': its own history no longer tells of {which}{whose}")
        for entry in writer.entries:
            count, rows = entry.sinks.get(name), there.get(entry.batch, 0)
            if count is not None and entry.batch >= since and rows != count.written:
                text = f"sink '{name}' holds {counted(rows, 'row')}, the ledger says {count.written:,}"
                own = writer.name == found.judged
                said = text if own else f"{_said(found, writer, entry)}: {text}"
                report.findings.append(Finding("sink-differs", said, entry.batch if own else None))
    report.sinks[name] = sum(written.values())
