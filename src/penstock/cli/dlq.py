"""`penstock dlq`: what died, and why."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson

dlq = typer.Typer(help="Look at dead letters.")
app.add_typer(dlq, name="dlq")


@dlq.command()
def stats(file: Annotated[Path, typer.Argument(help="The pipeline's spec.")], as_json: AsJson = False) -> None:
    """Dead letters grouped by stage, error class and reason, with one sample each."""
    from penstock.runtime import build
    from penstock.spec.load import load

    count: Counter[tuple[str, str, str]] = Counter()
    sample: dict[tuple[str, str, str], str] = {}
    for letter in build.dead_letters(load(file)).read():
        group = (letter.stage, letter.error_class, pattern(letter.reason))
        count[group] += 1
        sample.setdefault(group, f"{letter.topic}-{letter.partition} offset {letter.offset}: {letter.reason}")
    groups: list[dict[str, Any]] = [
        {"stage": stage, "class": kind, "reason": reason, "count": n, "sample": sample[stage, kind, reason]}
        for (stage, kind, reason), n in count.most_common()
    ]
    total = sum(count.values())
    output.emit({"total": total, "groups": groups}, as_json, lambda: _print(groups, total))


def pattern(reason: str) -> str:
    """A reason without what differs from record to record: values, numbers, quoted text."""
    reason = re.sub(r"; (the value is|begins with) .*", "", reason, flags=re.DOTALL)
    reason = re.sub(r"; (\w+) = .*", r" (by \1)", reason, flags=re.DOTALL)
    reason = re.sub(r": .* is not a ", ": … is not a ", reason, flags=re.DOTALL)
    reason = re.sub(r"\[\d+\]", "[…]", reason)
    reason = re.sub(r"\(\d+ bytes\)", "(… bytes)", reason)
    return re.sub(r"(position|byte) (0x)?[0-9a-f]+", r"\1 …", reason)


def _print(groups: list[dict[str, Any]], total: int) -> None:
    output.say(f"{total:,} dead letters")
    for group in groups:
        output.say(f"{group['count']:>8,}  {group['stage']:<9} {group['class']:<14} {output.clean(group['reason'])}")
        output.say(f"{'':>10}e.g. {_fitting(output.clean(group['sample']))}")


def _fitting(text: str) -> str:
    """As much as a line of the terminal holds; all of it elsewhere."""
    width = shutil.get_terminal_size().columns - 16 if sys.stdout.isatty() else len(text)
    return text if len(text) <= width else text[: width - 1] + "…"
