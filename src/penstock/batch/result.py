"""What decode, contract, steps and sinks have made of a batch: who got what, and which records are dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.batch.bisect import Culprits
from penstock.batch.counts import Counted
from penstock.checkpoint.ledger import SinkCount, TopicFact, ViewCount
from penstock.record import Failure, Position
from penstock.sinks.contract import Written


@dataclass(frozen=True)
class Outcome:
    counted: Mapping[str, Counted]  # by source view: what decode and contract found
    written: Mapping[str, Written]  # by sink: what it says
    fingerprints: Mapping[str, int | None]  # by sink: of the records it holds
    over: Mapping[str, str | None]  # by sink: the source view whose rows it gets one for one
    failed: Culprits = field(default_factory=dict)  # steps fail on these

    @cached_property
    def rejected(self) -> dict[Position, Failure]:
        """Records that a sink refused, each once: the first sink that refuses one says why."""
        found: dict[Position, Failure] = {}
        for done in self.written.values():
            for row in done.rejected:
                found.setdefault((row.topic, row.partition, row.offset), row.why)
        return found

    @cached_property
    def failing(self) -> dict[Position, Failure]:
        """Records that a step fails on, each once, without those that a sink refused too."""
        return {at: why for some in self.failed.values() for at, why in some.items() if at not in self.rejected}

    @property
    def dead(self) -> int:
        return sum(found.counts.dead for found in self.counted.values()) + len(self.rejected) + len(self.failing)

    @property
    def letters_sent_along(self) -> int | None:
        """Dead letters that the sink has written with its rows; None where sinks do not."""
        sent = [done.letters for done in self.written.values()]
        return sent[0] if len(sent) == 1 else None

    def sinks_without(self) -> dict[Position, str]:
        """For each record that a step or a sink refused: the sinks that do not have it. Others may."""
        found: dict[Position, set[str]] = {}
        for name, done in self.written.items():
            for row in done.rejected:
                found.setdefault((row.topic, row.partition, row.offset), set()).add(name)
        for name, some in self.failed.items():
            for at in some:
                found.setdefault(at, set()).add(name)
        return {at: ",".join(sorted(names)) for at, names in found.items()}

    def view_counts(self, topics: Mapping[str, TopicFact]) -> dict[str, ViewCount]:
        by_view = Counter(topics[topic].view for topic, _, _ in (*self.rejected, *self.failing))
        return {view: replace(found.counts, rejected=by_view[view]) for view, found in self.counted.items()}

    def sink_counts(self, took: Mapping[str, float], *, lenient: bool = False) -> dict[str, SinkCount]:
        """`took`: seconds, by sink. `lenient`: a sink may hold more than records passed, and then nobody knows what was
        dropped."""
        counts = {}
        for name, done in self.written.items():
            view, failed = self.over[name], len(self.failed.get(name, ()))
            dropped = self.counted[view].counts.passed - done.all - failed if view else None
            counts[name] = SinkCount(
                written=done.rows,
                dropped=None if lenient and (dropped or 0) < 0 else dropped,
                fingerprint=self.fingerprints[name],
                superseded=done.superseded,
                rejected=len(done.rejected) + failed,
                failed=failed,
                seconds=round(took[name], 3),
            )
        return counts
