"""`penstock test`: the unit tests of pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.errors import BadArgument, counted

if TYPE_CHECKING:
    from penstock.spec.case import Case
    from penstock.spec.case_load import TestFile
    from penstock.testing.case.result import Result

_WIDTH = 100  # where the output goes to a file


@app.command()
def test(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Specs, files of tests, or directories with such files.")
    ],
    like: Annotated[str | None, typer.Option("-k", metavar="TEXT", help="Only cases whose name holds this.")] = None,
    named: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only the case of this name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the unit tests of a pipeline, `<spec>.test.yaml`, on the real engine without a broker.

    Records go through decode, rules, steps and conditions; rows and dead letters are compared with what each case
    expects. Nothing is read from Kafka and nothing is written. Exits 0 when all cases passed, 1 when some did not,
    2 for mistakes in the files.
    """
    from penstock.spec.case_load import find_tests, read_tests
    from penstock.testing.case.bench import Bench

    found = list(dict.fromkeys(path for file in files for path in find_tests(file)))
    tests = [read_tests(path) for path in found]
    chosen = _chosen(tests, like, named or [])
    results: list[Result] = []
    shown: Path | None = None
    with Bench([each.pipeline for each, _ in chosen]) as bench:
        for each, case in chosen:
            results.append(bench.tried(each, case))
            if not as_json:
                if shown != each.path:
                    shown = each.path
                    output.say(str(each.path))
                _print(results[-1])
    failed = sum(not result.passed for result in results)
    data = {
        "ok": not failed,
        "passed": len(results) - failed,
        "failed": failed,
        "cases": [result.as_dict() for result in results],
    }
    counts = f"{len(results) - failed} passed" + (f", {failed} failed" if failed else "")
    output.emit(data, as_json, lambda: output.say(f"{counted(len(results), 'case')}: {counts}"))
    if failed:
        raise typer.Exit(1)


def _chosen(tests: list[TestFile], like: str | None, named: list[str]) -> list[tuple[TestFile, Case]]:
    every = [(each, case) for each in tests for case in each.cases.cases]
    for name in named:
        if not any(case.name == name for _, case in every):
            raise BadArgument(f"there is no case '{name}'", cause=_there(every), next_command="leave out --case")
    chosen = [
        (each, case)
        for each, case in every
        if (not named or case.name in named) and (like is None or like.lower() in case.name.lower())
    ]
    if not chosen:
        raise BadArgument(f"no case has '{like}' in its name", cause=_there(every), next_command="leave out -k")
    return chosen


def _there(every: list[tuple[TestFile, Case]]) -> str:
    return "there is: " + "; ".join(case.name for _, case in every)


def _print(result: Result) -> None:
    width = output.width() or _WIDTH
    where = "" if result.passed else f" (line {result.line})"
    for line in output.wrapped(f"{'ok  ' if result.passed else 'FAIL'}  {result.name}{where}", width, 1):
        output.say(line)
    for line in result.text(width - 8).split("\n") if not result.passed else ():
        output.say(output.clean(f"{' ' * 8 if line else ''}{line}"))
