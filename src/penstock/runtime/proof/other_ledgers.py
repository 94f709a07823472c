"""Ledgers beside the one that `verify` judges: backfills write to the same sinks as the stream.

Where two of them read the same offsets, a sink holds a record once for each, and nobody can tell whose row is whose.
So batches that share offsets are judged together:

    1. the sink holds as many records of all their ranges, with repetitions, as their ledgers say together
    2. and the same ones: fingerprints are sums, and add up like the counts

What was read of a topic that was deleted and created again is in the sinks under the same offsets as what came after
it, and is judged with it in the same way.

What only other ledgers cover is theirs to prove. Where one of those batches is not finished, none of them is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.record import OffsetRange
from penstock.runtime import build, fingerprint
from penstock.runtime.proof.offsets import NOTHING, By, joined
from penstock.runtime.proof.renewed import Former
from penstock.runtime.proof.report import Finding
from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class Other:
    """A query of the pipeline beside the one that is judged."""

    said: str
    entries: Sequence[Entry]
    log: SparkLog | None = None

    @property
    def unfinished(self) -> list[OffsetRange]:
        """What is planned beyond the ledger, as of now: may be in the sinks or not. Ask after the sinks were read."""
        planned = self.log.planned() if self.log else None
        if self.log is None or planned is None:
            return []
        first = self.entries[-1].batch + 1 if self.entries else 0
        return [r for number in range(first, planned + 1) for r in self.log.ranges(number)]

    @property
    def ranges(self) -> list[OffsetRange]:
        return [*(r for entry in self.entries for r in entry.ranges), *self.unfinished]


@dataclass(frozen=True)
class Shared:
    """Batches that share offsets, of the judged ledger and of others."""

    own: list[Entry]
    others: list[tuple[str, Entry]]
    finished: bool

    @property
    def said(self) -> str:
        own = [f"batch {entry.batch}" for entry in self.own]
        return " and ".join([*own, *(f"batch {entry.batch} of {whose}" for whose, entry in self.others)])

    def differs(self, sink: str, held: By) -> Finding | None:
        """`held`: what the sink holds, sorted, with repetitions."""
        entries = [*self.own, *(entry for _, entry in self.others)]
        counts = [entry.sinks[sink] for entry in entries if sink in entry.sinks]
        there = fingers = 0
        for (topic, partition), spans in joined(r for entry in entries for r in entry.ranges).items():
            found = held.get((topic, partition), NOTHING)
            for start, end in spans:
                first, last = np.searchsorted(found, [start, end])
                there += int(last - first)
                fingers += fingerprint.of_offsets(topic, partition, found[first:last])
        said = sum(count.written for count in counts)
        if there != said:
            text = f"{self.said}: sink '{sink}' holds {there} records, the ledgers say {said}"
            return Finding("sink-differs", text, self.own[0].batch)
        known = [count.fingerprint for count in counts if count.fingerprint is not None]
        if len(known) == len(counts) and sum(known) != fingers:
            text = f"{self.said}: sink '{sink}' holds {there} records, but not those that were written to it"
            return Finding("sink-differs", text, self.own[0].batch)
        return None


def homes(pipeline: Pipeline, judged: str | None) -> dict[str, Home]:
    """Of every ledger but the judged one: the stream's (None), and those of the backfills."""
    stream = {"the stream": build.home(pipeline)} if judged is not None else {}
    names = (name for name in build.backfills(pipeline) if name != judged)
    return {**stream, **{f"backfill {name}": build.backfill_home(pipeline, name) for name in names}}


def found(pipeline: Pipeline, judged: str | None) -> list[Other]:
    """Every ledger but the judged one."""
    return [
        Other(said, list(Ledger(home.ledger).entries()), SparkLog(home.spark))
        for said, home in homes(pipeline, judged).items()
    ]


def shared(
    entries: Sequence[Entry], others: Sequence[Other], in_flight: Sequence[OffsetRange], former: Former
) -> list[Shared]:
    """Batches of `entries` that share offsets with a batch of another ledger, together with all of those; and those
    that read a topic which was deleted since, with whatever has the same offsets of the one that came after it."""
    nodes: list[tuple[str | None, Entry | None, Sequence[OffsetRange]]] = [(None, e, e.ranges) for e in entries]
    nodes += [(other.said, entry, entry.ranges) for other in others for entry in other.entries]
    nodes += [(other.said, None, other.unfinished) for other in others]
    nodes.append((None, None, in_flight))
    groups = []
    for members in _touching([ranges for _, _, ranges in nodes]):
        own = [e for whose, e, _ in (nodes[i] for i in members) if whose is None and e is not None]
        theirs = [(whose, e) for whose, e, _ in (nodes[i] for i in members) if whose is not None and e is not None]
        foreign = any(nodes[i][0] is not None for i in members)
        if own and (foreign or any(map(former.ranges, own))):
            groups.append(Shared(own, theirs, all(nodes[i][1] is not None for i in members)))
    return groups


def _touching(every: Sequence[Sequence[OffsetRange]]) -> list[list[int]]:
    """Which of them share an offset, directly or through others; each list of ranges is one of the numbers."""
    leader = list(range(len(every)))

    def of(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    spans = sorted(
        (r.topic, r.partition, r.start, r.end, i) for i, ranges in enumerate(every) for r in ranges if len(r)
    )
    at, end, last = None, 0, 0
    for topic, partition, start, stop, i in spans:
        if at == (topic, partition) and start < end:
            leader[of(i)] = of(last)
        else:
            at, end = (topic, partition), start
        if stop > end:
            end, last = stop, i
    groups: dict[int, list[int]] = {}
    for i in range(len(every)):
        groups.setdefault(of(i), []).append(i)
    return list(groups.values())
