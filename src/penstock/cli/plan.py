"""`penstock plan`: what a run would do, what it would guarantee, and everything that would stop it."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson, SpecFile
from penstock.errors import counted

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.kafka.differences import Difference
    from penstock.lifecycle.preview import Plan
    from penstock.plan.outline import Route
    from penstock.source.position import Standing
    from penstock.spec.model import Budget
    from penstock.spec.rules import Rule
    from penstock.spec.steps import Step

_WIDTH = 80
_SHOWN = 8  # partitions of a topic; past these only their number is said, and --json has them all
_BY = {
    "exactly-once-by-partition": "by partition, not by batch",
    "exactly-once-by-batch": "by batch, not by partition",
    "at-least-once": "not exactly once",
}


@app.command()
def plan(
    file: SpecFile,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="CODE",
            callback=output.known_codes,
            help="As if `run` were given the same (an error says when).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run would do and guarantee, where it would begin, and everything that would stop it.

    Changes nothing: no topic, no table, no checkpoint, no schema. Works while the pipeline runs. Exits 0 when it could
    start, else with the exit status of the first problem.
    """
    from penstock.lifecycle.preview import plan as make
    from penstock.spec.load import load
    from penstock.spec.place import locate

    made = make(load(file), accept or (), output.note)
    for problem in made.problems:
        locate(problem, file)
        problem.naming(file)
    output.emit(document(made), as_json, lambda: show(made, file))
    if made.problems:
        raise typer.Exit(made.problems[0].exit_status)


def document(made: Plan) -> dict[str, Any]:
    """What `--json` prints. Keys stay as they are between releases; new ones may come."""
    stands = made.standing
    return {
        "pipeline": made.pipeline,
        "could_start": not made.problems,
        "checkpoint": made.checkpoint,
        "running": made.running,
        "path": {
            "pattern": made.path.pattern,
            "topics": [asdict(topic) for topic in made.path.topics],
            "rules": [{"view": view, **_said(rule)} for view, rule in made.path.rules],
            "steps": [_said(step) for step in made.path.steps],
            "references": [asdict(each) for each in made.references],
            "budget": _budget(made.path.budget),
            "way": made.way,
        },
        "routes": [asdict(route) for route in made.routes],
        "schemas": [asdict(schema) for schema in made.schemas],
        "engine": asdict(made.engine),
        "topics": {
            "missing": [{"topic": name, **settings.model_dump()} for name, settings in made.missing_topics.items()],
            "differences": [asdict(each) for each in made.differences],
        },
        "start": None
        if stands is None
        else {
            **asdict(stands),
            "partitions": [{**asdict(each), "lag": each.lag} for each in stands.partitions],
            "lag": stands.lag,
        },
        "changes": [asdict(change) for change in made.changes],
        "warnings": made.warnings,
        "unchecked": made.unchecked,
        "problems": [problem.as_dict() for problem in made.problems],
    }


def _said(part: Rule | Step) -> dict[str, Any]:
    """As it is written, and in one line."""
    return {**part.model_dump(exclude_none=True, by_alias=True), "text": part.text}


def show(made: Plan, file: Path) -> None:
    """The same as words."""
    _say(f"pipeline {made.pipeline}: plan, checkpoint {made.checkpoint}")
    if made.running:
        _say(f"it is running: process {made.running}")
    _print_path(made)
    if made.way:
        _say(made.way, 1)
    output.say("guarantees")
    for route in made.routes:
        _print_route(route)
    for schema in made.schemas:
        state = f"there, id {schema.id}" if schema.id is not None else "new: the run will register it"
        _say(f"schema {schema.subject} ({schema.kind}): {state}", 1)
    _print_needs(made, file)
    if made.standing is not None:
        _print_standing(made.standing, bool(made.running))
    _print_list("changes since the last batch", [change_in_words(asdict(c)) for c in made.changes])
    _print_list("warnings", made.warnings)
    _print_list("not checked", made.unchecked)
    if made.problems:
        output.say("problems")
        for problem in made.problems:
            _print_problem(problem)
    number = len(made.problems)
    output.say(f"cannot start: {number} problem{'s' * (number != 1)}" if number else "could start")


