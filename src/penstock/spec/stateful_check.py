"""What can be wrong with stateful steps, as far as no engine is needed to tell.

1. A pipeline has one chain of them: each, from the second on, is over the view of the one before it. The rows of
   the last one are what a batch is made of.
2. The first one says how late records may be. Its watermark counts for the others.
3. What is looked up in front of one stays as it is while the query runs, and no rule there compares records.
4. Timers of the clock need to be told how often to look at it.
5. Where rows are emitted more than once (`update`, `complete`), every sink that gets them must be able to replace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.record import DELETED
from penstock.spec.sql_names import may_read
from penstock.spec.stateful import WINDOW, AnyStateful, Join, State, Window, ahead_rule, late_views, sides, time_rule
from penstock.spec.steps import Step, stateful_steps

if TYPE_CHECKING:
    from penstock.spec.model import Pipeline
    from penstock.spec.sinks import Sink

_Mistake = tuple[tuple[str | int, ...], str, list[str]]


def stateful_mistakes(spec: Pipeline) -> Iterator[_Mistake]:
    steps = list(spec.transform)
    keeping = stateful_steps(steps)
    if not keeping:
        return
    yield from _of_inputs(spec, steps)
    for before, step in pairwise(keeping):
        yield from _of_chain(steps, before, step)
    first = keeping[0].stateful
    if isinstance(first, Window) and first.late_after is None and first.emit != "complete":
        at = ("transform", steps.index(keeping[0]), "window")
        yield at, "it lacks `late_after`: without it no window could ever be closed", []
    if first is not None and keeping[0].deduplicate and keeping[0].deduplicate.within is None:
        at = ("transform", steps.index(keeping[0]), "deduplicate")
        yield at, "it lacks `within`: without it no key could ever be forgotten", []
    if isinstance(first, State) and first.time is not None and first.late_after is None:
        at = ("transform", steps.index(keeping[0]), "state")
        yield at, "it lacks `late_after`: without it event time would never come to an end", []
    for step in keeping:
        if step.stateful and "ahead" in step.stateful.model_fields_set and sides(step.stateful)[0].ahead is None:
            why = "without `late_after` there is no watermark to keep safe"
            if step is not keeping[0]:
                why = f"the watermark is that of '{keeping[0].view}'"
            yield ("transform", steps.index(step), step.kind, "ahead"), f"has no effect: {why}", []
    for before, step in pairwise(keeping):
        if before.state:
            text = f"'{before.view}' keeps state by a class of your own: no other stateful step can follow it"
            yield ("transform", steps.index(step)), text, []
    for step in keeping:
        if step.state and step.state.timers == "processing" and spec.trigger == "continuous":
            text = (
                "timers of the clock are looked at by batches, and with `trigger: continuous` one would follow the "
                "other without a pause: say how often, such as `trigger: {every: 10s}`"
            )
            yield ("transform", steps.index(step), "state", "timers"), text, []
    yield from _of_tables(spec, steps[: steps.index(keeping[-1])])
    yield from _of_contracts(spec, steps[: steps.index(keeping[-1]) + 1])
    yield from _of_sinks(spec, steps, keeping)


def _of_tables(spec: Pipeline, before: list[Step]) -> Iterator[_Mistake]:
    """Reference tables in front of a stateful step: the stream is planned once, with the table of the start."""
    for i, step in enumerate(before):
        for name in _tables_of(spec, step):
            if spec.references[name].refresh is not None:
                at = {"enrich": ("enrich", "reference"), "python": ("python", "from")}.get(step.kind, (step.kind,))
                text = (
                    f"'{name}' has `refresh`, and such a table cannot be read before a step that keeps state: the "
                    "stream has one plan"
                )
                yield ("transform", i, *at), text, []
        if step.enrich and step.enrich.missing:
            text = "only `null` before a step that keeps state: let a step after it tell rows without a counterpart"
            yield ("transform", i, "enrich", "missing"), text, []


def _of_contracts(spec: Pipeline, stream: list[Step]) -> Iterator[_Mistake]:
    """Records in front of a stateful step are judged in the stream, one by one."""
    _, needed = feeding(stream, spec.source.reads())
    for view, rules in spec.contract.items():
        for i, rule in enumerate(rules):
            if rule.unique and view.lower() in needed:
                text = "records before a step that keeps state are judged one by one: use a `deduplicate` step"
                yield ("contract", view, i, "unique"), text, []


def feeding(stream: Sequence[Step], sources: Iterable[str]) -> tuple[list[Step], set[str]]:
    """Of the steps up to the last that keeps state: those whose rows get into state, and the views that these read, in
    lower case."""
    found: list[Step] = []
    needed: set[str] = set()
    for i, step in reversed([*enumerate(stream)]):
        if step.stateful or step.view.lower() in needed:
            found.insert(0, step)
            known = [*sources, *(before.view for before in stream[:i])]
            needed |= {view.lower() for view in known if reads(step, view)}
    return found, needed


def tables_of_stream(spec: Pipeline) -> set[str]:
    """The reference tables that the stream of a pipeline may read: its plan has the copies of the start in it."""
    steps = list(spec.transform)
    last = max((i for i, step in enumerate(steps) if step.stateful), default=0)
    return {name for step in steps[:last] for name in _tables_of(spec, step)}


def _tables_of(spec: Pipeline, step: Step) -> list[str]:
    """Those that a step reads. Of SQL the names in its text count, so one too many rather than one too few."""
    if step.sql is not None:
        return [name for name in spec.references if may_read(step.sql, name)]
    named = [step.enrich.reference] if step.enrich else step.python.from_ if step.python else []
    return [name for name in spec.references if name.lower() in [each.lower() for each in named]]


def late_view_names(steps: Iterable[Step]) -> list[str]:
    """Views of late rows that sinks can read: those of the first stateful step. Later ones get nothing late."""
    first = next((step for step in steps if step.stateful), None)
    if first is None or first.stateful is None or not _has_late_view(first.stateful):
        return []
    return list(late_views(first.view, first.stateful))


def time_rules(spec: Pipeline) -> list[str]:
    """The rules that stateful steps over source views bring along: their records need an event time, and one that is
    not too far ahead of the clock."""
    sources = {view.lower() for view in spec.source.reads()}
    found = []
    for step in stateful_steps(spec.transform):
        over = [each for each in sides(step.stateful) if each.view.lower() in sources] if step.stateful else []
        found += [time_rule(step.view)] * any(each.time for each in over)
        found += [ahead_rule(step.view)] * any(each.ahead for each in over)
    return found


def reads(step: Step, view: str) -> bool:
    """Whether a step speaks of a view. Of SQL the text is searched: a word that only looks like it counts too."""
    if step.stateful:
        return view.lower() in [name.lower() for name in step.stateful.inputs]
    if step.sql is None:
        return view.lower() in [name.lower() for _, name in step.reads()]
    return re.search(rf"\b{re.escape(view)}\b", step.text, re.IGNORECASE) is not None


def depending(steps: Iterable[Step], on: str) -> set[str]:
    """The views made of `on`, with itself."""
    found = {on}
    for step in steps:
        if any(reads(step, view) for view in found):
            found.add(step.view)
    return found


def _has_late_view(of: AnyStateful) -> bool:
    """Of a class that misses nothing it holds the rows without the time that the class asks for."""
    return of.drops_late or (isinstance(of, State) and of.time is not None)


def _of_inputs(spec: Pipeline, steps: list[Step]) -> Iterator[_Mistake]:
    for i, step in enumerate(steps):
        known = [*spec.source.reads(), *(before.view for before in steps[:i])]
        for at, name in _named(step):
            if name.lower() not in [view.lower() for view in known]:
                yield ("transform", i, step.kind, *at), f"no view '{name}' before it", known


def _named(step: Step) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(step.stateful, Join):
        yield ("left", "from"), step.stateful.left.from_
        yield ("right", "from"), step.stateful.right.from_
    elif step.stateful:
        yield ("from",), step.stateful.from_


def _of_chain(steps: list[Step], before: Step, step: Step) -> Iterator[_Mistake]:
    i, of = steps.index(step), step.stateful
    assert of is not None and before.stateful is not None
    below = depending(steps[:i], before.view)
    outside = [name for name in of.inputs if name.lower() not in [view.lower() for view in below]]
    if outside:
        text = (
            f"'{outside[0]}' is not made of '{before.view}', the stateful view before it: a pipeline has one chain of "
            "stateful steps; make two pipelines"
        )
        yield ("transform", i, step.kind), text, []
        return
    for read in sides(of):
        if before.window and read.view.lower() == before.view.lower() and read.time in WINDOW:
            text = f"the event time of the windows of '{before.view}' is `window_time`: '{read.time}' has no watermark"
            yield ("transform", i, step.kind, "time"), text, []
    if isinstance(of, Join):
        yield ("transform", i, "join"), "a join of streams must be the first stateful step", []
    elif of.late_after is not None:
        name = "within" if step.deduplicate else "late_after"
        yield ("transform", i, step.kind, name), f"has no effect: the watermark is that of '{before.view}'", []
    for each in (before, step):
        if each.stateful and each.stateful.emit != "append":
            at = ("transform", steps.index(each), each.kind, "emit")
            yield at, f"only `append`: '{before.view}' and '{step.view}' follow each other, and rows must be final", []


def inside_the_stream(steps: Sequence[Step]) -> set[str]:
    """The views between stateful steps: only what the last of these makes comes out."""
    keeping = stateful_steps(steps)
    inner = {view for step in keeping[:-1] for view in depending(steps, step.view)}
    return inner - depending(steps, keeping[-1].view) if inner else inner


def _of_sinks(spec: Pipeline, steps: list[Step], keeping: list[Step]) -> Iterator[_Mistake]:
    last = keeping[-1]
    assert last.stateful is not None
    made, i = depending(steps, last.view), steps.index(last)
    inside = inside_the_stream(steps)
    there = {view.lower() for view in (*spec.source.reads(), *(step.view for step in steps), *late_view_names(steps))}
    read = {sink.from_.lower() for sink in spec.sinks.values()}
    # A sink whose view is not there may have meant this one.
    if read <= there and not read & {view.lower() for view in made}:
        yield ("transform", i, "view"), f"no sink gets what '{last.view}' makes", []
    for name, sink in spec.sinks.items():
        if sink.from_.lower() in {view.lower() for view in inside}:
            text = (
                f"'{sink.from_}' stays inside the stream: only '{last.view}', the last stateful view, comes out of it"
            )
            yield ("sinks", name, "from"), text, []
        elif sink.from_.lower() in {view.lower() for view in made} and last.stateful.emit != "append":
            why = _cannot_replace(sink, last)
            if why:
                text = f"`emit: {last.stateful.emit}` of '{last.view}' gives a row several times, and {why}"
                yield ("sinks", name, "from"), text, []
            elif (column := _changes(sink, last)) and not (sink.console or sink.memory):
                yield ("sinks", name, "where"), would_stay(sink, column), []
    for j, step in enumerate(steps[i + 1 :], i + 1):
        for view in sorted(inside):
            if reads(step, view) and step.view in made:
                yield ("transform", j), f"'{view}' stays inside the stream: only '{last.view}' comes out of it", []


def would_stay(sink: Sink, column: str) -> str:
    """What is wrong with a sink's condition on a column that changes, and what to write instead."""
    return (
        f"a row whose '{column}' no longer meets it would stay in the sink as it was: without `where`, let it read a "
        f"step that says which rows are to go: select *, ({sink.where}) is not true as {DELETED} from {sink.from_}"
    )


