"""`penstock tail`: messages of a topic, decoded as the pipeline would."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, table
from penstock.cli.main import app
from penstock.cli.output import SpecFile
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.observe.tail import Seen

_DEFAULT = 10
# Characters of a JSON text that a terminal could obey; those below a space are escaped already.
_OBEYED = re.compile("[\x7f-\x9f\u2028\u2029]")


@app.command()
def tail(
    file: SpecFile,
    topic: Annotated[str | None, typer.Argument(help="Default: the topic the pipeline reads.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=0, help="The newest so many messages. Default: 10.")] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="POSITION", help="All messages since: earliest, latest, an offset, a time."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new messages as they come.")] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many messages.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not decode.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line and message.")] = False,
) -> None:
    """Show messages of a topic: partition, offset, time, key, and the value as the spec decodes it or why it cannot.

    Sees committed messages only, joins no group, starts no engine. A topic that the pipeline does not read is shown as
    it is, dead letters with the stage, class and reason of their failure.
    """
    from penstock.observe import tail as reading
    from penstock.spec.load import load

    if last is not None and first is not None:
        raise BadArgument("--last and --from exclude each other", next_command="penstock tail --help")
    pipeline = load(file)
    wanted = reading.Wanted(_DEFAULT if last is None else last, first, partition, follow, count, raw, output.note)
    width = output.width()
    for seen in reading.tail(pipeline, reading.topic_of(pipeline, topic), wanted):
        output.say(as_line(seen) if as_json else table.fitting(line(seen), width))


def as_line(seen: Seen) -> str:
    """What `--json` prints. Keys stay as they are between releases; new ones may come."""
    letter = seen.letter
    return _json(
        {
            "topic": seen.topic,
            "partition": seen.partition,
            "offset": seen.offset,
            "timestamp": _time(seen),
            "key": _value(seen.key),
            "value": _value(seen.value),
            "headers": [[name, _value(value)] for name, value in seen.headers],
            "schema_id": seen.schema_id,
            "deleted": seen.deleted,
            "error": {"class": seen.failure.error_class, "reason": seen.failure.reason} if seen.failure else None,
            "dead_letter": {
                "pipeline": letter.pipeline,
                "topic": letter.topic,
                "partition": letter.partition,
                "offset": letter.offset,
                "batch": letter.batch,
                "stage": letter.stage,
                "class": letter.error_class,
                "reason": letter.reason,
                "schema_id": letter.schema_id,
            }
            if letter
            else None,
        }
    )


def line(seen: Seen) -> str:
    """The same as words."""
    key = "-" if seen.key is None else _text(seen.key)
    said = f"{seen.partition}:{seen.offset}  {_time(seen) or '-'}  {key}  {_said(seen)}"
    return output.clean(said).replace("\n", "\\n")


def _said(seen: Seen) -> str:
    if seen.failure is not None:
        return f"! {seen.failure.error_class}: {seen.failure.reason}"
    if seen.letter is not None:
        letter = seen.letter
        at = f"{letter.topic}-{letter.partition} offset {letter.offset}"
        return f"! {letter.stage}, {letter.error_class}: {letter.reason} ({at})  {_text(seen.value)}"
    return "deleted" if seen.deleted else _text(seen.value)


def _text(value: Any) -> str:
    """Text as it is, bytes that are no text in hexadecimal, anything else as JSON."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    return value if isinstance(value, str) else _json(value)


def _value(value: Any) -> Any:
    """As JSON has it: bytes that are no text as {"base64": ...}."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


def _json(value: Any) -> str:
    import msgspec

    # Decimals as the numbers they are, times as text, bytes inside of records as base64.
    text = msgspec.json.Encoder(decimal_format="number").encode(value).decode()
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _time(seen: Seen) -> str | None:
    return None if seen.timestamp_ms is None else output.moment(seen.timestamp_ms)
