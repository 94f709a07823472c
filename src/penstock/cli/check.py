"""`penstock check`: every mistake of every file, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson

if TYPE_CHECKING:
    from penstock.spec.mistake import Mistake
    from penstock.spec.model import Pipeline


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Specs, and files of tests, to check.")],
    as_json: AsJson = False,
) -> None:
    """Report every mistake in the given specs, with its line and what is allowed.

    Also checks the schema files they name. Starts no Java and connects to nothing. Exits 2 when there are
    mistakes.
    """
    from penstock.spec.case_load import is_test_file
    from penstock.spec.load import read

    results = [_tests(file) if is_test_file(file) else _with_schema_files(file, *read(file)) for file in files]
    mistakes = [mistake for _, _, found in results for mistake in found]
    errors = sum(mistake.level == "error" for mistake in mistakes)
    data = {
        "ok": errors == 0,
        "mistakes": errors,
        "warnings": len(mistakes) - errors,
        "files": [_file(*result) for result in results],
    }

    def human() -> None:
        for mistake in mistakes:
            output.say(output.clean(str(mistake)))
        for file, pipeline, _ in results:
            if pipeline is not None:
                topics, sinks = ", ".join(_topics(pipeline)), ", ".join(pipeline.sinks)
                output.say(f"{file}: ok: {pipeline.name} (topics: {topics}; sinks: {sinks})")
        output.say(_summary(len(files), errors, len(mistakes) - errors))

    output.emit(data, as_json, human)
    if errors:
        raise typer.Exit(2)


def _tests(file: Path) -> tuple[Path, Pipeline | None, list[Mistake]]:
    """A file of tests (`penstock test`): its own mistakes, and those of its spec."""
    from penstock.errors import SpecInvalid, SpecUnreadable
    from penstock.spec.case_load import read_tests
    from penstock.spec.mistake import Mistake

    try:
        return file, read_tests(file).pipeline, []
    except SpecUnreadable as error:
        return file, None, [Mistake(str(file), 1, 1, "", error.code, f"the file cannot be read: {error.cause}")]
    except SpecInvalid as error:
        found: Any = error.facts["mistakes"]
        return file, None, [Mistake(**each) for each in found]


def _with_schema_files(
    file: Path, pipeline: Pipeline | None, found: list[Mistake]
) -> tuple[Path, Pipeline | None, list[Mistake]]:
    """Also what is in the .avsc and .proto files that a sound spec names."""
    formats = pipeline.formats() if pipeline is not None else {}
    named = {at: how for at, how in formats.items() if how.format in ("avro", "protobuf") and how.schema_}
    if pipeline is None or not named:
        return file, pipeline, found
    from penstock.registry.file import fault_of_view, fault_to_write
    from penstock.spec import lines
    from penstock.spec.mistake import Mistake, dotted

    document, wrong = lines.parse(file.read_bytes().decode("utf-8-sig"), str(file)), []
    for at, how in named.items():
        fault = fault_of_view if at[0] == "source" else fault_to_write
        why = fault(pipeline.base, how.schema_, how.format, getattr(how, "message", None))
        if why is not None:
            path = (*at, "schema")
            spot = document.value_spot(path)
            message = f"the schema file '{how.schema_}' cannot be used: {why}"
            wrong.append(Mistake(str(file), spot.line, spot.column, dotted(path), "schema-unusable", message))
    return file, None if wrong else pipeline, found + wrong


def _file(file: Path, pipeline: Pipeline | None, found: list[Mistake]) -> dict[str, object]:
    facts: dict[str, object] = {"file": str(file), "ok": pipeline is not None}
    if pipeline is not None:
        facts |= {
            "name": pipeline.name,
            "topics": _topics(pipeline),
            "sinks": list(pipeline.sinks),
        }
    return facts | {"mistakes": [mistake.as_dict() for mistake in found]}


def _summary(files: int, errors: int, warnings: int) -> str:
    parts = [_count(files, "file"), _count(errors, "mistake")]
    return ", ".join([*parts, _count(warnings, "warning")] if warnings else parts)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _topics(pipeline: Pipeline) -> list[str]:
    source = pipeline.source
    return [source.pattern.match] if source.pattern else list(source.topics)
