"""Checks of replays: Spark runs a batch that it could not commit again, whatever the crash left behind.

The moments, in the order of a batch: before the write; during it (a task that never gets all its rows, a task that is
run again, a process killed with SIGKILL); after the write, when its result is lost; after the ledger entry, before
Spark's commit. `replay` goes through those in which the sink itself was not disturbed.
"""

from __future__ import annotations

from penstock.sinks.contract import Written
from penstock.testing import doomed
from penstock.testing.mishap import Fails
from penstock.testing.portion import Portion
from penstock.testing.trial import Broken, Trial
from penstock.testing.writing import says_what_it_holds

_MANY = 3_000  # rows of each input partition: more than the pipe between engine and worker keeps back


def replay(trial: Trial) -> None:
    """A batch that is run again leaves the place as it was, and the answer is the same: after a crash before the write,
    between write and ledger, between ledger and commit, and when the same sink is asked again."""
    first, second = trial.numbered(), trial.numbered()
    trial.begin(first)
    once = trial.write(trial.again(first), first, replay=True)
    trial.expect(first, when="after a crash before the write")
    _same(trial, trial.write(trial.again(first), first, replay=True), once)
    trial.expect(first, when="after a crash between write and ledger")
    sink = trial.again(first, written=first)
    _same(trial, trial.write(sink, first, replay=True), once)
    trial.expect(first, when="after a crash between ledger and commit")
    then = trial.write(sink, second, replay=False)
    _same(trial, trial.write(sink, second, replay=True), then)
    trial.expect(first, second, when="after a batch was written again by the same sink")
    if trial.exactly_once:
        says_what_it_holds(trial, (first, once), (second, then))


def crash_during_write(trial: Trial) -> None:
    """A write that fails halfway shows no reader a part of its batch, and the replay writes all of it."""
    first = trial.numbered(_MANY)
    trial.write_and_crash(trial.begin(first), first, Fails())
    trial.seen_whole(first, "after a write that failed")
    trial.write(trial.again(first), first, replay=True)
    trial.expect(first, when="after the replay of a write that failed")


def task_run_again(trial: Trial) -> None:
    """A task that fails halfway and is run again by the engine leaves each of its rows once."""
    first = trial.numbered(_MANY)
    sink = trial.begin(first)
    rows = trial.stumbling(first.frame(trial.spark), Fails(attempts=1))
    try:
        sink.write(trial.batch(first), rows, replay=True)
    except Exception:  # an engine that gives a task one attempt only: the batch is run again
        trial.write(trial.again(first), first, replay=True)
    trial.expect(first, when="after a task was run again")


def killed(trial: Trial) -> None:
    """A process that is killed while it writes, halfway or near the end, leaves what its replay makes one batch of."""
    victim = Victim(trial)
    for moment in doomed.MOMENTS:
        doomed.kill([victim.next(moment)], trial.spark)
        victim.survives()


class Victim:
    """A pipeline whose next batch is written by a process that dies. Several can die in one process: `doomed.kill`."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.moment = trial, doomed.MOMENTS[0]
        self.done: list[Portion] = []
        first = trial.numbered()
        trial.write(trial.begin(first), first, replay=True)
        self.done.append(first)

    def next(self, moment: doomed.Moment) -> doomed.Doomed:
        self.moment, portion = moment, self.trial.numbered(_MANY)
        self.done.append(portion)
        whose = self.trial.subject, self.trial.pipeline, self.trial.query
        return doomed.Doomed(*whose, written=self.done[-2], portion=portion, moment=moment)

    def survives(self) -> None:
        """After the kill: no part of the batch is seen, and its replay makes it whole."""
        *before, portion = self.done
        when = f"after the process was killed {self.moment}"
        self.trial.seen_whole(portion, when)
        self.trial.write(self.trial.again(portion, written=before[-1]), portion, replay=True)
        self.trial.expect(*self.done, when=f"{when} and the batch was written again")


def _same(trial: Trial, now: Written, once: Written) -> None:
    """Or the replay's ledger entry and its dead letters would be others."""
    if trial.exactly_once and (now.rows, now.superseded, set(now.rejected)) != (
        once.rows,
        once.superseded,
        set(once.rejected),
    ):
        raise Broken(f"a replay says of the batch what the first write said: {once}", now)
