"""Counting a batch while it is written, so that counting costs no second read."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.batch import fingerprint
from penstock.checkpoint.ledger import ViewCount
from penstock.contract.verdict import Contract
from penstock.errors import EngineFailed, ExecutorLost, SinkFailed
from penstock.spark.write_errors import engine_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

_TASK = "__penstock_task"
_ROW_OF_A_TASK = (1 << 33) - 1  # the bits of `monotonically_increasing_id` that count rows; the others say which task
# An observation is complete when the action that ran it returns. Where the table skipped the write because another
# process had just made the same commit, it never will be.
_PATIENCE_S = 60


@dataclass(frozen=True)
class Counted:
    """What became of one view's records, and where the dead ones are: topic, partition, offset; None: not asked."""

    counts: ViewCount
    dead_at: list[tuple[str, int, int]] | None


class Tally:
    """The counts of one view's judged rows.

    With one reader of the rows they are observed on their way (no cost but the counting). With several readers the
    rows are kept after the first one, so that Kafka is read and decoded once for all of them.
    """

    def __init__(self, contract: Contract, judged: DataFrame, *, shared: bool, locate: bool) -> None:
        from pyspark import StorageLevel
        from pyspark.sql import Observation

        self._contract = contract
        self._wanted = [*contract.counts(), *([contract.dead_at()] if locate else [])]
        self._kept = judged.persist(StorageLevel.MEMORY_AND_DISK) if shared else None
        self._observation = Observation()
        self.rows = self._kept if self._kept is not None else _observing(judged, self._observation, self._wanted)

    def result(self) -> Counted:
        """Call after the sinks have run."""
        if self._kept is not None:
            row = self._kept.agg(*self._wanted).first()
            found: dict[str, Any] = row.asDict() if row else {}
        else:
            found = _observed(self._observation)
        positions = found.pop("dead_at", None)
        read, passed, *by_verdict = found.values()
        took = dict(zip(self._contract.verdicts, by_verdict, strict=True))
        at = None if positions is None else [(row["topic"], row["partition"], row["offset"]) for row in positions]
        return Counted(self._contract.counted(read, passed, took), at)

    def release(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()


class Handed:
    """The rows on their way to one sink: how many, and which."""

    def __init__(self, rows: DataFrame) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._observation = Observation()
        which = fingerprint.of_rows(rows)
        wanted = [F.count(F.lit(1)).alias("count"), *([] if which is None else [which.alias("fingerprint")])]
        self.rows = _observing(rows, self._observation, wanted)

    def result(self) -> tuple[int, int | None]:
        """Count and fingerprint. Call after an action has run over `rows`."""
        found = _observed(self._observation)
        return found["count"], found.get("fingerprint")


def _observing(rows: DataFrame, observation: Observation, wanted: list[Column]) -> DataFrame:
    """The rows, which are counted when they pass; and with them the tasks, each by its first row."""
    from pyspark.sql import functions as F

    row = F.monotonically_increasing_id()
    first = F.when(row.bitwiseAND(_ROW_OF_A_TASK) == 0, row)
    return rows.withColumn(_TASK, first).observe(observation, *wanted, F.collect_list(_TASK).alias(_TASK)).drop(_TASK)


def _observed(observation: Observation) -> dict[str, Any]:
    """What was asked for.

    Raises ExecutorLost when tasks had counted their rows, and did it again: what they had made for the tasks after them
    was lost. Such rows are counted twice, here and by the sink."""
    found: list[dict[str, Any]] = []

    def wait() -> None:
        with suppress(*engine_errors()):  # the engine left the rows out of its plan, and counted none
            found.append(observation.get)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(_PATIENCE_S)
    if not found and not waiter.is_alive():
        raise EngineFailed(
            "the engine ended a batch without counting its rows",
            cause="it saw on the way that they could not reach the sink, and did not read them",
            next_command="report it, with the steps of the spec; nothing of the batch is committed",
        )
    if not found:
        raise SinkFailed(
            "the batch was written by somebody else at the same moment",
            cause="another process runs this pipeline on a copy of its checkpoint, or an old one is still ending",
            next_command="stop the other process and start again: the batch will be found complete",
        )
    tasks = found[0].pop(_TASK)
    if len(tasks) > len(set(tasks)):
        raise ExecutorLost(
            "tasks that had ended ran again in the middle of a batch, and counted their rows twice",
            cause="an executor was lost, or the rows it had made for others could not be fetched from it",
            next_command="nothing: the batch is run again; if that goes on, look why executors end "
            "(`spark.executor.memory`), then: penstock run FILE",
        )
    return found[0]
