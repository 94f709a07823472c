"""`penstock checkpoint`: look at a checkpoint, move it, copy it, mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import checkpoint_text, output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import BadArgument, TopicRecreated, naming

if TYPE_CHECKING:
    from penstock.checkpoint.damage import Damage
    from penstock.operations.show import Inspection

checkpoint = typer.Typer(help="Look at a checkpoint, move it, copy it, mend it.", no_args_is_help=True)
app.add_typer(checkpoint, name="checkpoint")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


@checkpoint.command()
def show(file: SpecFile, as_json: AsJson = False) -> None:
    """What the checkpoint holds: batches, positions with lag, ledger, sizes, state, damage.

    Works while the pipeline runs, and without Kafka (then without lag).
    """
    from penstock.operations.show import inspect
    from penstock.spec.load import load

    _print(_inspected(inspect(load(file))), as_json, checkpoint_text.show, file)


@checkpoint.command()
def diff(file: SpecFile, as_json: AsJson = False) -> None:
    """What the spec says otherwise than the checkpoint, and whether a start goes on with it.

    Exits 0 when it does, 1 when not.
    """
    from penstock.lifecycle.changes import against_checkpoint
    from penstock.spec.load import load

    pipeline = load(file)
    home, changes, unchecked = against_checkpoint(pipeline)
    found = {
        "pipeline": pipeline.name,
        "checkpoint": str(home.path),
        "compatible": all(change.compatible for change in changes),
        "changes": [asdict(change) for change in changes],
        "unchecked": unchecked,
    }
    _print(found, as_json, checkpoint_text.diff, file)
    if not found["compatible"]:
        raise typer.Exit(1)


@checkpoint.command()
def seek(
    file: SpecFile,
    to: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="earliest, latest, a time, or topic:partition=offset,..."),
    ] = None,
    to_batch: Annotated[int | None, typer.Option(metavar="N", help="To where batch N began.")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Move only this topic; can be given several times.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="topic-recreated: a topic that was deleted and created again begins anew."),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let the next batch begin elsewhere. Partitions that are not named stay where they are.

    What is skipped is written into the ledger; `verify` then accounts for it. Refused where a sink would hold records
    twice, and for queries that keep state. A backup is made first.

    After a topic was deleted and created again: --topic TOPIC --to earliest --accept topic-recreated.
    """
    from penstock.operations import seek as seeking
    from penstock.operations.seek_target import Wanted
    from penstock.spec.load import load

    if (to is None) == (to_batch is None):
        raise BadArgument("give either --to or --to-batch", next_command="penstock checkpoint seek --help")
    strange = sorted(set(accept or ()) - {TopicRecreated.code})
    if strange:
        raise BadArgument(
            f"'{strange[0]}' is nothing that a seek can accept",
            cause=f"it can accept {TopicRecreated.code}",
            next_command="penstock checkpoint seek --help",
        )
    wanted = Wanted(to, to_batch, tuple(topic or ()), frozenset(accept or ()))
    made = (seeking.rehearse if dry_run else seeking.seek)(load(file), wanted)
    if made.refused:
        made.refused.naming(file)
    moves = [
        {**_place(m), "from": m.at, "to": m.to, "skipped": m.skipped, "again": m.again, "unread": m.unread}
        for m in made.moves
    ]  # fmt: skip
    found = {
        "pipeline": made.pipeline,
        "dry_run": dry_run,
        "batch": made.batch,
        "partitions": moves,
        "skipped": sum(m.skipped for m in made.moves),
        "again": sum(m.again for m in made.moves),
        "unread": sum(m.unread for m in made.moves),
        "renewed": sorted(made.renewed),
        "taken_back": made.taken_back,
        "refused": made.refused.as_dict() if made.refused else None,
        "backup": made.backup,
    }
    _print(found, as_json, checkpoint_text.seek, file)
    if made.refused:
        raise typer.Exit(made.refused.exit_status)


