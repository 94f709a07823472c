"""The cap of a pipeline while it runs: measure each batch, decide (`control.rate`), apply.

    1. Before the query starts: which batch is fixed already, and so will be a replay?
    2. With the first batch: can the cap of the running query be changed (`throttle`)?
    3. After each batch: its duration, its offsets and the memory make a decision. Everyone who watches is told.
    4. A new cap is given to the running query; or, where that cannot be, the query is asked to be started again. Until
       it was, the new cap is only wanted: everyone is told of it again when it is in force.

The duration is that of our part of the batch, as `run` prints it: from Spark's call until the ledger entry is on disk.
What Spark does around it, to find the ends of partitions and to write its own logs, does not grow with the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import SparkLog
from penstock.control.rate import Decision, Measurement, Policy, State, decide
from penstock.spark.read_limit import Heap, NotChangeable, Throttle
from penstock.spec.model import Rate

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_STARTED_S = 30  # the query's handle is there before its first batch is; this only keeps a defect from waiting for ever
_WORTH_A_RESTART = 1.5  # a smaller change of the cap does not pay for a stop and a start


def policy(rate: Rate) -> Policy:
    """`min_offsets` is a floor too: Spark refuses a cap below it."""
    target = rate.target_batch.total_seconds() if rate.target_batch else None
    made = Policy(rate.max_offsets, target, max(rate.floor or 1, rate.min_offsets or 1), rate.ceiling)
    return replace(made, worth=_WORTH_A_RESTART) if rate.by_restart else made


class Regulator:
    """One for a run: what was learned outlives a query that is started again."""

    def __init__(self, rate: Rate, told: Callable[[Decision], None], warn: Callable[[str], None]) -> None:
        self.policy, self.told, self.warn = policy(rate), told, warn
        self.state = State.at_start(self.policy)
        self.restart = False  # the query has to be started again for the cap to count
        self._running: int = self.state.cap  # the cap that the query has
        self._in_place = not rate.by_restart
        self._wanted: Decision | None = None  # that waits for the next start of the query
        self._planned = -1
        self._fresh = True  # the query has run no batch since its start
        self._throttle: Throttle | None = None
        self._started = threading.Event()
        self._heap = Heap()

    @property
    def adaptive(self) -> bool:
        return self.policy.target is not None

    def starting(self, log: SparkLog) -> int:
        """Step 1, before each start of the query. Returns the cap to start it with."""
        planned = log.planned()
        self._planned = -1 if planned is None else planned
        self._running, self.restart, self._fresh = self.state.cap, False, True
        self._throttle = None
        self._started.clear()
        if self._wanted is not None:
            since, said = self._planned + 1, f"the query was started again; it counts from batch {self._planned + 1} on"
            self.told(replace(self._wanted, cap=self._running, reason="restarted", said=said, since=since))
            self._wanted = None
        return self._running

    def started(self, query: StreamingQuery) -> None:
        self._query = query
        self._started.set()

    def batch_begins(self) -> None:
        """Step 2. Called by the thread that runs the batches, before each of them."""
        if not self.adaptive or not self._in_place or self._throttle is not None:
            return
        try:
            if not self._started.wait(_STARTED_S):
                raise NotChangeable("the query was not handed over")
            throttle = Throttle(self._query)
            throttle.probe(self._running)
            self._throttle = throttle
        except NotChangeable as error:
            self._give_up(error)

    def batch_done(self, entry: Entry, seconds: float) -> None:
        """Steps 3 and 4. Called by the same thread: Spark plans the next batch when this has returned."""
        measured = Measurement(
            batch=entry.batch,
            seconds=seconds,
            offsets=sum(map(len, entry.ranges)),
            cap=self._running,
            partitions=len(entry.ranges),
            replay=entry.batch <= self._planned,
            memory=self._heap.after_collection() if self.adaptive else None,
            first=self._fresh,
        )
        self._fresh = False
        self.state, decision = decide(self.state, measured, self.policy)
        if self.state.cap != self._running:
            decision = self._applied(decision)
        if self.adaptive or decision.reason == "advice":
            self.told(decision)

    def _applied(self, decision: Decision) -> Decision:
        """Step 4. The decision as it can be told: with the cap that is in force now."""
        if self._throttle is not None:
            try:
                self._throttle.set(decision.cap)
                self._running = decision.cap
                return decision
            except NotChangeable as error:
                self._give_up(error)
        self.restart = True
        self._wanted = replace(decision, cap=self._running)
        return self._wanted

    def _give_up(self, error: NotChangeable) -> None:
        self._in_place, self._throttle = False, None
        self.policy = replace(self.policy, worth=_WORTH_A_RESTART)
        self.warn(
            f"this Spark does not let the cap of a running query be changed ({error}): the query is started again"
        )
