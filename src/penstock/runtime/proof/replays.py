"""What replays brought into the sinks, for `verify`: theirs is told from the stream's, and both are proven.

A record that died in the stream and was replayed is in the sink once, by the replay. So what replays brought is taken
out of what a sink holds before the stream's own batches are judged, and is judged by the ledgers of the replays:

    1. every record on a replay's list is in the sink at most once
    2. of each batch the sink holds as many records as the ledger says, and the same ones (by fingerprint)
    3. as many letters of each batch died again as the ledger says

A batch of a replay that is not finished may be in the sinks or not; its records are not judged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from penstock.checkpoint.ledger import Entry
from penstock.runtime import build, fingerprint
from penstock.runtime.inlet import Position
from penstock.runtime.proof.report import NAMED, Finding, Partition
from penstock.runtime.replay import replays
from penstock.runtime.replay.replays import Replay
from penstock.sink.contract import Forgetful, Sink
from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class Took:
    """One batch of a replay."""

    replay: Replay
    batch: int
    entry: Entry | None  # None: it is not finished
    records: dict[Position, list[str]]  # on its list -> the sinks that had it before
    died: dict[Position, str | None]  # again -> the sinks that do not have it; None: none of them has

    @property
    def said(self) -> str:
        return f"replay {self.replay.name}, batch {self.batch}"

    def brought_to(self, sink: str) -> set[Position]:
        """The records of this batch that only it can have brought into the sink."""
        again = {where for where, sinks in self.died.items() if sinks is None or sink in sinks.split(",")}
        return {where for where, before in self.records.items() if sink not in before} - again

    @property
    def dropped(self) -> Counter[str]:
        """By rule."""
        by_rules = [Counter(count.dropped) for count in self.entry.views.values()] if self.entry else []
        return sum(by_rules, Counter())

    @property
    def left_out(self) -> Counter[str]:
        """By sink: what steps or its condition left out before it."""
        if self.entry is None:
            return Counter()
        came_through = (before for where, before in self.records.items() if self.died.get(where, "") is not None)
        return Counter(replays.left_out_before(self.entry, came_through))


def took(pipeline: Pipeline) -> list[Took]:
    """Every batch of every replay. Reads the dead letters only where there was a replay."""
    there = replays.found(pipeline)
    if not there:
        return []
    died: dict[str, dict[Position, str | None]] = {replay.query: {} for replay in there}
    for letter in build.dead_letters(pipeline).read():
        if letter.query in died:
            died[letter.query][letter.position] = letter.sinks
    made = []
    for replay in there:
        entries = replay.entries()
        for number in replay.batches:
            records = {chosen.position: chosen.spared for chosen in replay.chosen(number)}
            again = {where: sinks for where, sinks in died[replay.query].items() if where in records}
            made.append(Took(replay, number, entries.get(number), records, again))
    return made


def within(batches: list[Took], entries: list[Entry]) -> bool:
    """Whether a replayed record is in a range of these: it is then not known which of them brought it."""
    chosen = {where for each in batches for where in each.records}
    ranges = [r for entry in entries for r in entry.ranges] if chosen else []
    return any((t, p) == (r.topic, r.partition) and r.start <= o < r.end for r in ranges for t, p, o in chosen)


def home_again(batches: list[Took]) -> int:
    """Letters that are dead no more."""
    return sum(len(each.records) - len(each.died) for each in batches if each.entry is not None)


def unfinished(batches: list[Took]) -> list[str]:
    count: Counter[str] = Counter()
    for each in batches:
        if each.entry is None:
            count[each.replay.name] += len(each.records)
    return [f"{n} letters of replay {name}, which is not finished" for name, n in count.items()]


def dead_again(batches: list[Took]) -> list[Finding]:
    found = []
    for each in batches:
        if each.entry is not None and len(each.died) != each.entry.dead:
            text = f"{each.said}: {len(each.died)} letters died again, the ledger says {each.entry.dead}"
            found.append(Finding("dead-letters-differ", text))
    return found


def apart(
    sink: str, held: dict[Partition, list[int]], batches: list[Took]
) -> tuple[dict[Partition, list[int]], list[Finding]]:
    """What the sink holds beside what replays brought, and what is wrong with what they brought."""
    wrong: list[Finding] = []
    brought: dict[Partition, set[int]] = {}
    for each in batches:
        for topic, partition, offset in each.brought_to(sink):
            brought.setdefault((topic, partition), set()).add(offset)
    times: Counter[Position] = Counter()
    rest: dict[Partition, list[int]] = {}
    for (topic, partition), offsets in held.items():
        here = brought.get((topic, partition), set())
        rest[topic, partition] = [offset for offset in offsets if offset not in here] if here else offsets
        times.update((topic, partition, offset) for offset in offsets if offset in here)
    for topic, partition in sorted({where[:2] for where, n in times.items() if n > 1}):
        twice = sorted(o for (t, p, o), n in times.items() if n > 1 and (t, p) == (topic, partition))
        text = f"{len(twice)} replayed records more than once in sink '{sink}'"
        wrong.append(Finding("duplicate", text, topic=topic, partition=partition, offsets=twice[:NAMED]))
    for each in batches:
        count = each.entry.sinks.get(sink) if each.entry is not None else None
        if count is None:
            continue
        there = each.brought_to(sink) & times.keys()
        found = sum(fingerprint.of_offset(*where) for where in there)
        if len(there) != count.written:
            text = f"{each.said}: sink '{sink}' holds {len(there)} records, the ledger says {count.written}"
            wrong.append(Finding("sink-differs", text))
        elif count.fingerprint is not None and count.fingerprint != found:
            text = f"{each.said}: sink '{sink}' holds {len(there)} records, but not those that were written to it"
            wrong.append(Finding("sink-differs", text))
    return rest, wrong


def by_count(sink: Sink, batches: list[Took]) -> tuple[list[Finding], list[str]]:
    """For a sink whose rows do not say where they came from: what is wrong, and what nobody can prove any more."""
    wrong: list[Finding] = []
    forgotten: dict[str, int] = {}
    held: dict[str, tuple[dict[int, int] | None, int]] = {}
    for each in batches:
        count = each.entry.sinks.get(sink.name) if each.entry is not None else None
        query = each.replay.query
        if query not in held:
            held[query] = sink.rows_by_batch(query), sink.remembered_from(query) if isinstance(sink, Forgetful) else 0
        rows, since = held[query]
        if count is None or rows is None:
            continue
        if each.batch < since:
            forgotten[each.replay.name] = each.batch
        elif rows.get(each.batch, 0) != count.written:
            text = (
                f"{each.said}: sink '{sink.name}' holds {rows.get(each.batch, 0)} rows, the ledger says {count.written}"
            )
            wrong.append(Finding("sink-differs", text))
    return wrong, [
        f"sink '{sink.name}': its own history no longer tells of batches 0 to {last} of replay {name}"
        for name, last in forgotten.items()
    ]
