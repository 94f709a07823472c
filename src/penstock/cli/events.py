"""`penstock events`: what happened to a pipeline, across restarts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import BadArgument, counted, naming
from penstock.observe.events import KINDS, EventLog


@app.command()
def events(
    file: SpecFile,
    kind: Annotated[
        list[str] | None,
        typer.Option(help=f"Only these: {', '.join(KINDS)}. Can repeat."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before: a time, or how long ago (90s, 15m, 2h, 1d).")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="Only the newest ones.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the event log of a pipeline, oldest first. Works while it runs."""
    from penstock.checkpoint.home import Home
    from penstock.spec.load import load
    from penstock.spec.start import moment

    log = EventLog(Home.of(load(file)).events)
    _require_known(kind or (), log)
    found = list(log.read(kind or (), datetime.fromtimestamp(moment(since) / 1000, UTC) if since else None))
    shown = [naming(event.as_dict(), file) for event in found[-last:]]

    def human() -> None:
        if len(found) > len(shown):
            output.say(f"{len(found) - len(shown):,} older ones; to see them: --last {len(found)}")
        for event in shown:
            output.say(output.clean(_line(event)))
        if not shown:
            output.say("no events")

    output.emit({"events": shown}, as_json, human)


def _require_known(kinds: Collection[str], log: EventLog) -> None:
    """Raises BadArgument for a word that is no kind of event: nothing found would look as if nothing had happened."""
    strange = [kind for kind in kinds if kind not in KINDS]
    if strange:
        strange = sorted(set(strange) - {event.kind for event in log.read()})  # those of another version are there too
    if strange:
        raise BadArgument(
            f"there are no events of kind {', '.join(map(repr, strange))}",
            cause=f"the kinds are {', '.join(KINDS)}",
            next_command="penstock events FILE",
        )


def _line(event: dict[str, Any]) -> str:
    facts = {name: value for name, value in event.items() if name not in ("time", "event") and value not in (None, {})}
    told = ", ".join(f"{name} {_value(value)}" for name, value in facts.items())
    return f"{event['time'][:23].replace('T', ' ')}  {event['event']:9}  {told}".rstrip()


def _value(value: Any) -> str:
    """On one line: of a text with several the first, for `--json` has them all."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_value(each)}" for name, each in value.items())
    if isinstance(value, str) and len(lines := value.splitlines()) > 1:
        return f"{lines[0]} (and {counted(len(lines) - 1, 'line')} more)"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
