"""`penstock apply`: the topics a pipeline needs, as its spec says."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import counted
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from penstock.kafka.differences import Difference
    from penstock.kafka.reshape import Reshaped


@app.command()
def apply(
    file: SpecFile,
    force: Annotated[
        bool, typer.Option("--force", help="Also make changes that delete records or lower their safety.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the topics of a spec that are missing, and change what differs from it. Never deletes a topic.

    Only settings that the spec names are touched. What would delete records or lower their safety is done with --force
    only; `penstock plan` shows all of it beforehand. Exits 1 when something was left as it is.
    """
    from penstock.kafka import connection, reshape

    pipeline = Pipeline.load(file)
    config = connection.client_config(pipeline)
    done = reshape.apply(config, pipeline, force=force)
    output.emit(document(config["bootstrap.servers"], pipeline, done), as_json, lambda: show(done, file))
    if done.left:
        raise typer.Exit(1)


def document(bootstrap: str, pipeline: Pipeline, done: Reshaped) -> dict[str, Any]:
    """What `--json` prints. Keys stay as they are between releases; new ones may come."""
    given = pipeline.kafka.topics
    return {
        "bootstrap": bootstrap,
        "complete": not done.left,
        "topics": [
            {
                "topic": name,
                "created": name in done.created,
                "partitions": facts.partitions,
                "replication": facts.replication,
                "wanted_partitions": given[name].partitions if name in given else None,
                "changed": [_change(each) for each in done.changed if each.topic == name],
                "left": [_change(each) for each in done.left if each.topic == name],
            }
            for name, facts in done.there.items()
        ],
    }


def _change(each: Difference) -> dict[str, str]:
    return {
        "setting": each.setting,
        "found": each.found,
        "spec": each.spec,
        "fate": each.fate,
        "effect": each.effect,
    }


def show(done: Reshaped, file: Path) -> None:
    """The same as words."""
    for name, facts in done.there.items():
        changed = [each for each in done.changed if each.topic == name]
        word = "created" if name in done.created else "changed" if changed else "there"
        size = f"{counted(facts.partitions, 'partition')}, replication {facts.replication}"
        output.say(f"{word:8} {name}  {size}")
        for each in changed:
            _print(f"{each.setting}: {each.found} -> {each.spec}", each.effect)
        for each in done.left:
            if each.topic == name:
                without = " without --force" if each.fate == "force" else " as it is"
                said = f"{each.setting}: {each.found}, the spec says {each.spec}; left{without}"
                _print(said, each.effect)
    if any(each.fate == "force" for each in done.left):
        output.say(f"to change that too: penstock apply {file} --force")


def _print(said: str, effect: str) -> None:
    """What is different, and on lines of their own what that means."""
    for text, indent in ((said + ":" * bool(effect), " " * 9), (effect, " " * 11)):
        for line in textwrap.wrap(output.clean(text), 80, initial_indent=indent, subsequent_indent=indent + "  "):
            output.say(line)
