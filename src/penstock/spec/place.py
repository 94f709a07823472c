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
    try:
        document = lines.parse(file.read_bytes().decode("utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError):
        return
    path = _path(document.data, error.facts)
    if path is None:
        return
    line = (document.keys.get(path) or document.value_spot(path)).line
    error.facts |= {"file": str(file), "line": line}
    if error.next_command:
        error.next_command = error.next_command.replace("in the spec", f"at {file}:{line}")


def _path(data: object, facts: dict[str, object]) -> mistake.Path | None:
    if not isinstance(data, dict):
        return None
    view, rule, sink, table = (facts.get(name) for name in _SPOKEN_OF)
    found: list[tuple[mistake.Path, object]] = []
    if rule is not None:
        rules = (data.get("contract") or {}).get(view) or []
        found = [(("contract", str(view), i), each.get("name") == rule) for i, each in enumerate(rules)]
    elif view is not None:
        steps = data.get("transform") or []
        found = [(("transform", i), each.get("view") == view) for i, each in enumerate(steps)]
    elif sink is not None:
        found = [(("sinks", str(sink), "where"), sink in data.get("sinks", {}))]
    elif table is not None:
        found = [(("references", str(table)), table in data.get("references", {}))]
    return next((path for path, here in found if here), None)
