"""What state does not allow: another way into it, other steps over it, records without a time."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.errors import BadArgument, CheckpointForeign
from penstock.spec.model import Pipeline
from penstock.spec.rules import Rule
from penstock.spec.stateful import AheadRule, ahead_rule, sides, time_rule
from penstock.spec.stateful_check import depending, feeding
from penstock.spec.steps import stateful_steps
from penstock.spec.types import quoted


def require_none(pipeline: Pipeline, what: str) -> None:
    """Raise BadArgument where records would have to go through the state of the running query, which they cannot."""
    steps = pipeline.transform
    behind = set().union(*(depending(steps, step.view) for step in stateful_steps(steps)))
    sinks = {name: sink.from_ for name, sink in pipeline.sinks.items() if sink.from_ in behind}
    for name, view in sinks.items():
        raise BadArgument(
            f"{what} cannot reach sink '{name}': its view '{view}' is made by steps that keep state",
            cause="their state belongs to the stream, in the order it was read: records that come another way would be "
            "missing in its windows, joins and keys, or close them",
            next_command="produce the records to their topic again, where they count by their event time; or read a "
            "range into tables of its own: another `checkpoint:`, other sinks, and `start:` at the position",
        )


def require_same_steps(pipeline: Pipeline, home: Home) -> None:
    """Raise CheckpointForeign where the checkpoint holds the state of other steps, or none: the engine may take it.
    Called once per start and by `plan`.

    The first batch may be cut off before it has made any state. With the same steps it runs again, from nothing."""
    before, log, kept = remembered.read(home), SparkLog(home.spark), in_stream(pipeline)
    if log.planned() is None:
        return
    now, then = remembered.of(pipeline).steps, before.steps if before else {}
    other = next((view for view in kept if before and now[view] != then.get(view)), None)
    if kept and not log.stateful and (other or log.committed() is not None):
        raise _other(kept[-1], "the checkpoint holds no state", f"'{kept[-1]}' would begin in the middle, with nothing")
    if log.stateful and not kept:
        raise _other("", "the steps that kept state are gone", "the checkpoint holds state of theirs")
    if log.stateful and other:
        said = then.get(other, "not there")
        raise _other(other, f"the state in the checkpoint is not that of step '{other}'", f"it was: {said}")


def in_stream(pipeline: Pipeline) -> list[str]:
    """The views whose rows get into state: of the steps that keep some, and of those before them that they read."""
    steps, keeping = pipeline.transform, stateful_steps(pipeline.transform)
    if not keeping:
        return []
    found, _ = feeding(steps[: steps.index(keeping[-1]) + 1], pipeline.source.reads())
    return [step.view for step in found]


def gets_all(pipeline: Pipeline, view: str) -> bool:
    """Whether every batch has all rows of the view again (`emit: complete`)."""
    steps = pipeline.transform
    complete = [step for step in steps if step.window and step.window.emit == "complete"]
    return any(view in depending(steps, step.view) for step in complete)


def time_rules_of(pipeline: Pipeline, view: str) -> Iterator[Rule]:
    """A record without an event time belongs to no window, and one with a time far ahead of the clock would close them
    all: where a stateful step is over a source view, such a record becomes a dead letter, as if a rule said so.
    (Rows whose event time SQL computes are up to the step.)"""
    for step in stateful_steps(pipeline.transform):
        assert step.stateful is not None
        for each in sides(step.stateful):
            if each.view.lower() == view.lower() and each.time is not None:
                rule = f"{quoted(each.time)} is not null"
                yield Rule.model_construct(name=time_rule(step.view), rule=rule, otherwise="dead-letter")
                if each.ahead is not None:
                    yield AheadRule.model_construct(name=ahead_rule(step.view), input=each, otherwise="dead-letter")


def _other(view: str, what: str, cause: str) -> CheckpointForeign:
    next_command = "bring the steps back to what they were; or begin anew: another `checkpoint:`, and sinks of its own"
    return CheckpointForeign(what, cause=cause, next_command=next_command, facts={"view": view})
