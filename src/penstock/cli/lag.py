"""`penstock lag`: how far behind a pipeline is."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, table
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.cli.table import Column

if TYPE_CHECKING:
    from penstock.observe.lag import Lag, PartitionLag
    from penstock.spec.model import Pipeline

_SHOWN = 20  # partitions, those with the most lag; --all shows the rest
_COLUMNS = (
    Column("partition", least=10),
    *(Column(title, right=True) for title in ("position", "end", "lag", "behind", "group lag", "arriving")),
)


@app.command()
def lag(
    file: Annotated[Path, typer.Argument(help="The pipeline's spec.")],
    watch: Annotated[bool, typer.Option("--watch", help="Measure again and again until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between measurements.")] = 2.0,
    show_all: Annotated[bool, typer.Option("--all", help="Show every partition, not just those far behind.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far behind each partition is, in offsets and in seconds, and when the pipeline will have caught up.

    The position is that of the checkpoint; the group is its copy in Kafka, which Kafka's own tools show. `behind` is
    the age of the next record to be read; with `~` it is estimated from the times of other offsets.
    """
    from penstock.runtime.lag import lag_of
    from penstock.spec.load import load

    pipeline = load(file)
    if not watch:
        found = lag_of(pipeline)
        output.emit(document(pipeline, found), as_json, lambda: show(pipeline, found, show_all))
        return
    while True:
        now = lag_of(pipeline)
        if as_json:
            output.say_line(document(pipeline, now))
        else:
            if sys.stdout.isatty():
                output.say("\x1b[H\x1b[2J")  # from the top of an empty screen
            show(pipeline, now, show_all)
        time.sleep(every)


def document(pipeline: Pipeline, found: Lag) -> dict[str, Any]:
    """What `--json` prints. Keys stay as they are between releases; new ones may come."""
    from penstock.kafka.mirror import group_of
    from penstock.spec.real_time import batch_of

    catch_up = found.catch_up_s
    return {
        "pipeline": pipeline.name,
        "real_time": batch_of(pipeline.trigger) is not None,
        "group": group_of(pipeline.name),
        "lag": found.total,
        "behind_s": found.behind_s,
        "capacity": found.capacity,
        "arriving": found.arriving,
        "catch_up_s": None if catch_up == math.inf else catch_up,
        "catching_up": None if catch_up is None else catch_up != math.inf,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "position": each.position,
                "group": each.group,
                "end": each.end,
                "lag": each.lag,
                "group_lag": each.group_lag,
                "behind_s": each.behind_s,
                "estimated": each.estimated,
                "arriving": each.arriving,
                "hot": (each.topic, each.partition) in found.hot,
            }
            for each in found.partitions
        ],
    }


def show(pipeline: Pipeline, found: Lag, show_all: bool) -> None:
    from penstock.spec.duration import text
    from penstock.spec.real_time import batch_of

    output.say(f"{pipeline.name}: {_headline(found)}")
    output.say(f"  {_outlook(found)}")
    if batch := batch_of(pipeline.trigger):
        output.say(
            f"  real-time: the position is that of the last batch, and one lasts {text(batch)}; what came since has "
            "been sent on already, if the pipeline runs"
        )
    worst = sorted(found.partitions, key=lambda each: (-each.lag, each.topic, each.partition))
    shown = worst if show_all else worst[:_SHOWN]
    rows = [_row(each) for each in sorted(shown, key=lambda each: (each.topic, each.partition))]
    within = output.width()
    for line in table.lines(_COLUMNS, rows, within - 2 if within else None) if rows else ():
        output.say(f"  {line}")
    if rest := worst[len(shown) :]:
        output.say(f"  {len(rest):,} more partitions, lag {sum(each.lag for each in rest):,}; to see them: --all")
    if found.hot:
        hot = ", ".join(f"{topic}-{partition}" for topic, partition in found.hot)
        output.say(output.clean(f"  hot, far above the others: {hot}"))


def _headline(found: Lag) -> str:
    if not found.total:
        return "caught up"
    age = found.behind_s
    told = "" if age is None else f", the oldest record by {output.span(age)}"
    return f"{found.total:,} offsets behind{told}"


def _outlook(found: Lag) -> str:
    arriving = "?" if found.arriving is None else f"{found.arriving:,.0f}"
    if found.capacity is None:
        return f"{arriving} offsets/s arrive; how fast they are read is not known before the first batch"
    told = f"reads {found.capacity:,.0f} offsets/s, {arriving}/s arrive"
    if not found.total:
        return told
    if found.catch_up_s == math.inf:
        return f"{told}: it will never catch up at this rate"
    return f"{told}: caught up in {output.span(found.catch_up_s)}"


def _row(each: PartitionLag) -> tuple[str, ...]:
    behind = "-" if each.behind_s is None else output.span(each.behind_s)
    return (
        f"{each.topic}-{each.partition}",
        f"{each.position:,}",
        f"{each.end:,}",
        f"{each.lag:,}",
        f"~{behind}" if each.estimated else behind,
        "-" if each.group_lag is None else f"{each.group_lag:,}",
        "?" if each.arriving is None else f"{each.arriving:,.0f}/s",
    )
