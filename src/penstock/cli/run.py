"""`penstock run`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import BadArgument, PenstockError


@app.command()
def run(
    file: SpecFile,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Process what is in Kafka now, then end.")
    ] = False,
    first: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="POSITION", help="Backfill from here: earliest, a time, topic:partition=offset,..."
        ),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="POSITION", help="Backfill up to here, not including it.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Name of the backfill. Default: from --from and --to."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept", metavar="CODE", help="Go on although this fact stops the pipeline (an error says when)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline. SIGTERM and Ctrl-C end it at a batch boundary, and so does a terminal that is closed; a second
    Ctrl-C ends it at once.

    With --from and --to: send that range of offsets through the same spec, once, beside the stream and its checkpoint.
    """
    from penstock.checkpoint.attempts import Attempts
    from penstock.checkpoint.log import SparkLog
    from penstock.cli import live
    from penstock.runtime import backfill, build, supervise
    from penstock.runtime.watch import StopRequest
    from penstock.spec.load import load
    from penstock.spec.real_time import batch_of

    if (first is None) != (end is None) or (name and first is None):
        raise BadArgument("a backfill needs both --from and --to", next_command="penstock run --help")
    if first is not None and (until_caught_up or accept):
        raise BadArgument("a backfill takes neither --until-caught-up nor --accept", next_command="penstock run --help")
    pipeline = load(file)
    display = live.watch(as_json)
    stop, empty = StopRequest(), False

    def asked(number: int) -> None:
        if stop.asked and number == signal.SIGINT:
            output.note("ended in the middle of a batch: it will be run again")
            if first is None:
                with suppress(OSError, PenstockError):
                    Attempts(build.home(pipeline)).forgive()  # it did not die of the batch
            os._exit(130)
        if stop.asked:
            return  # `timeout` sends it twice: to the process, and to its group
        stop.ask()
        at_once = first is None and batch_of(pipeline.trigger) is not None
        output.note("stopping" if at_once else "stopping at the end of this batch")

    _heed(asked)
    try:
        if first is not None and end is not None:
            at = backfill.run(pipeline, backfill.Range(first, end), name, watch=display, stop=stop)
            empty = SparkLog(at.spark).planned() is None
            if not empty:
                proof = f"its proof: penstock verify {file} --backfill {at.path.name}"
                output.note(f"backfill {at.path.name}; {'to go on: the same command' if stop.asked else proof}")
        else:
            supervise.run(pipeline, until_caught_up=until_caught_up, accept=accept or (), watch=display, stop=stop)
    finally:
        display.close()
    facts = display.summary()
    if as_json:
        live.say("ended", **facts)
        return
    ended = "stopped" if stop.asked else "caught up"
    if first is not None and not stop.asked:
        before = "there is no offset in the range" if empty else "the range was done before, nothing is left of it"
        ended = "the range is done" if facts["batches"] else before
    written = ", ".join(f"{n:,} to {name}" for name, n in facts["written"].items()) or "none written"
    output.say(
        f"{pipeline.name}: {ended}; {facts['read']:,} records in "
        f"{facts['batches']} batches ({facts['seconds']} s): "
        f"{written}, {facts['dead_letters']:,} dead letters, {facts['dropped']:,} dropped"
        f"{live.left_out(facts['left_out'])}"
    )
    sys.stdout.flush()


def _heed(asked: Callable[[int], None]) -> None:
    """Let signals that ask for an end ask for it, and not end the process."""
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def come(number: int, _frame: FrameType | None) -> None:
        leave_closed(terminals)
        asked(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, come)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup`: it goes on when the terminal is closed
        signal.signal(signal.SIGHUP, come)


def leave_closed(terminals: Iterable[int]) -> None:
    """What is still to be said to a terminal that was closed goes nowhere: written to it, it would fail the run."""
    for descriptor in terminals:
        if not os.isatty(descriptor):
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), descriptor)
