"""How commands speak: a human form and, with `--json`, one JSON document on standard output.

Errors go to standard error as `error[code]: what`, `cause:`, `next:`; with `--json` they are a JSON document too.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.errors import NEW_TOPICS, BadArgument, PenstockError, Stopped
from penstock.spec.mistake import near


def known_codes(codes: list[str] | None) -> list[str] | None:
    """What `--accept` is given. A word that is no code would be accepted in silence, and nothing with it."""
    stops = [NEW_TOPICS, *(kind.code for kind in Stopped.__subclasses__())]
    for code in codes or ():
        if code not in stops:
            raise BadArgument(
                f"no error that stops a pipeline is called '{code}'",
                cause=near(code, stops),
                next_command="the error that stops the pipeline says what to accept: penstock plan FILE",
            )
    return codes


SpecFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's spec.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

# Escape sequences and control characters that come from messages must not reach a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def clean(text: str) -> str:
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


def width() -> int | None:
    """Columns of the terminal, or as many as COLUMNS says; None: the output goes elsewhere, and nothing is cut."""
    asked = bool(os.environ.get("COLUMNS")) or sys.stdout.isatty()
    return shutil.get_terminal_size().columns if asked else None


def wrapped(text: str, columns: int, depth: int = 0) -> list[str]:
    """A line, on as many as it needs; words that are longer than a line stay whole."""
    indent = "  " * depth
    return textwrap.wrap(
        clean(text),
        columns,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def emit(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    """Print `data` as JSON, or let `human` print the same facts as text."""
    if as_json:
        say(json.dumps(data, indent=2, default=str))
    else:
        human()


def say_line(data: Any) -> None:
    """One JSON document on one line, for commands that print as things happen."""
    say(json.dumps(data, default=str))


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A line beside the result: progress, warnings."""
    sys.stderr.write(clean_lines(text) + "\n")
    sys.stderr.flush()


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))


def moment(milliseconds: int) -> str:
    """A record's time, in UTC. A producer may write any number: one that is no date stays a number."""
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float | None) -> str:
    """How long something takes; None where that is not known."""
    if seconds is None:
        return "?"
    from penstock.spec import duration

    return "never" if seconds == math.inf else duration.span(seconds)


def cut(text: str, size: int) -> str:
    """At most so many characters; what goes is from the middle, for names differ at their ends."""
    end = min(5, size // 2)
    return text if len(text) <= size else f"{text[: size - end - 1]}…{text[-end:]}"


def report(error: PenstockError, as_json: bool) -> None:
    if as_json:
        say_line({"error": error.as_dict()})  # `run` prints lines
        return
    note(f"error[{error.code}]: {error.what}")
    for name, said in (("cause: ", error.cause), ("next:  ", error.next_command)):
        if said:
            note(f"  {name}{said}".replace("\n", "\n" + " " * 9))  # further lines stand below the first
