"""`penstock dlq`: what died, why, and what became of it. `dlq replay` is in `dlq_replay`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import letter_text, output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import NotWritable, counted

if TYPE_CHECKING:
    from penstock.deadletters.browse import Letter
    from penstock.spec.model import Pipeline

Group = tuple[str, str, str, str]
Topic = Annotated[str | None, typer.Option(help="Only letters of this topic.")]
Stage = Annotated[str | None, typer.Option(help="Only of this stage: decode, contract, transform or sink.")]
Class = Annotated[str | None, typer.Option("--class", help="Only of this error class, such as malformed.")]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Only those whose reason has this in it.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only records written to Kafka since: 2026-11-01T00:00:00Z, or 2h.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only records written to Kafka before.")]
All = Annotated[bool, typer.Option("--all", help="Also those that a replay has brought home.")]

dlq = typer.Typer(help="Look at dead letters, and replay them.")
app.add_typer(dlq, name="dlq")


@dlq.command()
def ls(
    file: SpecFile,
    topic: Topic = None,
    stage: Stage = None,
    error_class: Class = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="Most letters to show.")] = 50,
    every: All = False,
    as_json: AsJson = False,
) -> None:
    """Dead letters one by one, the oldest first: id, time, class and reason."""
    from penstock.deadletters.browse import Wanted, gather
    from penstock.spec.load import load

    wanted = Wanted(topic, stage, error_class, reason, since, until)
    everything = gather(load(file))
    held = [each for each in everything if wanted.holds(each)]
    found = [each for each in held if every or each.state != "replayed"]
    hidden = len(held) - len(found)
    instead = [each.last for each in everything if not held and (every or each.state != "replayed")]
    others = Counter(f"{death.stage}, {death.error_class}" for death in instead)
    data = {"total": len(found), "replayed_hidden": hidden, "letters": [_as_data(each) for each in found[:limit]]}
    output.emit(
        data,
        as_json,
        lambda: _say(letter_text.listed(found[:limit], len(found[limit:]), hidden, output.width(), others)),
    )


@dlq.command()
def show(
    file: SpecFile,
    id_: Annotated[str, typer.Argument(metavar="ID", help="topic:partition:offset, as `ls` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Everything about one dead letter: key, value, headers, and every time it died."""
    from penstock.deadletters.as_line import to_fields
    from penstock.deadletters.browse import died_at, unknown
    from penstock.spec.load import load

    pipeline = load(file)
    found = _with_bytes(pipeline, id_)
    if not found:
        raise unknown([id_])
    died = died_at(pipeline, [death for letter, _ in found for death in letter.deaths])
    data = []
    for letter, whole in found:
        own = to_fields(whole)
        record = {name: own[name] for name in ("key", "value", "headers", "timestamp_type")}
        history = [{**_death(death), "died": died.get((death.query, death.batch))} for death in letter.deaths]
        data.append({**_as_data(letter), "timestamp_ms": letter.timestamp_ms, **record, "history": history})

    def human() -> None:
        for letter, whole in found:
            _say(letter_text.shown(letter, whole, died, output.width()))

    output.emit({"letters": data}, as_json, human)


@dlq.command()
def stats(file: SpecFile, every: All = False, as_json: AsJson = False) -> None:
    """Dead letters grouped by topic, stage, error class and reason, with one sample each."""
    from penstock.deadletters.browse import gather
    from penstock.deadletters.reason import pattern
    from penstock.spec.load import load

    count: Counter[Group] = Counter()
    sample: dict[Group, str] = {}
    schemas: dict[Group, set[int]] = {}
    replayed = 0
    for letter in gather(load(file)):
        last = letter.last
        if letter.state == "replayed" and not every:
            replayed += 1
            continue
        group = (letter.topic, last.stage, last.error_class, pattern(last.reason))
        count[group] += 1
        schemas.setdefault(group, set()).update([last.schema_id] if last.schema_id is not None else [])
        sample.setdefault(group, f"{letter.topic}-{letter.partition} offset {letter.offset}: {last.reason}")
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
    output.emit(
        {"total": total, "replayed": replayed, "groups": groups},
        as_json,
        lambda: _say(letter_text.grouped(groups, total, replayed, output.width())),
    )


@dlq.command()
def export(
    file: SpecFile,
    to: Annotated[Path, typer.Option(metavar="OUT.jsonl", help="File to write; one that is there is replaced.")],
    topic: Topic = None,
    stage: Stage = None,
    error_class: Class = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    every: All = False,
    as_json: AsJson = False,
) -> None:
    """Dead letters as lines of JSON, byte for byte: key, value and headers are in base64."""
    from penstock.checkpoint.own_log import synced
    from penstock.deadletters.as_line import to_line
    from penstock.deadletters.browse import Wanted, gather, key_of, whole
    from penstock.spec.load import load

    pipeline = load(file)
    wanted = Wanted(topic, stage, error_class, reason, since, until)
    held = [each for each in gather(pipeline) if wanted.holds(each) and (every or each.state != "replayed")]
    chosen = {each.key: each for each in held}
    lines = 0
    try:
        with synced(to) as out:
            for letter in whole(pipeline, set(chosen)):
                about = chosen[key_of(letter)]
                if letter.query == about.last.query:  # the bytes are the same each time it died
                    history = [_death(death) for death in about.deaths]
                    out.write(to_line(letter, id=about.id, state=about.state, history=history))
                    lines += 1
    except OSError as error:
        raise NotWritable(f"cannot write {to}", cause=error.strerror, next_command="choose another file") from None
    data = {"exported": lines, "to": str(to)}
    output.emit(data, as_json, lambda: output.say(f"{counted(lines, 'dead letter')} in {to}"))


def _with_bytes(pipeline: Pipeline, id_: str) -> list[tuple[Letter, Any]]:
    """Of a topic that was made again there can be several records with the same place."""
    from penstock.deadletters.browse import gather, key_of, whole

    found = {each.key: each for each in gather(pipeline) if each.id == id_}
    bytes_of = {key_of(each): each for each in whole(pipeline, set(found))} if found else {}
    return [(letter, bytes_of[key]) for key, letter in found.items() if key in bytes_of]


def _as_data(letter: Letter) -> dict[str, Any]:
    last = letter.last
    return {
        "id": letter.id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "time": letter_text.moment(letter.timestamp_ms),
        "stage": last.stage,
        "class": last.error_class,
        "reason": last.reason,
        "bytes": letter.size,
        "deaths": len(letter.deaths),
        "state": letter.state,
        "replays": list(letter.replays),
    }


def _death(death: Any) -> dict[str, Any]:
    return {
        "by": death.by,
        "query": death.query,
        "batch": death.batch,
        "stage": death.stage,
        "class": death.error_class,
        "reason": death.reason,
        "schema_id": death.schema_id,
        "sinks": death.sinks.split(",") if death.sinks else None,
    }


def _say(lines: Any) -> None:
    for line in lines:
        output.say(line)
