"""How often a driver died of the batch that is next: `<checkpoint>/attempts.json`.

A batch that needs more memory than there is takes its driver down, and Spark runs the same offsets again, for ever. So:

    1. Before a batch that was planned by an earlier run is run again, it is written down, synced.
    2. When it has its ledger entry, the note is removed.
    3. A run that ends by itself, well or with an error, notes that its batch did not kill it.
    4. A start that finds a planned batch without such a note knows that a driver died. After the second it stops.

Batches that were never run before cost nothing: a first death is known by what is missing. A batch that is in the
ledger is complete, and counts no deaths: it lacks only Spark's commit.
"""

from __future__ import annotations

import json
from contextlib import suppress

from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import BatchTooLarge, OutOfMemory, PenstockError, counted

MOST = 2  # deaths


class Attempts:
    """Made once per start, with the lock held and before anything runs: what it finds then is of earlier drivers."""

    def __init__(self, home: Home) -> None:
        self._log, self._file = SparkLog(home.spark), home.path / "attempts.json"
        self._ledger = Ledger(home.ledger)
        self.batch = self._unfinished()
        self.deaths = self._counted()  # of drivers whose batch it was

    def check(self, accepted: frozenset[str]) -> None:
        """Raises BatchTooLarge before the third attempt. A batch without records is never too large: such a one is
        there from early in a start (`batch.stateful.due`), and drivers die of other things then."""
        if self.batch is None or self.deaths < MOST:
            return
        if BatchTooLarge.code in accepted:
            self.forgive()
            return
        size = sum(map(len, self._log.ranges(self.batch)))
        if not size:
            return
        raise BatchTooLarge(
            f"the driver died {counted(self.deaths, 'time')} while it ran batch {self.batch} "
            f"of {counted(size, 'offset')}",
            cause="most often such a batch needs more memory than there is, and it would come again as it is",
            next_command="penstock split FILE, which makes the batch smaller; or, if it died of something else: "
            f"penstock run FILE --accept {BatchTooLarge.code}",
            facts={"batch": self.batch, "offsets": size, "deaths": self.deaths},
        )

    def begin(self, batch: int) -> None:
        """Step 1, before each batch. When this returns the note is on the disk."""
        if batch == self.batch:
            self._note(batch, self.deaths, running=True)

    def done(self, batch: int) -> None:
        """Step 2, after each batch."""
        if batch == self.batch:
            self._file.unlink(missing_ok=True)
            self.batch = None

    def ended(self, error: BaseException | None = None) -> None:
        """Step 3: the run is over, and this process lives. A note that cannot be written counts as a death; it must not
        take the place of the error the run ended with."""
        with suppress(OSError):
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        batch = self._unfinished()
        if batch is None:
            self._file.unlink(missing_ok=True)
            return
        before = self.deaths if batch == self.batch else 0
        self._note(batch, before + _is_death(error), running=False)

    def forgive(self) -> None:
        """The pending batch begins anew: it was split, or somebody knows better what the driver died of."""
        self.deaths = 0
        if self.batch is not None:
            self._note(self.batch, 0, running=False)

    def _unfinished(self) -> int | None:
        """The pending batch, unless the ledger has it."""
        batch = self._log.pending()
        last = None if batch is None else self._ledger.last()
        return None if last is not None and batch is not None and last.batch >= batch else batch

    def _counted(self) -> int:
        if self.batch is None:
            return 0
        try:
            noted = json.loads(self._file.read_text())
            if noted["batch"] == self.batch:
                return int(noted["deaths"]) + bool(noted["running"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none, or cut off by a crash
        return 1  # whoever planned it left no note of it

    def _note(self, batch: int, deaths: int, *, running: bool) -> None:
        put(self._file, json.dumps({"batch": batch, "deaths": deaths, "running": running}).encode())


def _is_death(error: BaseException | None) -> bool:
    """The driver lives, and says that the engine, a worker or an executor died: most often for want of memory."""
    return isinstance(error, OutOfMemory) or (isinstance(error, PenstockError) and "died" in error.facts)