def _print_path(made: Plan) -> None:
    from penstock.spec.model import FIRST_RECORDS, NEARLY_ALL
    from penstock.spec.stateful import bounds

    output.say("path")
    if made.path.pattern:
        _say(f"topics that match {made.path.pattern}", 1)
    for topic in made.path.topics:
        key = f", key {topic.key}" if topic.key else ""
        _say(f"topic {topic.topic}{_size(topic.partitions)}: {topic.format}{key} -> view {topic.view}", 1)
    for view, rule in made.path.rules:
        _say(f"rule {rule.name} of {view}: {rule.text}, otherwise {rule.otherwise}", 1)
    for step in made.path.steps:
        bound = bounds(step.stateful)
        _say(f"step {step.view}: {step.text}" + (f"; {bound}, otherwise dead-letter" if bound else ""), 1)
    for table in made.references:
        how = "every task has a copy" if table.broadcast else "rows are moved to be joined"
        again = f", read again after {table.refresh_s:g} s" if table.refresh_s else ""
        kept = f"; the copy in the checkpoint is {_age(table.kept_age_s)} old" if table.kept_age_s is not None else ""
        read = f"{counted(table.rows, 'row')} ({table.megabytes:g} MB){again}"
        _say(f"reference {table.name}: {table.kind} {table.place}: {read}; {how}{kept}", 1)
    for route in made.routes:
        where = f" where {route.where}" if route.where else ""
        label = f"sink {route.name}: {route.view}{where}" if route.view else route.name
        _say(f"{label} -> {route.target.kind} {route.target.to}", 1)
    if made.path.budget is None:
        _say(f"stops when {NEARLY_ALL * 100:g} % of the first {FIRST_RECORDS:,} records die", 1)
    elif made.path.budget != "none":
        few = counted(made.path.budget.at_least, "record")
        _say(f"stops when more than {made.path.budget.share * 100:g} % of the records die, and at least {few}", 1)


def _budget(budget: Budget | Literal["none"] | None) -> dict[str, Any] | None:
    from penstock.spec.model import FIRST_RECORDS, NEARLY_ALL

    if budget is None:
        return {"share": NEARLY_ALL, "first_records": FIRST_RECORDS}
    return None if budget == "none" else budget.model_dump()


def _print_route(route: Route) -> None:
    _say(f"{route.name}: {route.guarantee or 'none can be given yet, see below'}", 1)
    if route.mode and route.why:
        _say(f"{_BY[route.mode]}: {route.why}", 3)


def _print_needs(made: Plan, file: Path) -> None:
    engine = made.engine
    output.say("needs")
    _say(f"Java: {engine.java}" if engine.java else "Java: none that fits", 1)
    missing = engine.jars - engine.downloaded
    load = f"; {missing} to download ({engine.megabytes} MB)" if missing else ""
    _say(f"jars: {engine.jars} ({', '.join(engine.groups)}), {engine.downloaded} downloaded{load}", 1)
    for name, settings in made.missing_topics.items():
        config = "".join(f", {key}={value}" for key, value in settings.config.items())
        size = f"{counted(settings.partitions, 'partition')}, replication {settings.replication}"
        _say(f"topic {name}: missing; `penstock apply {file}` creates it with {size}{config}", 1)
    for each in made.differences:
        _say(f"topic {each.topic}: {each.setting} is {each.found}, the spec says {each.spec}; {_fate(each, file)}", 1)


def _fate(each: Difference, file: Path) -> str:
    """What `apply` would do about it."""
    done = {
        "change": f"`penstock apply {file}` changes it",
        "force": f"only `penstock apply {file} --force` changes it",
        "left": "left as it is",
        "impossible": "`penstock apply` refuses it",
    }[each.fate]
    return f"{done}: {each.effect}" if each.effect else done


def _print_standing(stands: Standing, running: bool) -> None:
    output.say("start")
    if stands.query is None:
        _say(f"no checkpoint yet: begins at `{stands.start}`; lag {counted(stands.lag, 'offset')}", 1)
    else:
        _say(f"goes on after {counted(stands.committed, 'batch', 'batches')}; lag {counted(stands.lag, 'offset')}", 1)
    if stands.replay is not None:
        fate = "is running now" if running else "was planned and not committed: it runs again, with the same offsets"
        _say(f"batch {stands.replay} {fate}", 1)
        for offsets in stands.replayed[:_SHOWN]:
            _say(str(offsets), 3)
    for topic, partitions in groupby(stands.partitions, lambda each: each.topic):
        found = list(partitions)
        for each in found[:_SHOWN]:
            _say(f"{topic}-{each.partition}: next offset {each.next:,}, end {each.end:,}, lag {each.lag:,}", 1)
        if rest := found[_SHOWN:]:
            _say(f"{topic}: {counted(len(rest), 'more partition')}, lag {sum(each.lag for each in rest):,}", 1)


def _print_list(title: str, texts: list[str]) -> None:
    if texts:
        output.say(title)
    for text in texts:
        _say(text, 1)


def _print_problem(problem: PenstockError) -> None:
    _say(f"error[{problem.code}]: {problem.what}", 1)
    if problem.cause:
        _say(f"cause: {problem.cause}", 2)
    if problem.next_command:  # not broken into lines: it is there to be copied
        output.say(f"    next:  {output.clean(problem.next_command)}")


def change_in_words(change: dict[str, Any]) -> str:
    """One item of `changes`."""
    thing, _, done = change["what"].partition("-")
    sign = "" if change["compatible"] else "incompatible: "
    return f"{sign}{thing} {change['name']} was {done}: it {change['effect']}"


def _age(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _size(partitions: int | None) -> str:
    if partitions is None:
        return ""
    return f" ({counted(partitions, 'partition')})" if partitions else " (missing)"


def _say(text: str, depth: int = 0) -> None:
    for line in output.wrapped(text, _WIDTH, depth):
        output.say(line)
