"""What follows a batch, and what follows a failure: the same for a stream, in real time too, a backfill and a replay.

1. A batch that ended is told, and what was lost in it.
2. A failure is put into our words; which offsets are gone Kafka says. What cannot be helped by waiting ends the run.
3. What can is told, waited for, and the batch is run again by an assembly that is sure of nothing it had open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.batch.failure import translate
from penstock.batch.run import Assembly
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry
from penstock.deadletters.store import dead_letters
from penstock.errors import OffsetsVanished, counted
from penstock.lifecycle.retry_policy import Patience
from penstock.source.position import lost_now
from penstock.spark import death, session
from penstock.watch import StopRequest, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Perseverance:
    """Made once per start."""

    home: Home
    watch: Watch
    stop: StopRequest
    patience: Patience
    disks: Disks

    def listen(self, assembly: Assembly) -> None:
        """From here on the watch hears what readers, steps and batches have to say."""
        assembly.readers.heard_by(self.watch.warn)
        assembly.transform.heard_by(self.watch)
        assembly.heard_by(self.watch)
        self.disks.look()

    def after_batch(self, entry: Entry, seconds: float) -> None:
        self.patience.batch_done()
        self.disks.look()
        self.watch.batch_done(entry, seconds)
        for text in losses(entry):
            self.watch.warn(text)

    def after_failure(self, failure: BaseException, assembly: Assembly) -> Assembly | None:
        """What runs the batch again; None: a stop was asked for, and the batch runs at the next start. Raises the
        failure in our words when nothing else helps."""
        log = self.home.logs / session.LOG_NAME
        if died := death.of_engine():  # asked first: what PySpark says of a failure it asks the engine for
            raise died from failure
        failure = assembly.blamed(failure)
        error = translate(failure, log, self.disks)
        if isinstance(error, OffsetsVanished):  # the engine names the one partition that it has stumbled over
            error = lost_now(assembly.pipeline, assembly.log, assembly.topics.known) or error
        if error.retryable and self.stop.asked:
            return None  # nothing of the batch counts yet
        again = self.patience.failed(error, time.monotonic())
        if again is None:
            if error is failure:
                raise error  # with the cause it has
            raise error from failure
        self.watch.retrying(error, again.after_s)
        if again.give_up:
            said = "the registry stayed away: `unreadable` now decides about records whose schema is not known"
            self.watch.warn(said)
            assembly.readers.given_up = True
            assembly.look_up_anew()
        if self.stop.asked_within(again.after_s):
            return None
        self.disks.look(again=True)
        # In doubt are what it had open, and whether the batch was written. Schemas are those of the start.
        return replace(assembly, dead_letters=dead_letters(assembly.pipeline), replay=True)

    def run_each(
        self,
        batches: Iterable[int],
        assembly: Assembly,
        read: Callable[[Assembly, int], DataFrame],
        commit: Callable[[int], None],
    ) -> None:
        """Batches that are written down, one after another, each until it has ended; or until a stop is asked for."""
        for number in batches:
            entry = None
            while entry is None:
                if self.stop.asked:
                    return
                began = time.monotonic()
                try:
                    entry = assembly.process(read(assembly, number), number)
                except Exception as failure:
                    renewed = self.after_failure(failure, assembly)
                    if renewed is None:
                        return
                    assembly = renewed
            commit(number)
            self.after_batch(entry, time.monotonic() - began)


def losses(entry: Entry) -> list[str]:
    """What to say of a batch that did not get everything (S8)."""
    said = [f"{counted(len(lost), 'offset')} expired unread: {lost}" for lost in entry.lost]
    return [*said, entry.doubt] if entry.doubt else said
