"""Completeness where state is kept: what became of the records that were handed to stateful steps, batch by batch.

A record that passed the contract of a source view is late, a duplicate, or taken: part of a window, a join, a key's
state. What comes out of the last step is what the sinks over its view were handed. And what we call late is what the
engine says it dropped, where it counts rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.checkpoint.ledger import Entry, StepCount
from penstock.errors import counted
from penstock.spec.model import Pipeline
from penstock.spec.steps import Step, stateful_steps
from penstock.verification.report import Finding, Report


def account(pipeline: Pipeline, entries: Sequence[Entry], report: Report) -> None:
    """Adds to the report what the steps did, and where the ledger does not add up."""
    for entry in entries:
        for view, count in entry.stateful.items():
            _add(report.late, view, count.late)
            _add(report.untimed, view, count.untimed)
            _add(report.ahead, view, count.ahead)
            _add(report.duplicates, view, count.duplicates)
            _add(report.taken, view, None if count.taken is None else count.taken - (count.duplicates or 0))
            if count.held is not None:
                report.held[view] = count.held
        report.findings += _of_batch(pipeline, entry)
    report.untimed = {view: count for view, count in report.untimed.items() if count}
    report.ahead = {view: count for view, count in report.ahead.items() if count}


def _of_batch(pipeline: Pipeline, entry: Entry) -> Iterator[Finding]:
    keeping = [step for step in stateful_steps(pipeline.transform) if step.view in entry.stateful]
    if not keeping:
        return
    first, last = keeping[0], keeping[-1]
    assert first.stateful is not None
    handed = [entry.views[view] for view in first.stateful.inputs if view in entry.views]
    came = entry.stateful[first.view].came
    if came is not None and len(handed) == len(first.stateful.inputs):  # no SQL lies before it
        passed, refused = sum(count.passed for count in handed), sum(count.rejected for count in handed)
        if not passed - refused <= came <= passed:
            yield _differs(entry, first.view, f"{counted(passed, 'record')} passed, {came:,} handed to it")
    for step in keeping:
        count = entry.stateful[step.view]
        if step.deduplicate and not _adds_up(count):
            yield _differs(
                entry,
                step.view,
                f"{counted(count.taken or 0, 'row')} in, {count.gave:,} out, {count.duplicates:,} dropped",
            )
        if _drops_rows(step) and count.cut not in (None, count.late):
            text = f"the engine dropped {counted(count.cut or 0, 'row')} as late, {count.late:,} counted as late"
            yield _differs(entry, step.view, text)
    for name, sink in pipeline.sinks.items():
        written, gave = entry.sinks.get(name), entry.stateful[last.view].gave
        if sink.from_ == last.view and sink.where is None and written is not None and gave is not None:
            got = written.written + written.superseded + written.rejected - written.failed
            if got != gave:
                yield _differs(entry, last.view, f"it gave {counted(gave, 'row')}, sink '{name}' accounts for {got:,}")


def _adds_up(count: StepCount) -> bool:
    if count.taken is None or count.gave is None or count.duplicates is None:
        return True  # another step lies before or behind it
    return count.taken == count.gave + count.duplicates


def _drops_rows(step: Step) -> bool:
    """Whether the engine counts the very rows that come too late. Those of a window it groups before it drops them."""
    return step.stateful is not None and step.stateful.drops_late and step.window is None


def _differs(entry: Entry, view: str, text: str) -> Finding:
    return Finding("step-differs", f"step '{view}': {text}", entry.batch)


def _add(to: dict[str, int], view: str, count: int | None) -> None:
    if count is not None:
        to[view] = to.get(view, 0) + count
