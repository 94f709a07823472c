"""`penstock verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson

if TYPE_CHECKING:
    from penstock.runtime.report import Report


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="The pipeline's spec.")],
    backfill: Annotated[str | None, typer.Option(help="Prove this backfill instead of the stream.")] = None,
    as_json: AsJson = False,
) -> None:
    """Prove from Kafka, ledger, sinks and dead letters that nothing was lost, repeated or invented.

    Exit status 0 and "complete", or 1 and what is wrong with which batch, partition and offsets.
    """
    from penstock.runtime.verify import verify as prove
    from penstock.spec.load import load

    report = prove(load(file), backfill)
    output.emit({**asdict(report), "complete": report.complete}, as_json, lambda: _print(report))
    if not report.complete:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    say = output.say
    say(f"{report.pipeline}: {report.batches} batches, {report.offsets:,} offsets, {report.records:,} records")
    for name, rows in report.sinks.items():
        say(f"  {rows:>12,}  in sink {name} (proven {report.proof.get(name, '')})")
    replayed = f", {report.replayed:,} of them replayed since" if report.replayed else ""
    say(f"  {report.dead:>12,}  dead letters{replayed}")
    for name, count in report.dropped.items():
        say(f"  {count:>12,}  dropped: {name}")
    for found, what in (
        (report.late, "came too late for"),
        (report.untimed, "had no event time for"),
        (report.duplicates, "de-duplicated by"),
        (report.taken, "taken into the state of"),
    ):
        for view, count in found.items():
            say(f"  {count:>12,}  {what} {view}")
    for view, rows in report.held.items():
        say(f"  {rows:>12,}  rows held in the state of {view} now")
    for expired in report.expired:
        say(f"  no longer in Kafka, taken from the ledger: {expired}")
    for flying in report.in_flight:
        say(f"  {len(flying):>12,}  offsets in flight, not judged: {flying}")
    for lost in report.lost:
        say(f"  {len(lost):>12,}  offsets expired before they were read: {lost}")
    for skipped in report.skipped:
        say(f"  {len(skipped):>12,}  offsets skipped by `penstock checkpoint seek`: {skipped}")
    for text in report.unproven:
        say(f"  not proven: {text}")
    if report.complete:
        but = ["what is not proven"] * bool(report.unproven) + ["what expired unread"] * bool(report.lost)
        but += ["what was skipped on request"] * bool(report.skipped)
        say(f"complete but for {' and '.join(but)}" if but else "complete: every offset is accounted for")
        return
    for finding in report.findings:
        say(f"  {finding.kind}: {output.clean(str(finding))}")
    say(f"NOT complete: {len(report.findings)} findings")
