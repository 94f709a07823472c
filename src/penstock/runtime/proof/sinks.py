"""Steps 3 and 4 of `verify` for one sink: what it holds against the ledger, offset by offset or batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.checkpoint.ledger import Entry, SinkCount
from penstock.errors import BatchUnbalanced, first_line
from penstock.record import OffsetRange
from penstock.runtime import build, fingerprint
from penstock.runtime.failure import translate
from penstock.runtime.proof import other_ledgers, recount
from penstock.runtime.proof import replays as replay_proof
from penstock.runtime.proof.kafka import Buried, invented
from penstock.runtime.proof.offsets import NOTHING, By, Offsets, joined, named, once, outside, within
from penstock.runtime.proof.other_ledgers import Other, Shared
from penstock.runtime.proof.renewed import Former
from penstock.runtime.proof.replays import Took
from penstock.runtime.proof.report import Finding, Partition, Report
from penstock.sink.contract import Forgetful, Sink
from penstock.spec.model import Pipeline

Held = dict[Partition, list[int]]


@dataclass(frozen=True)
class Evidence:
    """What a sink is held against."""

    pipeline: Pipeline
    entries: list[Entry]
    records: By
    buried: Buried
    others: Sequence[Other] = ()
    former: Former = field(default_factory=Former)

    @property
    def twofold(self) -> list[OffsetRange]:
        """Ranges in which a sink may hold more than the one record that the judged ledger brought."""
        entries = [*self.entries, *(entry for other in self.others for entry in other.entries)]
        return [*(r for other in self.others for r in other.ranges), *self.former.all(entries)]


def in_sink(found: Evidence, sink: Sink, positions: Held | None, report: Report) -> None:
    """Where there are no positions, batches are counted; those that share offsets with a batch of another ledger, or of
    a topic that is gone, are judged together with it."""
    name = sink.name
    every = [*found.entries, *(entry for other in found.others for entry in other.entries)]
    as_it_was = [entry for entry in every if _accepted(entry, name)]
    counts = [entry.sinks[name] for entry in every if name in entry.sinks and entry not in as_it_was]
    if positions is None or not counts or any(count.dropped is None or count.superseded for count in counts):
        report.proof[name] = "by count"
        _by_count(found, sink, report)
        return
    report.proof[name] = "by offset"
    report.sinks.setdefault(name, sum(map(len, positions.values())))
    if others := [entry.sinks[name].written for each in found.others for entry in each.entries if name in entry.sinks]:
        report.of_others[name] = sum(others)
    everything = {where: np.sort(np.array(offsets, dtype=np.int64)) for where, offsets in positions.items()}
    report.unproven += [
        f"sink '{name}': batch {entry.batch} counts as it was written before a crash, because that was accepted"
        for entry in as_it_was
    ]
    twofold = joined([*found.twofold, *(r for entry in as_it_was for r in entry.ranges)])
    alone = {where: outside(offsets, twofold.get(where, ())) for where, offsets in everything.items()}
    held = once(alone, f"sink '{name}'", report)
    for partition, offsets in held.items():
        invented(partition, offsets, found.records, f"sink '{name}'", report)
        _both(name, partition, offsets, found.buried, report)
    together = other_ledgers.shared(found.entries, found.others, report.in_flight, found.former) if twofold else []
    shared = {entry.batch for each in together for entry in each.own}
    for entry in found.entries:
        if entry.batch not in shared and entry not in as_it_was:
            _batch(found, name, entry, held, report)
    for each in together:
        if any(entry in as_it_was for entry in each.own):
            continue
        _several(found, name, each, everything, report)


def _accepted(entry: Entry, name: str) -> bool:
    """The sink holds more of the batch than passed, and nobody knows of what (`Outcome.sink_counts`)."""
    return BatchUnbalanced.code in entry.accepted and name in entry.sinks and entry.sinks[name].dropped is None


def without_replays(sink: Sink, positions: Held | None, replayed: list[Took], report: Report) -> Held | None:
    """What the stream itself brought into a sink; what replays brought is judged here."""
    counts = [count for each in replayed if each.entry and (count := each.entry.sinks.get(sink.name))]
    by_count = positions is None or any(count.dropped is None or count.superseded for count in counts)
    if by_count:
        differ, unproven = replay_proof.by_count(sink, replayed)
        report.findings += differ
        report.unproven += unproven
    if positions is None:
        return None
    own, wrong = replay_proof.apart(sink.name, positions, replayed)
    report.findings += [] if by_count else wrong
    report.sinks[sink.name] = sum(map(len, positions.values()))
    return own


def _both(name: str, partition: Partition, offsets: Offsets, buried: Buried, report: Report) -> None:
    elsewhere = np.setdiff1d(buried.dead.get(partition, NOTHING), buried.refused.get(partition, NOTHING))
    both = np.intersect1d(offsets, elsewhere)
    if len(both):
        text = f"{len(both)} records in sink '{name}' and among the dead letters"
        report.findings.append(Finding("both", text, None, *partition, named(both)))


def _several(found: Evidence, name: str, each: Shared, held: By, report: Report) -> None:
    """Batches that are judged together. `held` has repetitions."""
    if not each.finished:
        text = f"sink '{name}': {each.said}, which shares offsets with a batch that is not finished"
        report.unproven.append(text)
        return
    wrong = each.differs(name, held)
    if wrong:
        report.findings.append(wrong)
    for entry in each.own:
        count = entry.sinks.get(name)
        if count is not None:
            _count_left_out(name, count, report)
            if wrong:
                _name_lost(found, name, entry, count, held, report)


def _batch(found: Evidence, name: str, entry: Entry, held: By, report: Report) -> None:
    count = entry.sinks.get(name)
    if count is None:
        return
    written = sum(len(within(held, r)) for r in entry.ranges)
    _count_left_out(name, count, report)
    mark = sum(fingerprint.of_offsets(r.topic, r.partition, within(held, r)) for r in entry.ranges)
    if written == count.written and mark == (mark if count.fingerprint is None else count.fingerprint):
        return
    text = f"sink '{name}' holds {written} records, the ledger says {count.written}"
    if written == count.written:
        text = f"sink '{name}' holds {written} records, but not those that were written to it"
    report.findings.append(Finding("sink-differs", text, entry.batch))
    _name_lost(found, name, entry, count, held, report)


def _count_left_out(name: str, count: SinkCount, report: Report) -> None:
    report.left_out[name] = report.left_out.get(name, 0) + (count.dropped or 0)


def _name_lost(found: Evidence, name: str, entry: Entry, count: SinkCount, held: By, report: Report) -> None:
    dropped = entry.dropped + (count.dropped or 0)
    there = found.former.present(entry)  # of a topic that is gone nobody can tell
    # Without drops every record that is nowhere is lost; with drops the steps must say which ones should be there.
    try:
        should = recount.expected(found.pipeline, replace(entry, ranges=there), name) if dropped and there else None
    except Exception as error:  # the batch is wrong all the same; only its records cannot be named
        why = first_line(translate(error, build.home(found.pipeline).logs).cause)
        report.findings.append(Finding("not-named", f"which records are lost cannot be told: {why}", entry.batch))
        return
    for r in there:
        nowhere = np.setdiff1d(np.setdiff1d(within(found.records, r), within(held, r)), within(found.buried.dead, r))
        if should is not None:
            nowhere = np.intersect1d(nowhere, should.get((r.topic, r.partition), []))
        if len(nowhere):
            lost = "1 record is lost" if len(nowhere) == 1 else f"{len(nowhere)} records are lost"
            text = f"{lost}: neither in sink '{name}' nor dead nor dropped"
            report.findings.append(Finding("lost", text, entry.batch, r.topic, r.partition, named(nowhere)))


def _by_count(found: Evidence, sink: Sink, report: Report) -> None:
    name, entries = sink.name, found.entries
    there = sink.rows_by_batch(entries[-1].query)
    if there is None:
        kafka = found.pipeline.sinks[name].kafka if name in found.pipeline.sinks else None
        chosen = kafka is not None and kafka.topic_column is not None
        why = "writes to topics that its records chose" if chosen else "does not say which records it holds"
        report.proof[name] = "not proven"
        report.unproven.append(f"sink '{name}' {why}")
        return
    report.sinks[name] = sum(there.values())
    since = sink.remembered_from(entries[-1].query) if isinstance(sink, Forgetful) else 0
    if since > entries[0].batch:
        last = min(since, entries[-1].batch + 1) - 1
        text = f"sink '{name}': its own history no longer tells of batches {entries[0].batch} to {last}"
        report.unproven.append(text)
    for entry in entries:
        count = entry.sinks.get(name)
        if count is not None and entry.batch >= since and there.get(entry.batch, 0) != count.written:
            text = f"sink '{name}' holds {there.get(entry.batch, 0)} rows, the ledger says {count.written}"
            report.findings.append(Finding("sink-differs", text, entry.batch))
