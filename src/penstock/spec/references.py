"""`${env:NAME}` and `${file:path}`: the only way a secret gets into a pipeline.

A spec keeps the reference as text. Whoever opens a connection or a session calls `resolve` at the last moment
and lets go of the result, so that no model, plan, checkpoint or log ever holds it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import ReferenceMissing, SpecInvalid
from penstock.spec import local_path

_REFERENCE = re.compile(r"\$\{(env):([A-Za-z_][A-Za-z0-9_]*)\}|\$\{(file):([^{}\x00]*[^{}\x00\s][^{}\x00]*)\}")
# What people write when they mean a reference.
_LOOKALIKE = re.compile(r"\$\{[^{}]*\}?|\$ENV\{[^{}]*\}?", re.IGNORECASE)
_SHELL = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Reference:
    kind: Literal["env", "file"]
    name: str

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.name}}}"

    def path(self, base: Path) -> Path:
        return base / local_path.plain(self.name.strip())


def find(text: str) -> list[Reference]:
    """The well-formed references in a text, in order."""
    return [_reference(found) for found in _REFERENCE.finditer(text)]


def broken(text: str) -> list[tuple[str, str]]:
    """What looks like a reference and is none: (as written, what to write instead)."""
    found = [
        (each[0], _broken_hint(each[0])) for each in _LOOKALIKE.finditer(text) if not _REFERENCE.fullmatch(each[0])
    ]
    if shell := _SHELL.fullmatch(text):
        found.append((text, f"write ${{env:{shell[1]}}}"))
    return found


def missing(reference: Reference, base: Path) -> str | None:
    """Why a reference cannot be resolved here and now, or None when it can."""
    if reference.kind == "env":
        return None if reference.name in os.environ else f"the variable {reference.name} is not set"
    if wrong := local_path.fault(reference.name.strip()):
        return wrong.why
    path = reference.path(base)
    return None if os.access(path, os.R_OK) and path.is_file() else f"the file {path} is not there or not readable"


def resolve(text: str, base: Path) -> str:
    """The text with every reference replaced; relative files start at `base` (the pipeline's `base`).

    One line break at the end of a file is not part of its value. Raises ReferenceMissing, and SpecInvalid for
    broken syntax; neither message holds a resolved value.
    """
    for written, hint in broken(text):
        raise SpecInvalid(f"'{written}' is not a reference", cause=hint)
    return _REFERENCE.sub(lambda found: _value(_reference(found), base), text)


def located(written: str, base: Path) -> Path:
    """Where a path of a spec is, with every reference replaced; relative ones start at `base`. The only way from the
    text of a path to the place.

    Raises what `resolve` raises, and SpecInvalid for a place that is not on this machine.
    """
    text = resolve(written, base)
    if found := local_path.fault(text):
        raise SpecInvalid(f"'{written}' is not a path on this machine", cause=found.why, next_command=found.instead)
    meant, before = base / local_path.plain(text), base / text
    if meant != before and before.exists():
        raise SpecInvalid(
            f"'{written}' is {meant}, and what was written there lies in {before}",
            cause="earlier versions took it for a relative path",
            next_command=f"mv {before} {meant}, or write './{text}' to leave it there",
        )
    return meant


def _reference(found: re.Match[str]) -> Reference:
    return Reference("env", found[2]) if found[1] else Reference("file", found[4])


def _value(reference: Reference, base: Path) -> str:
    why = missing(reference, base)
    if why is None and reference.kind == "env":
        return os.environ[reference.name]
    path = reference.path(base)
    if why is None:
        try:
            return path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            why = f"the file {path} cannot be read as text ({type(error).__name__})"
    raise ReferenceMissing(
        f"{reference} cannot be resolved",
        cause=why,
        next_command=f"export {reference.name}=..." if reference.kind == "env" else f"ls -l {path}",
        facts={"reference": str(reference)},
    )


def _broken_hint(written: str) -> str:
    inner = written[written.index("{") + 1 :].removesuffix("}").strip()
    kind, colon, name = inner.partition(":")
    bare = name.strip() if colon and kind.lower() in ("env", "environment", "var") else inner
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", bare):
        return f"write ${{env:{bare}}}"
    return "a reference is ${env:NAME} or ${file:path}"
