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

Group = tuple[str, str, str, str]
_SHOWN = 5  # schema ids; --json has them all

dlq = typer.Typer(help="Look at dead letters.")
app.add_typer(dlq, name="dlq")


@dlq.command()
def stats(file: Annotated[Path, typer.Argument(help="The pipeline's spec.")], as_json: AsJson = False) -> None:
    """Dead letters grouped by topic, stage, error class and reason, with one sample each."""
    from penstock.runtime import build
    from penstock.spec.load import load

    count: Counter[Group] = Counter()
    sample: dict[Group, str] = {}
    schemas: dict[Group, set[int]] = {}
    for letter in build.dead_letters(load(file)).read():
        group = (letter.topic, letter.stage, letter.error_class, pattern(letter.reason))
        count[group] += 1
        schemas.setdefault(group, set()).update([letter.schema_id] if letter.schema_id is not None else [])
        sample.setdefault(group, f"{letter.topic}-{letter.partition} offset {letter.offset}: {letter.reason}")
    groups: list[dict[str, Any]] = [
        {
            **dict(zip(("topic", "stage", "class", "reason"), group, strict=True)),
            "schema_ids": sorted(schemas[group]),
            "count": n,
            "sample": sample[group],
        }
        for group, n in count.most_common()
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
    reason = re.sub(r"has [\d,]+ bytes", "has … bytes", reason)
    reason = re.sub(r"The value '.*' of the type", "The value … of the type", reason, flags=re.DOTALL)
    return re.sub(r"(position|byte) (0x)?[0-9a-f]+", r"\1 …", reason)


def _print(groups: list[dict[str, Any]], total: int) -> None:
    output.say(f"{total:,} dead letters")
    for group in groups:
        ids = ", ".join(map(str, group["schema_ids"][:_SHOWN])) + ", …" * (len(group["schema_ids"]) > _SHOWN)
        where = output.clean(group["topic"]) + (f" (schema {ids})" if ids else "")
        output.say(
            f"{group['count']:>8,}  {where}: {group['stage']}, {group['class']}: {output.clean(group['reason'])}"
        )
        output.say(f"{'':>10}e.g. {_fitting(output.clean(group['sample']))}")


def _fitting(text: str) -> str:
    """As much as a line of the terminal holds; all of it elsewhere."""
    width = shutil.get_terminal_size().columns - 16 if sys.stdout.isatty() else len(text)
    return text if len(text) <= width else text[: width - 1] + "…"
