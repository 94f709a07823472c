"""Where in a spec something is written that an error speaks of: a step, a rule, the condition of a sink."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError
from penstock.spec import lines, mistake

_SPOKEN_OF = ("view", "rule", "sink", "reference")


def locate(error: PenstockError, file: Path) -> None:
    """Add the file and the line to the facts of an error, and to what to do next. Says nothing where it is not sure."""
    if not any(name in error.facts for name in _SPOKEN_OF) or "line" in error.facts:
        return
    line = line_of(file, error.facts)
    if line is None:
        return
    error.facts |= {"file": str(file), "line": line}
    if error.next_command:
        at = f"{file}:{line}"
        said = error.next_command.replace("in the spec", f"at {at}")
        error.next_command = said if at in said else f"{said}; see {at}"


def line_of(file: Path, facts: dict[str, object]) -> int | None:
    """The line of what facts speak of (a view, a rule, a sink, a reference); None where it is not sure."""
    try:
        document = lines.parse(file.read_bytes().decode("utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError):
        return None
    path = _path(document.data, facts)
    return None if path is None else document.key_spot(path).line


def _path(data: object, facts: dict[str, object]) -> mistake.Path | None:
    """The narrowest of the things spoken of that the spec has: a view may also be that of a topic."""
    if not isinstance(data, dict):
        return None
    view, rule, sink, table = (facts.get(name) for name in _SPOKEN_OF)
    rules = (data.get("contract") or {}).get(view) or []
    steps = data.get("transform") or []
    found: list[tuple[mistake.Path, bool]] = [
        *((("contract", str(view), i), each.get("name") == rule) for i, each in enumerate(rules) if rule),
        *((("transform", i), each.get("view") == view) for i, each in enumerate(steps) if view and not rule),
        (("sinks", str(sink), "where"), sink in data.get("sinks", {})),
        (("references", str(table)), view is None and table in data.get("references", {})),
    ]
    return next((path for path, here in found if here), None)
