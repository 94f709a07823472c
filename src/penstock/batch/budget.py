"""The dead-letter budget (Q6): where too many records of a batch would die, the pipeline is broken and not the records.

Judged when decode and contract have been counted and before a sink is written, so that the batch can run again after a
mend, with other records in it: nothing of it is anywhere yet.

Small batches never have many dead records, so the batches before are taken into account too: the share is taken over
this batch, over it and the one before, and so on, and the worst one counts. Records that a step or a sink refuses are
known only after the write; they count from the next batch on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from penstock.batch.counts import Counted
from penstock.batch.source_view import Inlet
from penstock.checkpoint.ledger import Entry
from penstock.deadletters.reason import pattern
from penstock.errors import DeadLetterBudget
from penstock.spec.model import Budget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOGETHER = 20  # batches over which a share is taken, at most
_LOOKED_AT = 1000  # dead records of the batch whose reasons the error counts
_NAMED = 10  # reasons in the error's text; its facts have all of them


@dataclass(frozen=True)
class Share:
    """Dead records among those read, over some batches that end with the newest."""

    read: int = 0
    dead: int = 0
    batches: int = 0

    def with_batch(self, read: int, dead: int) -> Share:
        return Share(self.read + read, self.dead + dead, self.batches + 1)

    @property
    def of_all(self) -> float:
        return self.dead / self.read if self.read else 0.0


def exceeded(budget: Budget, now: tuple[int, int], before: Iterable[tuple[int, int]]) -> Share | None:
    """The worst share above the budget, None where there is none. `before`: read and dead, the newest batch first."""
    taken, worst = Share(), None
    for read, dead in [now, *before][:TOGETHER]:
        taken = taken.with_batch(read, dead)
        over = taken.dead >= budget.at_least and taken.of_all > budget.share
        if over and (worst is None or taken.of_all > worst.of_all):
            worst = taken
    return worst


@dataclass(frozen=True)
class Spent:
    """By one batch."""

    batch: int
    read: int
    dead: int


@dataclass
class Spending:
    """What the last batches spent of the budget. From the ledger, so that a restart forgets nothing."""

    budget: Budget
    before: list[Spent] = field(default_factory=list)  # the newest first
    let_through: int | None = None  # the batch that the operator accepted last

    @classmethod
    def since(cls, budget: Budget, entries: Iterable[Entry]) -> Spending:
        """`entries`: the newest, the oldest of them first. The last may be of a batch that will run again."""
        made = cls(budget)
        for entry in entries:
            made.spent(entry)
        return made

    def spent(self, entry: Entry) -> None:
        earlier = self._before(entry.batch)  # not what the same batch spent when it ran before
        if DeadLetterBudget.code in entry.accepted or entry.batch == self.let_through:  # does not count again
            self.before, self.let_through = [], entry.batch
        else:
            self.before = [Spent(entry.batch, entry.read, entry.dead), *earlier][:TOGETHER]

    def over(self, batch: int, read: int, dead: int) -> Share | None:
        """A batch whose entry was written and that Spark has not committed runs again: it is judged as it was then."""
        if batch == self.let_through:
            return None
        return exceeded(self.budget, (read, dead), [(each.read, each.dead) for each in self._before(batch)])

    def _before(self, batch: int) -> list[Spent]:
        return [each for each in self.before if each.batch < batch]

    def check(self, batch: int, raw: DataFrame, inlets: Iterable[Inlet], counted: dict[str, Counted]) -> None:
        """Raises DeadLetterBudget, with the reasons: the letters of this batch are not written."""
        read = sum(found.counts.read for found in counted.values())
        dead = sum(found.counts.dead for found in counted.values())
        share = self.over(batch, read, dead)
        if share is not None:
            raise stop(self.budget, batch, dead, share, reasons(raw, inlets, counted) if dead else [])


def reasons(raw: DataFrame, inlets: Iterable[Inlet], counted: dict[str, Counted]) -> list[dict[str, object]]:
    """What is wrong with the records that would die, the most frequent first, with one of each."""
    parts = [inlet.dead_rows(raw, counted[inlet.view]) for inlet in inlets if counted[inlet.view].counts.dead]
    dead = reduce(lambda a, b: a.unionByName(b), parts)
    count: Counter[tuple[str, str, str]] = Counter()
    sample: dict[tuple[str, str, str], str] = {}
    columns = ("topic", "partition", "offset", "stage", "error_class", "reason")
    for row in dead.select(*columns).limit(_LOOKED_AT).collect():
        group = (row["stage"], row["error_class"], pattern(row["reason"]))
        count[group] += 1
        sample.setdefault(group, f"{row['topic']}-{row['partition']} offset {row['offset']}: {row['reason']}")
    return [
        {
            "stage": stage,
            "class": error_class,
            "reason": reason,
            "count": n,
            "sample": sample[stage, error_class, reason],
        }
        for (stage, error_class, reason), n in count.most_common()
    ]


def named(reasons: list[dict[str, object]]) -> list[str]:
    """Reasons as lines."""
    told = [
        f"{each['count']} × {each['stage']}, {each['class']}: {' '.join(str(each['sample']).splitlines())}"
        for each in reasons[:_NAMED]
    ]
    rest = len(reasons) - len(told)
    return [*told, *([f"{rest} more reason{'s' * (rest != 1)}"] if rest else [])]


def stop(budget: Budget, batch: int, dead: int, share: Share, reasons: list[dict[str, object]]) -> DeadLetterBudget:
    """The letters of the batch are not written: what is wrong with its records is to be read here and nowhere else.
    `reasons`: the most frequent first."""
    over = f"batch {batch}" if share.batches == 1 else f"batch {batch} and the {share.batches - 1} before it"
    looked_at = [f"of the first {_LOOKED_AT:,}:"] if dead > _LOOKED_AT else []
    earlier = share.dead - dead
    before = [f"{earlier:,} are of earlier batches, `penstock dlq stats` shows them"] if earlier else []
    return DeadLetterBudget(
        f"{share.dead:,} of {share.read:,} records of {over} are dead ({share.of_all:.1%}), "
        f"the budget is {budget.share:.1%}",
        cause="\n".join([*looked_at, *named(reasons), *before]),
        next_command="nothing of the batch is written: fix the spec or the producer, then: penstock run FILE; "
        f"or let this batch through: penstock run FILE --accept {DeadLetterBudget.code}",
        facts={
            "batch": batch,
            "read": share.read,
            "dead": share.dead,
            "share": round(share.of_all, 6),
            "budget": budget.share,
            "batches": share.batches,
            "reasons": reasons,
        },
    )