def changing(step: Step) -> list[str]:
    """The columns of a stateful step that are others whenever a row is emitted again."""
    of = step.stateful
    made = of.columns if isinstance(of, Window) else of.fields if isinstance(of, State) else {}
    return [name for name in made if of is not None and name not in of.keys]


def _changes(sink: Sink, step: Step) -> str | None:
    """A column that the condition of a sink reads, and that changes. What SQL makes of it is for `plan`."""
    return next((name for name in changing(step) if sink.where and may_read(sink.where, name)), None)


def _cannot_replace(sink: Sink, step: Step) -> str | None:
    """Why a sink must not get rows that replace earlier ones; None: it can."""
    of = step.stateful
    assert of is not None
    if sink.console or sink.memory:
        return None if of.emit == "complete" or sink.console else "a table in memory only grows: use `emit: complete`"
    table = sink.delta or sink.iceberg or sink.postgres
    upsert = table.upsert if table else None
    if upsert is None:
        return "the sink appends: it would hold all of them; use a sink with `upsert`, or `emit: append`"
    if sink.from_.lower() != step.view.lower():
        return None  # what SQL makes of the columns only the engine knows
    keys, has = set(of.keys), set(upsert.key)
    needed = keys - {"window_start", "window_end"} if isinstance(of, Window) else keys
    missing = needed - has
    if isinstance(of, Window) and not has & {"window_start", "window_end"}:
        missing |= {"window_start"}
    if missing:
        return f"the `key` of the sink's `upsert` lacks {', '.join(sorted(missing))}: rows would replace others"
    if has - keys:
        return f"the `key` of the sink's `upsert` has {', '.join(sorted(has - keys))}, which changes from row to row"
    return None
