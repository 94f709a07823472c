"""A command in this process, which has the engine already: what it says and its exit status, as its process would.

Each command also runs as a process of its own in some test: streams, signals, terminals and exit statuses are real
there. Variants are tried here, where they take no seconds to start.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from penstock.cli import main

_HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Said:
    returncode: int
    stdout: str
    stderr: str


def penstock(*words: object, expect: int | None = 0, **environment: str) -> Said:
    """The whole command, errors made words among it."""
    __tracebackhide__ = True  # what it said is what matters
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, _signals_as_they_were():
        patch.setattr(sys, "argv", ["penstock", *map(str, words)])
        for name, value in environment.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main.main()
    said = Said(int(ended.value.code or 0), out.getvalue(), err.getvalue())
    assert expect is None or said.returncode == expect, said
    return said


def document(*words: object, schema: dict[str, Any] | None = None, expect: int = 0) -> Any:
    """What it prints with `--json`; with a schema, checked against it."""
    found = json.loads(penstock(*words, "--json", expect=expect).stdout)
    if schema is not None:
        Draft202012Validator(schema).validate(found)
    return found


@contextlib.contextmanager
def _signals_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _HEEDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