@checkpoint.command()
def backup(
    file: SpecFile,
    to: Annotated[
        Path | None,
        typer.Argument(metavar="[TO]", help="A new directory or .tar.gz. Default: below the checkpoint's `backups`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the checkpoint, consistently also while the pipeline runs."""
    from penstock.operations.restore import back_up
    from penstock.spec.load import load

    pipeline = load(file)
    place, manifest = back_up(pipeline, to)
    found = {
        "pipeline": pipeline.name,
        "backup": str(place),
        "query": manifest.query,
        "time": manifest.time,
        "committed": manifest.committed,
        "planned": manifest.planned,
        "ledger": manifest.ledger,
        "files": len(manifest.files),
        "bytes": manifest.size,
    }
    _print(found, as_json, checkpoint_text.backup, file)


@checkpoint.command()
def restore(
    file: SpecFile,
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `backup` wrote.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the checkpoint; what was there is kept aside.

    Refused while the pipeline runs, when the backup is damaged, and when sinks have gone on since it was made.
    """
    from penstock.operations.restore import restore as put_back
    from penstock.spec.load import load

    made = put_back(load(file), source, dry_run=dry_run)
    found = {
        "pipeline": made.manifest.pipeline,
        "backup": str(source),
        "dry_run": dry_run,
        "query": made.manifest.query,
        "time": made.manifest.time,
        "committed": made.manifest.committed,
        "planned": made.manifest.planned,
        "replaced": made.replaced,
        "warnings": made.warnings,
    }
    _print(found, as_json, checkpoint_text.restored, file)


@checkpoint.command()
def fork(
    file: SpecFile,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The new pipeline's spec.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let a new pipeline, with a name, a checkpoint and sinks of its own, begin where this one is."""
    from penstock.operations.fork import fork as make
    from penstock.operations.fork import lacking
    from penstock.spec.load import load

    old, new = load(file), load(other)
    missing = lacking(new)  # first: what can go wrong with the asking must not follow a fork that is made
    made = make(old, new, dry_run=dry_run)
    found = {
        **asdict(made),
        "begins": [{**_place(r), "next": r.start} for r in made.begins],
        "missing_topics": missing,
        "next": f"penstock {'run' if missing == [] else 'apply'} {other}",
        "dry_run": dry_run,
    }
    _print(found, as_json, checkpoint_text.fork, file)


@checkpoint.command()
def repair(
    file: SpecFile,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="BACKUP", help="Default: the newest one below the checkpoint's `backups`."),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only say what could be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find truncated and missing files, and make them again from a backup or from what the ledger proves.

    Exits 0 when nothing is damaged (any more), else 1.
    """
    from penstock.operations.restore import repair as mend
    from penstock.spec.load import load

    pipeline = load(file)
    made = mend(pipeline, source, apply=apply)
    found = {
        "pipeline": pipeline.name,
        "applied": made.aside is not None,
        "damage": _damages(made.damage),
        "backup": made.backup,
        "skipped": made.skipped,
        "aside": made.aside,
    }
    _print(found, as_json, checkpoint_text.repair, file)
    if any(made.aside is None or each.content is None for each in made.damage):
        raise typer.Exit(1)


def _inspected(made: Inspection) -> dict[str, Any]:
    partitions = [{**asdict(place), "lag": place.lag} for place in made.partitions]
    return {**asdict(made), "partitions": partitions, "lag": made.lag, "damage": _damages(made.damage)}


def _damages(found: list[Damage]) -> list[dict[str, Any]]:
    return [{"file": each.file, "what": each.what, "source": each.source} for each in found]


def _place(of: Any) -> dict[str, Any]:
    return {"topic": of.topic, "partition": of.partition}


def _print(found: dict[str, Any], as_json: bool, text: Callable[[dict[str, Any], int], list[str]], file: Path) -> None:
    named = naming(found, file)  # before lines are broken: FILE may come to stand on another one than its command

    def human() -> None:
        for line in text(named, min(120, max(60, output.width() or 80))):
            output.say(naming(line, file))

    output.emit(named, as_json, human)
