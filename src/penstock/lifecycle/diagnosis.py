"""Everything that stops a start, where a start itself stops at the first thing.

What is tried is what a run tries (`supervise.prepare`, `Assembly.settle`), first as a whole. Only if that fails it is
tried again in parts: each sink alone, each rule alone, each step with the sound ones before it. So this page cannot
disagree with a run about whether something is wrong, only say more about what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.batch.run import Assembly
from penstock.batch.source_view import Inlet
from penstock.errors import PenstockError
from penstock.lifecycle import stream
from penstock.plan import build
from penstock.spec.model import Pipeline
from penstock.spec.stateful_check import late_view_names
from penstock.spec.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of_schemas(pipeline: Pipeline) -> list[PenstockError]:
    """What is wrong with the schemas of each view, where the whole of them could not be had."""
    reading = build.readers(pipeline)
    alone = [
        _raised(lambda view=view: build.inlet(pipeline, view, reading))  # type: ignore[misc]
        for view in pipeline.source.reads()
    ]
    return [error for error in alone if error is not None]


def of_places(assembly: Assembly, accepted: frozenset[str]) -> list[PenstockError]:
    """What is wrong with the places that sinks and dead letters write to."""
    whole = _raised(lambda: stream.prepare(assembly, accepted))
    if whole is None:
        return []
    alone = [
        _raised(lambda part=part: stream.prepare(part, accepted))  # type: ignore[misc]
        for part in [
            *(replace(assembly, outlets=[outlet]) for outlet in assembly.outlets),
            replace(assembly, outlets=[]),  # the dead letters
        ]
    ]
    return distinct([error for error in alone if error is not None] or [whole])


def of_sinks(assembly: Assembly, attempt: Callable[[Assembly], object]) -> list[PenstockError]:
    """What an attempt is refused with for each sink alone, where it is for all of them."""
    whole = _raised(lambda: attempt(assembly))
    if whole is None:
        return []
    parts = [replace(assembly, outlets=[outlet]) for outlet in assembly.outlets]
    alone = [_raised(lambda part=part: attempt(part)) for part in parts]  # type: ignore[misc]
    return distinct([error for error in alone if error is not None] or [whole])


def of_plan(spark: SparkSession, assembly: Assembly) -> list[PenstockError]:
    """What is wrong with rules, steps, conditions, and columns that sinks need."""
    whole = _raised(lambda: assembly.settle(spark))
    if whole is None:
        return []
    found: list[PenstockError] = []
    inlets = [_sound_rules(spark, assembly, inlet, found) for inlet in assembly.inlets]
    steps, broken = _sound_steps(spark, replace(assembly, inlets=inlets), found)
    for outlet in assembly.outlets:
        if outlet.view not in broken:
            error = _settled(spark, replace(assembly, inlets=inlets, outlets=[outlet]), steps)
            found += [error] if error is not None else []
    return distinct(found or [whole])


def distinct(errors: Iterable[PenstockError]) -> list[PenstockError]:
    """Each once: two sinks may miss the same topic."""
    return list({(error.code, error.what, error.cause): error for error in errors}.values())


def _sound_rules(spark: SparkSession, assembly: Assembly, inlet: Inlet, found: list[PenstockError]) -> Inlet:
    """The inlet with the rules that are conditions over its fields; what is wrong with the others goes to `found`."""
    sound = []
    for rule in inlet.contract.rules:
        alone = replace(inlet, contract=replace(inlet.contract, rules=(rule,)))
        error = _settled(spark, replace(assembly, inlets=[alone], outlets=[]), [])
        if error is None:
            sound.append(rule)
        else:
            found.append(error)
    return replace(inlet, contract=replace(inlet.contract, rules=tuple(sound)))


def _sound_steps(spark: SparkSession, assembly: Assembly, found: list[PenstockError]) -> tuple[list[Step], set[str]]:
    """The steps that resolve, and the views that do not, with those of late rows. A step over a broken view is broken
    too, but no news."""
    sound: list[Step] = []
    broken: set[str] = set()
    for step in assembly.transform.steps:
        if any(re.search(rf"\b{re.escape(view)}\b", step.text, re.IGNORECASE) for view in broken):
            broken |= {step.view, *late_view_names([step])}
            continue
        error = _settled(spark, replace(assembly, outlets=[]), [*sound, step])
        if error is None:
            sound.append(step)
        else:
            broken |= {step.view, *late_view_names([step])}
            found.append(error)
    return sound, broken


def _settled(spark: SparkSession, assembly: Assembly, steps: list[Step]) -> PenstockError | None:
    transform = replace(assembly.transform, steps=tuple(steps))
    return _raised(lambda: replace(assembly, transform=transform).settle(spark))


def _raised(attempt: Callable[[], object]) -> PenstockError | None:
    try:
        attempt()
    except PenstockError as error:
        return error
    return None
