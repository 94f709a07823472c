"""How commands speak: a human form and, with `--json`, one JSON document on standard output.

Errors go to standard error as `error[code]: what`, `cause:`, `next:`; with `--json` they are a JSON document too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from penstock.errors import PenstockError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

# Escape sequences and control characters that come from messages must not reach a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


def emit(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    """Print `data` as JSON, or let `human` print the same facts as text."""
    if as_json:
        say(json.dumps(data, indent=2, default=str))
    else:
        human()


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A line beside the result: progress, warnings."""
    sys.stderr.write(clean_lines(text) + "\n")
    sys.stderr.flush()


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))


def report(error: PenstockError, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"error": error.as_dict()}, default=str))  # one line: `run` prints lines
        return
    note(f"error[{error.code}]: {error.what}")
    if error.cause:
        note(f"  cause: {error.cause}")
    if error.next_command:
        note(f"  next:  {error.next_command}")
