"""A pipeline from topic to topic, and the judge of what came out of it.

The judge is a read_committed consumer that is not ours, and the producer's ledger: the places carried in a header are
those of the acknowledged records, each once; in order per input partition; at every moment a prefix without gaps; and
no transaction is left open.
"""

from __future__ import annotations

from collections import Counter

from penstock.testing.acknowledged import Acknowledged, Place, places
from tests.committed import Seen, committed, hidden
from tests.crash.driver import Driver
from tests.crash.score import keep_score
from tests.payments import Payments

WAYS = ("exactly-once-by-batch", "exactly-once-by-partition", "one pass", "one pass by batch")
POINTS = ("before-init", "after-init", "mid-produce", "after-offsets", "during-commit", "after-commit")


class Forward:
    """The payments of one topic into another, each with a header that says which record it was."""

    def __init__(self, payments: Payments, way: str) -> None:
        self.payments, self.way, self.out = payments, way, f"{payments.topic}-out"
        payments.create(self.out, 2)
        one_pass = way.startswith("one pass")
        by = "exactly-once-by-batch" if way.endswith("by batch") else "exactly-once-by-partition"
        self.kafka = {
            "topic": self.out,
            "key": {"format": "string", "column": "account"},
            "origin": True,
            "guarantee": by if one_pass else way,
        }
        payments.spec["sinks"] = {"out": {"from": "payments" if one_pass else "settled", "kafka": self.kafka}}
        if one_pass:  # no SQL between: decoded, judged, encoded and sent by the same worker
            payments.spec["transform"] = []
            drop = {"name": "void", "rule": "status <> 'VOID'", "otherwise": "drop"}
            payments.spec["contract"]["payments"].append(drop)
        payments.spec["rate"]["max_offsets"] = 600
        # Small Arrow batches: a task must have sent some records and not yet others when it dies.
        payments.spec["spark"]["conf"] = {"spark.sql.execution.arrow.maxRecordsPerBatch": 50}

    def seen(self, *, to_the_end: bool = True) -> list[Seen]:
        return committed(self.payments.bootstrap, self.out, to_the_end=to_the_end)

    def given_up(self) -> int:
        """Records in the topic that readers never see: those of transactions that nobody committed."""
        return len(committed(self.payments.bootstrap, self.out, isolation="read_uncommitted")) - len(self.seen())

    def buried(self, *, to_the_end: bool = True) -> Counter[Place]:
        """Where the dead letters came from, as a reader that is not ours sees them."""
        found: Counter[Place] = Counter()
        for each in committed(self.payments.bootstrap, f"{self.payments.topic}.DLT", to_the_end=to_the_end):
            said = {name: (value or b"").decode() for name, value in each.headers if name.startswith("penstock.")}
            found[said["penstock.topic"], int(said["penstock.partition"]), int(said["penstock.offset"])] += 1
        return found

    def keep_score(self, driver: Driver, sent: list[Acknowledged], killed: str = "driver") -> None:
        keep_score(f"kafka, {self.way}", driver, sent, Counter(each.origin for each in self.seen()), killed)


def judge(forward: Forward, sent: list[Acknowledged], *, finished: bool = True) -> list[str]:
    """What is wrong with what readers see, so that a test can also show that it finds something wrong."""
    wrong = []
    bootstrap, topics = forward.payments.bootstrap, (forward.out, f"{forward.payments.topic}.DLT")
    all_ended = finished or not hidden(bootstrap, *topics)  # before anything is read: nobody writes now
    expected = Counter(place for part in sent for place in places(part.kept()))
    seen = forward.seen(to_the_end=finished)
    found = Counter(each.origin for each in seen)
    lost, extra = expected - found, found - expected
    if extra:
        wrong.append(f"{extra.total()} repeated or invented, e.g. {min(extra)}")
    if finished and lost:
        wrong.append(f"{lost.total()} lost, e.g. {min(lost)}")
    died = Counter(place for part in sent for place in places(part.poison()))
    buried = forward.buried(to_the_end=finished)
    if finished and died != buried:
        wrong.append(f"dead letters: {(died - buried).total()} lost, {(buried - died).total()} repeated or invented")
    wrong += _gaps("what is visible", found, expected)
    # One transaction for both, so neither is ahead of the other; but one may be hidden behind one that is open.
    if all_ended and forward.way != "exactly-once-by-batch":
        wrong += _gaps("rows and dead letters", found + buried, expected + died)
    in_order: dict[tuple[int, str, int], int] = {}
    for each in seen:
        topic, partition, offset = each.origin
        if in_order.get((each.partition, topic, partition), -1) > offset:
            wrong.append(f"{each.origin} came after a later one")
        in_order[each.partition, topic, partition] = offset
    return wrong


def _gaps(what: str, found: Counter[Place], expected: Counter[Place]) -> list[str]:
    """Input partitions of which something is visible and something before it is not."""
    wrong = []
    for place in sorted({(topic, partition) for topic, partition, _ in expected}):
        here = sorted(offset for t, p, offset in found if (t, p) == place)
        if here != sorted(offset for t, p, offset in expected if (t, p) == place)[: len(here)]:
            wrong.append(f"{what} of {place} has gaps")
    return wrong
