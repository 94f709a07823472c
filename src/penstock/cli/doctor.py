"""`penstock doctor`: what is wrong with a pipeline, why, and what to do about it."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import naming

if TYPE_CHECKING:
    from penstock.doctor.facts import Facts, Finding
    from penstock.spec.model import Pipeline

_WIDTH = 120  # where there is no terminal
_EXIT = {"critical": 2, "warning": 1, "note": 0}


@app.command()
def doctor(file: SpecFile, as_json: AsJson = False) -> None:
    """Name what keeps a pipeline from keeping up, with the evidence and the fix, worst first.

    Changes nothing and works while it runs. Exits 0 when nothing is wrong or there are only notes, 1 with warnings, 2
    when something is critical, 3 when it cannot look: no broker answers, or a topic that is read is not there.
    """
    from penstock.doctor.gather import examined
    from penstock.spec.load import load

    pipeline = load(file)
    facts, found = examined(pipeline)
    findings = named(found, file)
    output.emit(document(pipeline, facts, findings), as_json, lambda: show(pipeline, facts, findings))
    raise typer.Exit(max((_EXIT[finding.severity] for finding in findings), default=0))


def named(findings: list[Finding], file: Path) -> list[Finding]:
    """With the spec's path in their commands."""
    return [replace(each, evidence=naming(each.evidence, file), fix=naming(each.fix, file)) for each in findings]


def document(pipeline: Pipeline, facts: Facts, findings: list[Finding]) -> dict[str, Any]:
    """What `--json` prints. Keys and causes stay as they are between releases; new ones may come."""
    return {
        "pipeline": pipeline.name,
        "running": facts.running,
        "lag": facts.lag.total,
        "complete": not facts.lag.unknown and not facts.recreated,
        "findings": [asdict(finding) for finding in findings],
        "verdicts": [
            {"topic": topic, "partition": partition, "verdict": said}
            for (topic, partition), said in sorted(facts.verdicts.items())
        ],
    }


def show(pipeline: Pipeline, facts: Facts, findings: list[Finding]) -> None:
    state = "running" if facts.running else "not running"
    # Of a topic that was made again, or does not answer, nobody can say what waits.
    behind = facts.lag.behind(at_least=bool(facts.lag.unknown or facts.recreated))
    output.say(f"{pipeline.name}: {state}, {behind}")
    for finding in findings:
        output.say(f"{finding.severity}[{finding.cause}]")
        _say(finding.what, "  ")
        for text in finding.evidence:
            _say(text, "    ", "- ")
        output.say(output.clean(f"    fix: {finding.fix}"))  # whole: it is there to be copied
    counts = Counter(facts.verdicts.values())
    # Nobody reads any of them: that nothing waits in some does not make those well.
    idle = 0 if facts.running else counts.pop("OK", 0)
    # A run that is not due yet has not stopped.
    due = counts.pop("STOP", 0) if facts.rest else 0
    told = [f"{count:,} {said}" for said, count in sorted(counts.items())]
    told += [f"records wait in {due:,}"] * bool(due) + [f"nothing waits in {idle:,}"] * bool(idle)
    if told:
        output.say(f"partitions: {', '.join(told)}")
    if not findings:
        output.say("nothing is wrong")


def _say(text: str, indent: str, first: str = "") -> None:
    wrapped = textwrap.wrap(
        output.clean(text),
        output.width() or _WIDTH,
        initial_indent=indent + first,
        subsequent_indent=indent + " " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in wrapped:
        output.say(line)
