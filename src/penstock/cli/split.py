"""`penstock split`: the way out of a batch that no driver survives."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import counted


@app.command()
def split(
    file: SpecFile,
    offsets: Annotated[
        int | None,
        typer.Option("--offsets", min=1, help="Most offsets of the batch afterwards. Default: half of them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the next batch of a pipeline smaller, when it died of that batch (`batch-too-large`).

    Refused while any sink or dead letter holds some of the batch. The old entry of Spark's offset log is kept beside.
    """
    from penstock.operations.split import split as run
    from penstock.spec.load import load

    pipeline = load(file)
    done = run(pipeline, offsets)

    def human() -> None:
        output.say(f"batch {done.batch}: {counted(done.after, 'offset')} instead of {done.before:,}")
        for each in done.ranges:
            output.say(f"  {each}")
        output.say(f"the old entry: {done.kept}")
        if pipeline.rate.max_offsets > done.after:
            output.say(f"the batches after it have up to {pipeline.rate.max_offsets:,}: lower `rate.max_offsets` too")
        output.say(f"next: penstock run {file}")

    output.emit(asdict(done), as_json, human)
