"""`penstock lag`: how far behind a pipeline is."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, table
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.cli.table import Column
from penstock.errors import counted

if TYPE_CHECKING:
    from penstock.observe.lag import Lag, PartitionLag
    from penstock.spec.model import Pipeline

_SHOWN = 20  # partitions, those with the most lag; --all shows the rest
_NAMED = 5  # partitions in a sentence
_COLUMNS = (
    Column("partition", least=10),
    *(Column(title, right=True) for title in ("position", "end", "lag", "behind", "group lag", "arriving")),
)
_STATE = Column("state")  # where some do not answer


@app.command()
def lag(
    file: SpecFile,
    watch: Annotated[bool, typer.Option("--watch", help="Measure again and again until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between measurements.")] = 2.0,
    show_all: Annotated[bool, typer.Option("--all", help="Show every partition, not just those far behind.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far behind each partition is, in offsets and in seconds, and when the pipeline will have caught up.

    The position is that of the checkpoint; the group is its copy in Kafka, which Kafka's own tools show. `behind` is
    the age of the next record to be read; with `~` it is estimated from the times of other offsets. Partitions that are
    silent or offline do not answer: `?` is what only they could say, and the lag is at least that of the others.
    """
    from penstock.observe.measure_lag import lag_of
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

    catch_up, runs = found.catch_up_s, _runs(pipeline)
    return {
        "pipeline": pipeline.name,
        "running": runs,
        "started": _started(pipeline),
        "real_time": batch_of(pipeline.trigger) is not None,
        "group": group_of(pipeline.name),
        "complete": not found.unknown,
        "lag": found.total,
        "expired": sum(found.expired.values()),
        "gone": found.gone,
        "behind_s": found.behind_s,
        "capacity": found.capacity,
        "arriving": found.arriving,
        "catch_up_s": None if catch_up == math.inf else catch_up,
        "catching_up": None if catch_up is None else catch_up == 0 or (runs and catch_up != math.inf),
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "position": each.position,
                "group": each.group,
                "end": each.end,
                "lag": each.lag if each.known else None,
                "expired": each.expired,
                "gone": each.gone,
                "group_lag": each.group_lag,
                "behind_s": each.behind_s,
                "estimated": each.estimated,
                "arriving": each.arriving,
                "state": each.state or None,
                "hot": (each.topic, each.partition) in found.hot,
            }
            for each in found.partitions
        ],
    }


def show(pipeline: Pipeline, found: Lag, show_all: bool) -> None:
    from penstock.spec.duration import text
    from penstock.spec.real_time import batch_of

    runs = _runs(pipeline)
    output.say(f"{pipeline.name}: {'' if runs else 'not running, '}{_headline(found)}")
    output.say(f"  {_outlook(found, runs)}")
    if found.capacity is None and not _started(pipeline):
        output.say(f"  the stream has not run yet: positions are where `start: {pipeline.source.start_text()}` begins")
        if found.gone:
            output.say(f"  {counted(found.gone, 'older offset')} already expired, so no run will read them")
    if batch := batch_of(pipeline.trigger):
        output.say(
            f"  real-time: the position is that of the last batch, and one lasts {text(batch)}; what came since has "
            "been sent on already, if the pipeline runs"
        )
    for line in _expired(found):
        output.say(output.clean(f"  {line}"))
    worst = sorted(found.partitions, key=lambda each: (each.known, -each.lag, each.topic, each.partition))
    shown = worst if show_all else worst[:_SHOWN]
    columns = (*_COLUMNS, _STATE) if found.unknown else _COLUMNS
    rows = [_row(each)[: len(columns)] for each in sorted(shown, key=lambda each: (each.topic, each.partition))]
    within = output.width()
    for line in table.lines(columns, rows, within - 2 if within else None) if rows else ():
        output.say(f"  {line}")
    if rest := worst[len(shown) :]:
        output.say(
            f"  {counted(len(rest), 'more partition')}, lag {sum(each.lag for each in rest):,}; to see them: --all"
        )
    if found.hot:
        hot = ", ".join(f"{topic}-{partition}" for topic, partition in found.hot)
        output.say(output.clean(f"  hot, far above the others: {hot}"))


def _runs(pipeline: Pipeline) -> bool:
    from penstock.checkpoint.home import Home
    from penstock.source.position import running

    return running(Home.of(pipeline)) is not None


def _started(pipeline: Pipeline) -> bool:
    """Whether the stream has a checkpoint. A backfill has one of its own, and leaves the stream where it is."""
    from penstock.checkpoint.home import Home
    from penstock.checkpoint.log import SparkLog

    return SparkLog(Home.of(pipeline).spark).query_id() is not None


def _headline(found: Lag) -> str:
    age = found.behind_s
    told = "" if age is None else f", the oldest record by {output.span(age)}"
    if not found.unknown:
        return found.behind() + told
    silent = f"{len(found.unknown):,} of {counted(len(found.partitions), 'partition')}"
    return f"{found.behind(at_least=True)}{told}; {silent} cannot be asked"


def _expired(found: Lag) -> list[str]:
    """The lag counts them as every Kafka tool does, and they will never be read."""
    gone = [each for each in found.partitions if each.expired]
    if not gone:
        return []
    places = [f"{each.topic}-{each.partition} {each.position:,} to {each.first - 1:,}" for each in gone]
    more = f" and {len(gone) - _NAMED:,} more" * (len(gone) > _NAMED)
    total = sum(found.expired.values())
    return [f"{total:,} of them expired unread: {', '.join(places[:_NAMED])}{more}"]


def _outlook(found: Lag, runs: bool) -> str:
    arriving = "?" if found.arriving is None else f"{found.arriving:,.0f}"
    if found.capacity is None:
        return f"{arriving} offsets/s arrive; how fast they are read is not known before the first batch"
    told = f"{'reads' if runs else 'read'} {found.capacity:,.0f} offsets/s, {arriving}/s arrive"
    if not found.total or found.unknown:
        return told
    if found.catch_up_s == math.inf:
        return f"{told}: it {'will' if runs else 'would'} never catch up at this rate"
    in_ = output.span(found.catch_up_s)
    return f"{told}: caught up in {in_}" if runs else f"{told}: it would catch up in about {in_}"


def _row(each: PartitionLag) -> tuple[str, ...]:
    unknown = "-" if each.known else "?"
    behind = unknown if each.behind_s is None else output.span(each.behind_s)
    return (
        f"{each.topic}-{each.partition}",
        _count(each.position),
        _count(each.end),
        _count(each.lag if each.known else None),
        f"~{behind}" if each.estimated else behind,
        "-" if each.group is None else _count(each.group_lag),
        "?" if each.arriving is None else f"{each.arriving:,.0f}/s",
        each.state,
    )


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
