"""`penstock run`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.cli.signals import StoppedInStart, heeded
from penstock.errors import BadArgument, PenstockError

if TYPE_CHECKING:
    import threading

    from penstock.cli.live import Display
    from penstock.spec.model import Pipeline
    from penstock.watch import StopRequest

_HEARD_WITHIN_S = 0.2  # the thread that hears of signals may be behind the main one


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
            "--accept",
            metavar="CODE",
            callback=output.known_codes,
            help="Go on although this fact stops the pipeline (an error says when).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline. SIGTERM and Ctrl-C end it at a batch boundary, and so does a terminal that is closed; a second
    Ctrl-C ends it at once. While it starts, the first one does.

    With --from and --to: send that range of offsets through the same spec, once, beside the stream and its checkpoint.
    """
    from penstock.spec.load import load

    if (first is None) != (end is None) or (name and first is None):
        raise BadArgument("a backfill needs both --from and --to", next_command="penstock run --help")
    if first is not None and (until_caught_up or accept):
        raise BadArgument("a backfill takes neither --until-caught-up nor --accept", next_command="penstock run --help")
    pipeline = load(file)

    from penstock.checkpoint.log import SparkLog
    from penstock.cli import live
    from penstock.lifecycle import backfill, stream
    from penstock.watch import StopRequest

    display = live.watch(as_json)
    stop, empty = StopRequest(), False

    try:
        asked = _asked(pipeline, stop, display, is_backfill=first is not None)
        with heeded(asked, lambda: not display.running) as came_in_start, _no_failure_of(came_in_start, display):
            if first is not None and end is not None:
                at = backfill.run(pipeline, backfill.Range(first, end), name, watch=display, stop=stop)
                empty = SparkLog(at.spark).planned() is None
                if not empty:
                    proof = f"its proof: penstock verify {file} --backfill {at.path.name}"
                    output.note(f"backfill {at.path.name}; {'to go on: the same command' if stop.asked else proof}")
            else:
                stream.run(pipeline, until_caught_up=until_caught_up, accept=accept or (), watch=display, stop=stop)
    except StoppedInStart:
        stop.ask()
    finally:
        display.close()
    facts = display.summary()
    if as_json:
        live.say("ended", **facts)
        return
    ended = "stopped" if stop.asked else "caught up"
    if not display.running and stop.asked:
        ended = "stopped while it started"
    elif first is not None and not stop.asked:
        before = "there is no offset in the range" if empty else "the range was done before, nothing is left of it"
        ended = "the range is done" if facts["batches"] else before
    output.say(f"{pipeline.name}: {ended}; {live.totals(display.progress, facts['seconds'])}")


@contextmanager
def _no_failure_of(stop_in_start: threading.Event, display: Display) -> Iterator[None]:
    """A start that was told to end has not failed, whatever it stumbled over while it ended."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if not display.running and stop_in_start.wait(_HEARD_WITHIN_S):
            raise StoppedInStart from error
        raise


def _asked(pipeline: Pipeline, stop: StopRequest, display: Display, *, is_backfill: bool) -> Callable[[int], None]:
    """What a signal does."""
    from penstock.checkpoint.attempts import Attempts
    from penstock.checkpoint.home import Home
    from penstock.spec.real_time import batch_of

    def asked(number: int) -> None:
        if stop.asked and display.running and number == signal.SIGINT:
            output.note("ended in the middle of a batch: it will be run again")
            if not is_backfill:
                with suppress(OSError, PenstockError):
                    Attempts(Home.of(pipeline)).forgive()  # it did not die of the batch
            os._exit(130)
        if stop.asked:
            return  # `timeout` sends it twice: to the process, and to its group
        stop.ask()
        if not display.running:
            output.note("stopping before the first batch")
            raise StoppedInStart
        at_once = not is_backfill and batch_of(pipeline.trigger) is not None
        output.note("stopping" if at_once else "stopping at the end of this batch")

    return asked
