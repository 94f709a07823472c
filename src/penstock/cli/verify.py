"""`penstock verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import counted

if TYPE_CHECKING:
    from penstock.verification.report import Report


@app.command()
def verify(
    file: SpecFile,
    backfill: Annotated[str | None, typer.Option(help="Prove this backfill instead of the stream.")] = None,
    as_json: AsJson = False,
) -> None:
    """Prove from Kafka, ledger, sinks and dead letters that nothing was lost, repeated or invented.

    Exit status 0 and "complete"; 1 and what is wrong with which batch, partition and offsets; 6 where nothing is wrong
    and records were lost, as the ledger says: they expired before they were read.
    """
    from penstock.spec.load import load
    from penstock.verification.verify import verify as prove

    report = prove(load(file), backfill)
    said = {"complete": report.complete, "records_lost": report.records_lost, "exit_status": report.exit_status}
    output.emit({**asdict(report), **said}, as_json, lambda: _print(report))
    raise typer.Exit(report.exit_status)


def _print(report: Report) -> None:
    say = output.say
    say(
        f"{report.pipeline}: {counted(report.batches, 'batch', 'batches')}, "
        f"{counted(report.offsets, 'offset')}, {counted(report.records, 'record')}"
    )
    for number, what in _counts(report):
        say(f"  {number:>12,}  {what}")
    for text in _notes(report):
        say(f"  {text}")
    if report.complete:
        but = ["what is not proven"] * bool(report.unproven) + ["what expired unread"] * report.records_lost
        but += ["what was skipped on request"] * bool(report.skipped)
        say(f"complete but for {' and '.join(but)}" if but else "complete: every offset is accounted for")
        return
    for finding in report.findings:
        say(f"  {finding.kind}: {output.clean(str(finding))}")
    say(f"NOT complete: {counted(len(report.findings), 'finding')}")


def _counts(report: Report) -> Iterator[tuple[int, str]]:
    for name, rows in report.sinks.items():
        yield rows, f"in sink {name} (proven {report.proof.get(name, '')}){_by(report.written.get(name, {}))}"
    yield report.dead, "dead letters" + (f", {report.replayed:,} of them replayed since" if report.replayed else "")
    yield from ((count, f"dropped: {name}") for name, count in report.dropped.items())
    yield from ((count, f"superseded in sink {name}") for name, count in report.superseded.items() if count)
    yield from ((count, f"left out before sink {name}") for name, count in report.left_out.items() if count)
    yield from ((count, f"dropped in replays: {name}") for name, count in report.dropped_in_replays.items())
    for name, count in report.left_out_in_replays.items():
        yield count, f"left out in replays before sink {name}"
    for found, what in (
        (report.late, "came too late for"),
        (report.untimed, "had no event time for"),
        (report.ahead, "were too far ahead of the clock for"),
        (report.duplicates, "de-duplicated by"),
        (report.taken, "taken into the state of"),
    ):
        yield from ((count, f"{what} {view}") for view, count in found.items())
    yield from ((rows, f"rows held in the state of {view} now") for view, rows in report.held.items())
    if report.markers:
        yield report.markers, "offsets without a record: transaction markers, records of aborted transactions"
    if report.gaps:
        yield report.gaps, "offsets without a record in compacted topics: gaps, transaction markers"


def _by(written: dict[str, int]) -> str:
    """How many rows each writer says it wrote, where there are several."""
    parts = {name: number for name, number in written.items() if number}
    for kind in ("backfill", "replay"):
        some = [name for name in parts if name.startswith(f"{kind} ")]
        if len(some) > 1:
            parts[f"{len(some)} {kind}s"] = sum(parts.pop(name) for name in some)
    return ": " + ", ".join(f"{number:,} by {name}" for name, number in parts.items()) if len(parts) > 1 else ""


def _notes(report: Report) -> Iterator[str]:
    yield from (f"of a topic that was deleted since, taken from the ledger: {former}" for former in report.former)
    yield from (f"no longer in Kafka, taken from the ledger: {expired}" for expired in report.expired)
    for ranges, what in (
        (report.in_flight, "in flight, not judged"),
        (report.lost, "expired unread"),
        (report.skipped, "skipped by `penstock checkpoint seek`"),
    ):
        yield from (f"{len(r):>12,}  offsets {what}: {r}" for r in ranges)
    yield from (f"not proven: {text}" for text in report.unproven)
