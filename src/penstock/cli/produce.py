"""`penstock produce`: load for trying a pipeline out, with a ledger of what Kafka acknowledged."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import BadArgument, RunFailed
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from penstock.local.load import Progress, Report


@app.command()
def produce(
    file: SpecFile,
    *,
    count: Annotated[int, typer.Option(help="Records to send.")],
    topic: Annotated[str | None, typer.Option(help="Topic to send to. Default: the spec's only source topic.")] = None,
    rate: Annotated[float | None, typer.Option(help="Most records per second. Default: as fast as it goes.")] = None,
    key_skew: Annotated[
        float, typer.Option(help="0: all accounts alike. 1: Zipf's law, few accounts have most.")
    ] = 0.0,
    poison: Annotated[float, typer.Option(help="Share of records made bad, 0 to 1; eight kinds in turn.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same records. Default: a new one, printed.")] = None,
    accounts: Annotated[int, typer.Option(help="How many accounts, that is keys, there are.")] = 10_000,
    base_time: Annotated[str | None, typer.Option(help="Event time of the first record, ISO-8601.")] = None,
    large: Annotated[int | None, typer.Option(help="Pad good records to this many bytes.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Write what became of each record (Arrow stream).")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds a record may wait for its acknowledgement.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Send payment events to a topic: idempotent, acks=all, the same records for the same seed.

    Exit status 5 when not every record was acknowledged. The ledger names each record's offset and outcome.
    """
    from penstock.kafka import connection
    from penstock.local import load
    from penstock.local.payments import BASE_TIME, Recipe

    if rate is not None and not rate > 0:
        raise BadArgument("rate must be above 0", cause=f"it is {rate:g}")
    if not 0.1 <= timeout <= 86_400:
        raise BadArgument("timeout must be from 0.1 to 86400 seconds", cause=f"it is {timeout:g}")
    recipe = Recipe(
        count,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        key_skew=key_skew,
        poison=_share(poison),
        accounts=accounts,
        large=large,
        base_time=_moment(base_time) if base_time else BASE_TIME,
    )
    pipeline = Pipeline.load(file)
    report = load.produce(
        connection.client_config(pipeline),
        _topic(pipeline, topic),
        recipe,
        rate=rate,
        ledger=ledger,
        timeout=timeout,
        on_progress=_show if sys.stderr.isatty() and not as_json else None,
        spec=str(file),
    )
    if sys.stderr.isatty() and not as_json:
        sys.stderr.write("\r\x1b[K")
    output.emit(_as_json(report, ledger), as_json, lambda: _print(report, ledger))
    if not report.complete:
        raise typer.Exit(RunFailed.exit_status)


def _as_json(report: Report, ledger: Path | None) -> dict[str, object]:
    return {**asdict(report), "complete": report.complete, "ledger": str(ledger) if ledger else None}


def _print(report: Report, ledger: Path | None) -> None:
    output.say(
        f"{report.acknowledged} of {report.count} acknowledged by '{report.topic}' in {report.seconds:.1f} s "
        f"({report.rate:,.0f}/s), seed {report.seed}"
    )
    for kind, n in report.kinds.items():
        output.say(f"  {kind:16} {n}" + (f"  ({report.void} VOID)" if kind == "good" else ""))
    if report.failed or report.unknown:
        output.say(f"  failed {report.failed}, unknown {report.unknown}: {report.first_error}")
    if report.stopped:
        output.say(f"  stopped after {report.sent}: {report.stopped}")
    if ledger:
        output.say(f"  ledger {ledger}")


def _topic(pipeline: Pipeline, given: str | None) -> str:
    topics = list(pipeline.source.topics)
    if pipeline.source.pattern:
        if given is None or not pipeline.source.pattern.matches(given):
            match = pipeline.source.pattern.match
            raise BadArgument(
                "say which topic to send to", cause=f"the spec reads topics like '{match}'", next_command="--topic NAME"
            )
        return given
    if given is None and len(topics) > 1:
        raise BadArgument(
            "the spec reads several topics", cause=f"one of: {', '.join(topics)}", next_command="--topic NAME"
        )
    if given is not None and given not in topics:
        raise BadArgument(f"the spec reads no topic '{given}'", cause=f"it reads: {', '.join(topics)}")
    return given or topics[0]


def _share(poison: float) -> Fraction:
    try:
        # As it was typed: 0.1 is a tenth here, and not the binary number nearest to it.
        return Fraction(str(poison))
    except ValueError:
        raise BadArgument("poison must be from 0 to 1", cause=f"it is {poison}") from None


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadArgument("base-time must be like 2026-01-01T00:00:00Z", cause=str(error)) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _show(progress: Progress) -> None:
    share = progress.sent / progress.count
    speed = progress.sent / progress.seconds if progress.seconds else 0
    left = (progress.count - progress.sent) / speed if speed else 0
    sys.stderr.write(
        f"\r\x1b[K{progress.sent:,} of {progress.count:,} ({share:.0%}), {speed:,.0f}/s, {left:.0f} s left"
    )
    sys.stderr.flush()
