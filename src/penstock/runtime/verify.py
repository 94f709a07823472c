"""`verify`: recount everything from Kafka, the ledger, the sinks and the dead letters, with readers that are not Spark.

    1. the ledger is whole: batches follow each other, each begins where the last one ended
    2. Kafka holds exactly the records the ledger says were read
    3. every one of them is in the sink once, or is a dead letter once, or was dropped by a named rule or step
    4. nothing is in the sink or among the dead letters that is not in Kafka

A sink whose rows carry `_kafka` is proven offset by offset; another one by the row count of each batch. What a backfill
brought into the same sinks is told apart by its ledger (`other_ledgers.py`), what a replay brought by its list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.checkpoint.ledger import Entry, Ledger, SinkCount
from penstock.checkpoint.log import SparkLog
from penstock.errors import LedgerMissing, first_line
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.kafka.consume import position, visible
from penstock.record import KAFKA, SINK, TRANSFORM, OffsetRange
from penstock.route.dead_letter import DeadLetters
from penstock.runtime import build, fingerprint, other_ledgers, recount, replay_proof, same_mode, state_proof
from penstock.runtime.failure import translate
from penstock.runtime.other_ledgers import Other, Shared
from penstock.runtime.replay_proof import Took
from penstock.runtime.report import NAMED, Finding, Partition, Report
from penstock.sink.contract import Forgetful, Sink
from penstock.spec.model import Pipeline

Offsets = np.ndarray[Any, np.dtype[np.int64]]
By = dict[Partition, Offsets]

_NOTHING: Offsets = np.array([], dtype=np.int64)


def verify(pipeline: Pipeline, backfill: str | None = None) -> Report:
    """Needs Kafka and the tables; the engine only to name what a wrong batch lost.

    Raises LedgerMissing when there is nothing to verify.
    """
    if backfill is None:
        same_mode.require_ledger(pipeline, "verify")
    home = build.home(pipeline) if backfill is None else build.backfill_home(pipeline, backfill)
    entries = list(Ledger(home.ledger).entries())
    if not entries:
        raise LedgerMissing(
            f"pipeline '{pipeline.name}' has no ledger in {home.ledger}",
            cause="it has not finished a batch yet, or the directory was removed",
            next_command="penstock run FILE --until-caught-up; or restore the directory from a backup",
        )
    report = Report(
        pipeline.name,
        batches=sum(not e.is_seek for e in entries),
        offsets=sum(len(r) for e in entries for r in e.ranges),
    )
    query, log, sinks = entries[-1].query, SparkLog(home.spark), {o.sink.name: o.sink for o in build.outlets(pipeline)}
    _follow_on(entries, log, report)
    records = _in_kafka(pipeline, entries, report)
    dead, refused, by_batch = _in_dead_letters(build.dead_letters(pipeline), query, report)
    replayed, others = replay_proof.took(pipeline), other_ledgers.found(pipeline, backfill)
    theirs = [entry for other in others for entry in other.entries]
    apart = not replay_proof.within(replayed, theirs if backfill is None else [*theirs, *entries])
    replayed = replayed if backfill is None else []
    held = {name: sink.positions(KAFKA) if apart else None for name, sink in sinks.items()}
    report.in_flight = _in_flight(log, entries)  # after the sinks were read: the pipeline may be running
    _same_as_read(entries, records, dead, report, by_batch)
    for name, sink in sinks.items():
        own = _without_replays(sink, held[name], replayed, report)
        _in_sink(pipeline, sink, own, entries, records, dead, refused, report, others)
    state_proof.account(pipeline, entries, report)
    former = {name for entry in entries for name in entry.sinks} - sinks.keys()
    report.unproven += [f"sink '{name}' is in the ledger and no longer in the spec" for name in sorted(former)]
    report.records = sum(e.read for e in entries)
    report.dead, report.replayed = sum(map(len, dead.values())), replay_proof.home_again(replayed)
    report.findings += replay_proof.dead_again(replayed)
    report.unproven += replay_proof.unfinished(replayed)
    report.lost = [r for e in entries for r in e.lost]
    report.skipped = _never_read(entries)
    for entry in entries:
        for count in entry.views.values():
            for rule, dropped in count.dropped.items():
                report.dropped[rule] = report.dropped.get(rule, 0) + dropped
    return report


def _follow_on(entries: list[Entry], log: SparkLog, report: Report) -> None:
    """Step 1. A batch the ledger skips, or a range that does not begin where the one before it ended."""
    at: dict[Partition, int] = {}
    follows = 0
    for entry in entries:
        if entry.batch != follows:
            text = f"the ledger has no entry for batches {follows} to {entry.batch - 1}"
            if LedgerMissing.code in entry.accepted:
                report.unproven.append(f"{text}; accepted when batch {entry.batch} ran")
                at.clear()
            else:
                report.findings.append(Finding("ledger-gap", text))
        follows = entry.batch + 1
        moved = {(r.topic, r.partition): (r.start, r.end) for r in entry.skipped}
        moved |= {(r.topic, r.partition): (r.end, r.start) for r in entry.again}
        for r in entry.ranges:
            expected = at.get((r.topic, r.partition), r.start)
            if moved.get((r.topic, r.partition)) != (expected, r.start) and r.start != expected:
                text = f"begins at offset {r.start}, the batch before ended at {expected}"
                report.findings.append(Finding("range-gap", text, entry.batch, r.topic, r.partition))
            at[r.topic, r.partition] = r.end
    committed = log.committed()
    if committed is not None and committed > entries[-1].batch:
        text = f"Spark committed batch {committed}, the ledger ends at batch {entries[-1].batch}"
        report.findings.append(Finding("ledger-gap", text))


def _in_flight(log: SparkLog, entries: list[Entry]) -> list[OffsetRange]:
    """What Spark has planned beyond the ledger: it may be in sinks and dead letters already, or not yet."""
    planned = log.planned()
    if planned is None or planned <= entries[-1].batch:
        return []
    done = {(r.topic, r.partition): r.end for r in entries[-1].ranges}
    ahead = [OffsetRange(t, p, done.get((t, p), 0), end) for (t, p), end in log.end_of(planned).items()]
    return sorted(r for r in ahead if r.end > r.start)


def _in_kafka(pipeline: Pipeline, entries: list[Entry], report: Report) -> By:
    """Step 2, the recount: every committed record of the ranges the ledger covers."""
    config = client_config(pipeline)
    covered: dict[str, dict[int, tuple[int, int]]] = {}
    for entry in entries:
        for r in entry.ranges:
            start, end = covered.setdefault(r.topic, {}).get(r.partition, (r.start, r.end))
            covered[r.topic][r.partition] = (min(start, r.start), max(end, r.end))
    facts = admin.require_topics(config, list(covered))
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
    for r in _never_read(entries):
        there = found[r.topic, r.partition]
        found[r.topic, r.partition] = there[(there < r.start) | (there >= r.end)]
    return found


def _never_read(entries: list[Entry]) -> list[OffsetRange]:
    """What the operator skipped, without what a later seek went back to and a batch then read."""
    left: list[OffsetRange] = []
    for entry in entries:
        left += entry.skipped
        left = [part for r in left for part in _without(r, entry.ranges)]
    return sorted(left)


def _without(r: OffsetRange, others: Iterable[OffsetRange]) -> list[OffsetRange]:
    parts = [r]
    for other in others:
        if (other.topic, other.partition) == (r.topic, r.partition) and len(other):
            cut = [(part.start, min(part.end, other.start)) for part in parts]
            cut += [(max(part.start, other.end), part.end) for part in parts]
            parts = [OffsetRange(r.topic, r.partition, start, end) for start, end in cut if start < end]
    return parts


def _in_dead_letters(letters: DeadLetters, query: str, report: Report) -> tuple[By, By, Counter[tuple[int, str]]]:
    """All of them, and those that died on their way to one sink: another one may well hold these."""
    found: dict[Partition, list[int]] = {}
    refused: dict[Partition, list[int]] = {}
    by_batch: Counter[tuple[int, str]] = Counter()
    for letter in letters.read(query):
        found.setdefault((letter.topic, letter.partition), []).append(letter.offset)
        by_batch[letter.batch, letter.topic] += 1
        if letter.stage in (TRANSFORM, SINK):
            refused.setdefault((letter.topic, letter.partition), []).append(letter.offset)
    by_sink = {partition: np.array(offsets, dtype=np.int64) for partition, offsets in refused.items()}
    return _once(found, "dead-letter", report), by_sink, by_batch


def _once(found: dict[Partition, list[int]], where: str, report: Report) -> By:
    """Sorted and unique; what stands there twice is a finding."""
    unique: By = {}
    for (topic, p), offsets in found.items():
        unique[topic, p], times = np.unique(np.array(offsets, dtype=np.int64), return_counts=True)
        twice = unique[topic, p][times > 1]
        if len(twice):
            report.findings.append(
                Finding("duplicate", f"{len(twice)} records more than once in {where}", None, topic, p, _named(twice))
            )
    return unique


def _same_as_read(
    entries: list[Entry], records: By, dead: By, report: Report, by_batch: Mapping[tuple[int, str], int] | None = None
) -> None:
    """Step 2 and the dead-letter half of 3 and 4, batch by batch. Dead letters are counted by where they came from;
    where records were read twice, by the batch they name."""
    reread = {r.topic for entry in entries for r in entry.again}
    for entry in entries:
        for view, count in entry.views.items():
            ranges = [r for r in entry.ranges if entry.topics[r.topic].view == view]
            expired = any(r.start < report.judged_from((r.topic, r.partition)) for r in ranges)
            there = sum(len(_within(records, r)) for r in ranges)
            if expired:
                pass  # Kafka no longer holds all of this batch; how many there were only the ledger knows
            elif there < count.read and any(r.topic in report.compacted for r in ranges):
                text = f"{count.read - there} records of batch {entry.batch} were compacted away since they were read"
                report.unproven.append(text)
            elif there != count.read:
                text = f"Kafka holds {there} records, the ledger says {count.read} were read"
                report.findings.append(Finding("not-as-read", f"view '{view}': {text}", entry.batch))
            buried = sum(len(_within(dead, r)) for r in ranges if r.topic not in reread)
            buried += sum((by_batch or {}).get((entry.batch, t), 0) for t in {r.topic for r in ranges} & reread)
            if buried != count.dead + count.rejected:
                text = f"view '{view}': {buried} dead letters are there, the ledger says {count.dead + count.rejected}"
                report.findings.append(Finding("dead-letters-differ", text, entry.batch))
    for partition, offsets in dead.items():
        _invented(partition, offsets, records, "dead letters", report)


def _invented(partition: Partition, offsets: Offsets, records: By, where: str, report: Report) -> None:
    """Step 4. Offsets below the first one Kafka still holds cannot be judged."""
    if partition[0] in report.compacted:
        return
    offsets = offsets[offsets >= report.judged_from(partition)]
    for r in report.in_flight:
        if (r.topic, r.partition) == partition:
            offsets = offsets[(offsets < r.start) | (offsets >= r.end)]
    strange = np.setdiff1d(offsets, records.get(partition, _NOTHING))
    if len(strange):
        text = f"{len(strange)} records in {where} that are not in the ranges of the ledger"
        report.findings.append(Finding("invented", text, None, *partition, _named(strange)))


def _in_sink(
    pipeline: Pipeline,
    sink: Sink,
    positions: dict[Partition, list[int]] | None,
    entries: list[Entry],
    records: By,
    dead: By,
    refused: By,
    report: Report,
    others: Sequence[Other] = (),
) -> None:
    """Steps 3 and 4 for one sink. Where there are no positions, batches are counted; those that share offsets with a
    batch of another ledger are judged together with it."""
    name = sink.name
    every = [*entries, *(entry for other in others for entry in other.entries)]
    counts = [entry.sinks[name] for entry in every if name in entry.sinks]
    if positions is None or any(count.dropped is None or count.superseded for count in counts):
        report.proof[name] = "by count"
        _by_count(name, sink, entries, report)
        return
    report.proof[name] = "by offset"
    report.sinks.setdefault(name, sum(map(len, positions.values())))
    held = _once(other_ledgers.outside(positions, others) if others else positions, f"sink '{name}'", report)
    for partition, offsets in held.items():
        _invented(partition, offsets, records, f"sink '{name}'", report)
        elsewhere = np.setdiff1d(dead.get(partition, _NOTHING), refused.get(partition, _NOTHING))
        both = np.intersect1d(offsets, elsewhere)
        if len(both):
            report.findings.append(
                Finding(
                    "both",
                    f"{len(both)} records in sink '{name}' and among the dead letters",
                    None,
                    *partition,
                    _named(both),
                )
            )
    together = other_ledgers.shared(entries, others, report.in_flight) if others else []
    shared = {entry.batch for each in together for entry in each.own}
    for entry in entries:
        if entry.batch not in shared:
            _batch_in_sink(pipeline, name, entry, records, dead, held, report)
    all_held = {where: np.sort(np.array(offsets, dtype=np.int64)) for where, offsets in positions.items()}
    for each in together:
        _shared_in_sink(pipeline, name, each, records, dead, all_held, report)


def _shared_in_sink(
    pipeline: Pipeline, name: str, each: Shared, records: By, dead: By, held: By, report: Report
) -> None:
    """`held` has repetitions."""
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
            report.dropped[f"before {name}"] = report.dropped.get(f"before {name}", 0) + (count.dropped or 0)
            if wrong:
                _name_lost(pipeline, name, entry, count, records, dead, held, report)


def _without_replays(
    sink: Sink, positions: dict[Partition, list[int]] | None, replayed: list[Took], report: Report
) -> dict[Partition, list[int]] | None:
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


def _batch_in_sink(
    pipeline: Pipeline, name: str, entry: Entry, records: By, dead: By, held: By, report: Report
) -> None:
    count = entry.sinks.get(name)
    if count is None:
        return
    written = sum(len(_within(held, r)) for r in entry.ranges)
    report.dropped[f"before {name}"] = report.dropped.get(f"before {name}", 0) + (count.dropped or 0)
    found = sum(fingerprint.of_offsets(r.topic, r.partition, _within(held, r)) for r in entry.ranges)
    if written == count.written and found == (found if count.fingerprint is None else count.fingerprint):
        return
    text = f"sink '{name}' holds {written} records, the ledger says {count.written}"
    if written == count.written:
        text = f"sink '{name}' holds {written} records, but not those that were written to it"
    report.findings.append(Finding("sink-differs", text, entry.batch))
    _name_lost(pipeline, name, entry, count, records, dead, held, report)


def _name_lost(
    pipeline: Pipeline, name: str, entry: Entry, count: SinkCount, records: By, dead: By, held: By, report: Report
) -> None:
    dropped = sum(n for v in entry.views.values() for n in v.dropped.values()) + (count.dropped or 0)
    # Without drops every record that is nowhere is lost; with drops the steps must say which ones should be there.
    try:
        should = recount.expected(pipeline, entry, name) if dropped else None
    except Exception as error:  # the batch is wrong all the same; only its records cannot be named
        why = first_line(translate(error, build.home(pipeline).logs).cause)
        report.findings.append(Finding("not-named", f"which records are lost cannot be told: {why}", entry.batch))
        return
    for r in entry.ranges:
        nowhere = np.setdiff1d(np.setdiff1d(_within(records, r), _within(held, r)), _within(dead, r))
        if should is not None:
            nowhere = np.intersect1d(nowhere, should.get((r.topic, r.partition), []))
        if len(nowhere):
            text = f"{len(nowhere)} records are lost: neither in sink '{name}' nor dead nor dropped"
            report.findings.append(Finding("lost", text, entry.batch, r.topic, r.partition, _named(nowhere)))


def _by_count(name: str, sink: Sink, entries: list[Entry], report: Report) -> None:
    there = sink.rows_by_batch(entries[-1].query)
    if there is None:
        report.proof[name] = "not proven"
        report.unproven.append(f"sink '{name}' does not say which records it holds")
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


def _within(by: By, r: OffsetRange) -> Offsets:
    offsets = by.get((r.topic, r.partition), _NOTHING)
    first, end = np.searchsorted(offsets, [r.start, r.end])
    return offsets[first:end]


def _named(offsets: Iterable[int]) -> list[int]:
    return [int(o) for o in list(offsets)[:NAMED]]
