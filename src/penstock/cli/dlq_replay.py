"""`penstock dlq replay`: chosen dead letters through the pipeline again; a dry run unless it is told otherwise."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import letter_text, output, table
from penstock.cli.dlq import Class, Reason, Since, Stage, Topic, Until, dlq
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import counted, naming

if TYPE_CHECKING:
    from penstock.deadletters.choice import Choice
    from penstock.lifecycle.replay.run import Replayed
    from penstock.lifecycle.replay.trial import Trial
    from penstock.spec.model import Pipeline
    from penstock.watch import Watch


@dlq.command()
def replay(
    file: SpecFile,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this letter; repeatable.")] = None,
    topic: Topic = None,
    stage: Stage = None,
    error_class: Class = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most letters to take.")] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the replay. Default: the next number.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply/--dry-run", help="Do it. Without: only say what would happen.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send chosen dead letters through the pipeline again, from their own bytes, each once.

    What passes now goes to the sinks; what fails again stays dead, with its history. The same command goes on with a
    replay that was killed; letters that have come home are not taken again.
    """
    from penstock.deadletters.browse import Wanted
    from penstock.deadletters.choice import choose
    from penstock.lifecycle.replay import run as replaying
    from penstock.lifecycle.replay import trial as replay_trial
    from penstock.spec.load import load

    pipeline = load(file)
    wanted = Wanted(topic, stage, error_class, reason, since, until, tuple(ids or ()))
    if apply:
        outcome, choice = replaying.run(pipeline, wanted, name, limit, watch=_lines(as_json))
        output.emit(
            {"applied": True, **_done(outcome), "left_out": _named(choice.left_out, file)},
            as_json,
            lambda: _say(done(_done(outcome), _named(choice.left_out, file), output.width())),
        )
        return
    choice = choose(pipeline, wanted, name, limit)
    found = _tried(pipeline, choice, replay_trial.tried(pipeline, choice.letters))
    found["left_out"] = _named(choice.left_out, file)
    again = shlex.join(["penstock", *(word for word in sys.argv[1:] if word not in ("--dry-run", "--json"))])
    output.emit(found, as_json, lambda: _say(tried(found, f"{again} --apply", output.width())))


def _tried(pipeline: Pipeline, choice: Choice, trial: Trial) -> dict[str, Any]:
    return {
        "applied": False,
        "goes_on": choice.goes_on.name if choice.goes_on else None,
        "letters": len(choice.letters),
        "left_out": {},
        "would_pass": trial.passed,
        "would_die_again": sum(trial.dead.values()),
        "would_be_dropped": trial.dropped,
        "rows": dict(trial.rows),
        "reasons": [
            {**dict(zip(("stage", "class", "reason"), group, strict=True)), "count": n, "sample": trial.sample[group]}
            for group, n in trial.dead.most_common()
        ],
        "warnings": _warnings(pipeline),
    }


def _named(left_out: Mapping[str, int], file: Path) -> dict[str, int]:
    """Why letters were left out, with the spec's path in the commands."""
    return {naming(why, file): n for why, n in left_out.items()}


def _warnings(pipeline: Pipeline) -> list[str]:
    found = []
    for name, sink in pipeline.sinks.items():
        kind = sink.delta or sink.iceberg or sink.postgres
        upsert = kind.upsert if kind else None
        if upsert is not None and upsert.order_by is None:
            found.append(f"sink '{name}' upserts without `order_by`: a replayed record replaces a newer row of its key")
        if sink.kafka is not None and sink.kafka.guarantee == "at-least-once":
            found.append(f"sink '{name}' writes at least once: a replay that is killed can repeat records there")
    return found


def tried(found: Mapping[str, Any], again: str, columns: int | None) -> Iterator[str]:
    went = f", the rest of replay {found['goes_on']}" if found["goes_on"] else ""
    yield f"{counted(found['letters'], 'dead letter')}{went}; nothing is changed by this dry run"
    if found["letters"]:
        rows = ", ".join(f"{counted(n, 'row')} to {name}" for name, n in found["rows"].items())
        yield table.fitting(f"{found['would_pass']:>8,}  would pass: {rows}", columns)
        if found["would_be_dropped"]:
            yield f"{found['would_be_dropped']:>8,}  would be dropped by a rule"
        yield f"{found['would_die_again']:>8,}  would die again"
        for group in found["reasons"]:
            said = f"{group['stage']}, {group['class']}: {output.clean(group['reason'])}"
            yield from letter_text.count_lines(group["count"], said, columns, indent=10)
            yield table.fitting(f"{'':>20}e.g. {output.clean(group['sample'])}".replace("\n", " "), columns)
    yield from _left_out(found["left_out"], columns)
    for text in found["warnings"]:
        yield from letter_text.wrapped(f"warning: {text}", columns)
    if found["letters"]:
        yield from ("to do it:", f"  {again}")  # in one line, however long: it is there to be copied


def done(outcome: Mapping[str, Any], left_out: Mapping[str, int], columns: int | None) -> Iterator[str]:
    if outcome["replay"] is None:
        yield "nothing to replay"
    else:
        rows = ", ".join(_went(outcome, name) for name in outcome["written"]) or "no rows"
        yield table.fitting(f"replay {outcome['replay']}: {counted(outcome['letters'], 'dead letter')}", columns)
        yield table.fitting(f"{outcome['passed']:>8,}  passed: {rows}", columns)
        if outcome["dropped"]:
            yield f"{outcome['dropped']:>8,}  dropped by a rule"
        yield f"{outcome['dead_again']:>8,}  died again"
    yield from _left_out(left_out, columns)


def _went(outcome: Mapping[str, Any], sink: str) -> str:
    rest = ", ".join(
        f"{outcome[what][sink]:,} {said}"
        for what, said in (
            ("superseded", "superseded in it"),
            ("left_out_before", "left out before it"),
            ("there_before", "there before"),
        )
        if outcome[what].get(sink)
    )
    return f"{counted(outcome['written'][sink], 'row')} to {sink}" + (f" ({rest})" if rest else "")


def _done(outcome: Replayed | None) -> dict[str, Any]:
    return {
        "replay": outcome.name if outcome else None,
        "letters": outcome.letters if outcome else 0,
        "passed": outcome.passed if outcome else 0,
        "dead_again": outcome.dead_again if outcome else 0,
        "dropped": outcome.dropped if outcome else 0,
        "written": outcome.written if outcome else {},
        "superseded": outcome.superseded if outcome else {},
        "left_out_before": outcome.left_out_before if outcome else {},
        "there_before": outcome.there_before if outcome else {},
    }


def _left_out(left_out: Mapping[str, int], columns: int | None) -> Iterator[str]:
    for why, n in left_out.items():
        yield from letter_text.count_lines(n, f"left out: {why}", columns)


def _lines(as_json: bool) -> Watch:
    from penstock.checkpoint.ledger import Entry
    from penstock.watch import Watch

    class Lines(Watch):
        def batch_done(self, entry: Entry, seconds: float) -> None:
            if not as_json:
                passed = entry.read - entry.dead - entry.dropped
                dropped = f", {entry.dropped:,} dropped" if entry.dropped else ""
                output.note(
                    f"batch {entry.batch}: {counted(entry.read, 'letter')}, {passed:,} passed, "
                    f"{entry.dead:,} died again{dropped} in {seconds:.1f} s"
                )

    return Lines()


def _say(lines: Iterator[str]) -> None:
    for line in lines:
        output.say(line)
