"""`penstock doctor`: what is wrong with a pipeline, why, and what to do about it."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson

if TYPE_CHECKING:
    from penstock.observe.doctor import Facts, Finding
    from penstock.spec.model import Pipeline

_WIDTH = 120  # where there is no terminal
_EXIT = {"critical": 2, "warning": 1, "note": 0}


@app.command()
def doctor(file: Annotated[Path, typer.Argument(help="The pipeline's spec.")], as_json: AsJson = False) -> None:
    """Name what keeps a pipeline from keeping up, with the evidence and the fix, worst first.

    Changes nothing and works while it runs. Exits 0 when nothing is wrong, 1 with warnings, 2 when one is critical.
    """
    from penstock.runtime.doctor import examined
    from penstock.spec.load import load

    pipeline = load(file)
    facts, findings = examined(pipeline)
    output.emit(document(pipeline, facts, findings), as_json, lambda: show(pipeline, facts, findings, str(file)))
    raise typer.Exit(max((_EXIT[finding.severity] for finding in findings), default=0))


def document(pipeline: Pipeline, facts: Facts, findings: list[Finding]) -> dict[str, Any]:
    """What `--json` prints. Keys and causes stay as they are between releases; new ones may come."""
    return {
        "pipeline": pipeline.name,
        "running": facts.running,
        "lag": facts.lag.total,
        "findings": [asdict(finding) for finding in findings],
        "verdicts": [
            {"topic": topic, "partition": partition, "verdict": said}
            for (topic, partition), said in sorted(facts.verdicts.items())
        ],
    }


def show(pipeline: Pipeline, facts: Facts, findings: list[Finding], file: str) -> None:
    state = "running" if facts.running else "not running"
    output.say(f"{pipeline.name}: {state}, {facts.lag.total:,} offsets behind")
    for finding in findings:
        output.say(f"{finding.severity}[{finding.cause}]")
        _say(finding.what, "  ")
        for text in finding.evidence:
            _say(text, "    ", "- ")
        output.say(output.clean(f"    fix: {finding.fix.replace('FILE', file)}"))  # whole: it is there to be copied
    told = ", ".join(f"{count:,} {said}" for said, count in sorted(Counter(facts.verdicts.values()).items()))
    if told:
        output.say(f"partitions: {told}")
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
