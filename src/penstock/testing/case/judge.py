"""The verdict on a case: what of its outcome is not what it expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.errors import PenstockError
from penstock.spec.case import AnyRows, Expect, Rows
from penstock.spec.case_load import TestFile
from penstock.spec.mistake import Mistake, instead
from penstock.spec.mistake import Path as At
from penstock.testing.case.compare import letters_differ, rows_differ
from penstock.testing.case.result import Difference, Outcome

Columns = Mapping[str, tuple[str, ...]]


def judged(
    expect: Expect, outcome: Outcome, columns: Columns
) -> tuple[list[Difference], list[str], PenstockError | None]:
    """Differences, what else is not as expected, and an error that nobody expected."""
    if expect.error is not None:
        return [], [*_of_error(expect, outcome.error)], None
    if outcome.error is not None:
        return [], [], outcome.error
    found = [letters_differ(expect.dead_letters, outcome.letters)] if expect.dead_letters != "any" else []
    found += [
        rows_differ(f"{of}{name}", rows, outcome.rows[f"{key}{name}"], columns[f"{key}{name}"])
        for of, key, named in (("sink ", "", expect.sinks), ("view ", "view ", expect.views))
        for name, rows in named.items()
    ]
    notes = [
        f"dropped by {name}: {count} expected, {outcome.dropped[name]} got"
        for name, count in expect.dropped.items()
        if outcome.dropped[name] != count
    ]
    return [each for each in found if each is not None], notes, None


def _of_error(expect: Expect, error: PenstockError | None) -> Iterator[str]:
    assert expect.error is not None
    wanted = expect.error
    if error is None:
        yield f"the pipeline did not stop: error[{wanted.code}] expected"
        return
    said = "; ".join(text for text in (error.what, error.cause) if text)
    if error.code != wanted.code:
        yield f"error[{wanted.code}] expected, error[{error.code}] got: {said}"
    elif wanted.says is not None and wanted.says not in said:
        yield f"error[{wanted.code}] that says '{wanted.says}' expected, got: {said}"


def unknown_columns(tests: TestFile, columns: Columns) -> Iterator[Mistake]:
    """Columns that a case names and that its sink or view does not have. Known once the SQL is resolved."""
    for i, case in enumerate(tests.cases.cases):
        for of, key, named in (("sinks", "", case.expect.sinks), ("views", "view ", case.expect.views)):
            for name, rows in named.items():
                at: At = ("cases", i, "expect", of, name)
                yield from _unknown(tests, at, rows, f"{of[:-1]} '{name}'", columns[f"{key}{name}"])


def _unknown(tests: TestFile, at: At, rows: AnyRows, of: str, there: tuple[str, ...]) -> Iterator[Mistake]:
    at, plain = ((*at, "rows"), rows.rows) if isinstance(rows, Rows) else (at, rows)
    for j, row in enumerate(plain):
        for column in row:
            if column not in there:
                hint = instead(column, there)
                all_of_them = f"; it has: {', '.join(there)}" if hint and hint.startswith("did") else ""
                yield tests.key_mistake((*at, j, column), f"{of} has no column '{column}'", f"{hint}{all_of_them}")
