"""`penstock run`."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.errors import BadArgument, PenstockError


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The pipeline's spec.")],
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
    """Run a pipeline. SIGTERM and Ctrl-C end it at a batch boundary; a second Ctrl-C ends it at once.

    With --from and --to: send that range of offsets through the same spec, once, beside the stream and its checkpoint.
    """
    from penstock.checkpoint.attempts import Attempts
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
    stop = StopRequest()

    def asked(number: int, _frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            output.note("ended in the middle of a batch: it will be run again")
            if first is None:
                with suppress(OSError, PenstockError):
                    Attempts(build.home(pipeline)).forgive()  # it did not die of the batch
            os._exit(130)
        stop.ask()
        at_once = first is None and batch_of(pipeline.trigger) is not None
        output.note("stopping" if at_once else "stopping at the end of this batch")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    try:
        if first is not None and end is not None:
            at = backfill.run(pipeline, backfill.Range(first, end), name, watch=display, stop=stop)
            output.note(f"backfill {at.path.name}; its proof: penstock verify {file} --backfill {at.path.name}")
        else:
            supervise.run(pipeline, until_caught_up=until_caught_up, accept=accept or (), watch=display, stop=stop)
    finally:
        display.close()
    facts = display.summary()
    if as_json:
        output.say_line({"event": "ended", **facts})
        return
    written = ", ".join(f"{n:,} to {name}" for name, n in facts["written"].items()) or "none written"
    output.say(
        f"{pipeline.name}: {'stopped' if stop.asked else 'caught up'}; {facts['read']:,} records in "
        f"{facts['batches']} batches ({facts['seconds']} s): "
        f"{written}, {facts['dead_letters']:,} dead letters, {facts['dropped']:,} dropped"
    )
    sys.stdout.flush()
