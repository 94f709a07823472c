"""Checks of who else writes: a second process at the same moment, another query, a place that has lost batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import Stopped, TableOfAnotherQuery, from_worker
from penstock.sinks.contract import Written
from penstock.testing.mishap import Waits
from penstock.testing.portion import PLAIN
from penstock.testing.trial import Broken, Trial, require


def two_attempts_at_once(trial: Trial) -> None:
    """Of two processes that write the same batch at the same moment one may fail; the batch is there once."""
    first, second = trial.numbered(), trial.numbered()
    trial.write(trial.begin(first), first, replay=True)
    gate, outcomes = threading.Barrier(2), list[Written | Exception]()

    def attempt() -> None:
        session = trial.spark.newSession()  # as two processes: what one sets for its write the other does not see
        session.createDataFrame([], "nothing int")  # makes it the session of this thread
        own = Trial(trial.subject, session, trial.pipeline, trial.query)
        try:
            sink = own.start(second, written=first)
            rows = own.stumbling(second.frame(session), Waits(0.5))
            gate.wait(60)
            outcomes.append(sink.write(own.batch(second), rows, replay=True))
        except Exception as error:
            outcomes.append(error)

    both = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(300)
    require(len(outcomes) == len(both), "`write` comes to an end when another process writes the same batch")
    for done in outcomes:
        require(
            isinstance(done, Exception) or done.all == len(second.rows),
            "an attempt that did not fail accounts for every row",
            done,
        )
    trial.seen_whole(second, "after two attempts at once")
    trial.write(trial.again(second, written=first), second, replay=True)
    trial.expect(first, second, when=f"after two attempts at once ({', '.join(map(_kind, outcomes))}) and a replay")


def another_query(trial: Trial) -> None:
    """A new checkpoint begins at batch 0 again: it is refused; once that is accepted, it is not taken for written."""
    first = trial.numbered()
    trial.write(trial.begin(first), first, replay=True)
    other = Trial(trial.subject, trial.spark, trial.pipeline)
    if trial.exactly_once:
        _refused(
            lambda: other.start(first, new=True),
            "`prepare` refuses a new checkpoint where an older one of the same pipeline has written",
        )
    new = other.listed(PLAIN, [{"id": 77, "text": "of another query", "n": 1}])
    sink = other.start(new, new=True, accepted=[TableOfAnotherQuery.code])
    other.write(sink, new, replay=True)
    other.expect(first, new, when="after batch 0 of another query")


def lost_batches(trial: Trial) -> None:
    """A place that has lost a batch which the ledger says it got stops the pipeline, before anything is written."""
    first, lost, second = trial.numbered(), trial.numbered(), trial.numbered()
    trial.write(trial.begin(first), first, replay=True)

    def go_on() -> None:
        sink = trial.start(second, written=lost)
        sink.write(trial.batch(second), second.frame(trial.spark), replay=True)

    _refused(go_on, "`prepare`, or the first write after it, stops where a batch of the ledger is missing")
    trial.expect(first, when="after a start that was refused")


def _refused(start: Callable[[], object], demand: str) -> None:
    try:
        start()
    except Stopped:
        return
    except Exception as error:
        if isinstance(from_worker(str(error)), Stopped):
            return
        raise Broken(f"{demand}, with an error of kind Stopped", repr(error)) from error
    raise Broken(demand, "it went on")


def _kind(outcome: Written | Exception) -> str:
    return type(outcome).__name__
