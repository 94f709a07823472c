"""A YAML file into a Pipeline, or into every mistake that is in it.

`read` never raises and is what `penstock check` calls; `load` raises and is what every other command calls.
Neither starts anything, neither resolves a reference, and the pipeline keeps schema paths as written:
`declared` opens them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.errors import ReferenceMissing, SpecInvalid, SpecUnreadable
from penstock.spec import explain, lines, local_path, loose, references
from penstock.spec.cross import field_mistakes
from penstock.spec.fields import Schema
from penstock.spec.lines import Document
from penstock.spec.lint import lint
from penstock.spec.mistake import Mistake, dotted
from penstock.spec.model import Pipeline
from penstock.spec.python_file import fault_of
from penstock.spec.rule_mistakes import rule_mistakes
from penstock.spec.sink_mistakes import sink_mistakes
from penstock.spec.step_columns import step_column_mistakes

__all__ = ["Mistake", "declared", "load", "read"]

_Part = TypeVar("_Part", bound=BaseModel)


def load(path: str | Path) -> Pipeline:
    """The pipeline in a file, with its relative paths starting at the file's directory.

    Raises SpecUnreadable when there is no text to read, and SpecInvalid with all mistakes as facts. Warnings
    pass.
    """
    path = Path(path)
    text = text_of(path)
    pipeline, mistakes = _read(text, path)
    if pipeline is None:
        raise invalid(path, mistakes, f"penstock check {path}")
    return pipeline


def read(path: str | Path) -> tuple[Pipeline | None, list[Mistake]]:
    """The pipeline and its warnings, or None and its mistakes in the order of the lines."""
    path = Path(path)
    try:
        text = text_of(path)
    except SpecUnreadable as error:
        return None, [Mistake(str(path), 1, 1, "", error.code, f"the file cannot be read: {error.cause}")]
    return _read(text, path)


def declared(base: Path, written: str | Schema, *, flat: bool = False) -> Schema:
    """A schema as a spec gives it: itself, or the path of its file below `base`; `flat` as in `field_mistakes`.

    Called when a pipeline is planned or started, for pipelines from YAML and from Python alike. Raises
    SpecUnreadable or SpecInvalid for the schema file as `load` does for a spec.
    """
    if isinstance(written, Schema):
        return written
    path = references.located(written, base)
    schema, mistakes = _schema(text_of(path), path, flat=flat)
    if schema is None:
        raise invalid(path, mistakes, None)
    return schema


def _read(text: str, path: Path) -> tuple[Pipeline | None, list[Mistake]]:
    document = lines.parse(text, str(path))
    pipeline, found = validated(Pipeline, document)
    if document.data is not None:
        found += lint(document, path.parent)
        found += _schema_files(document, path.parent)
        judged = (pipeline or loose.pipeline(document.data)).at(path.absolute().parent, path)
        named = [*rule_mistakes(judged), *step_column_mistakes(judged), *sink_mistakes(judged)]
        found += explain.cross_mistakes(named, document)
        found += _python_steps(judged, document)
        found += _paths(judged, document)
    found.sort(key=lambda mistake: (mistake.file != document.file, mistake.file, mistake.line, mistake.column))
    if pipeline is None or any(mistake.level == "error" for mistake in found):
        return None, found
    return pipeline, found


def _schema(text: str, path: Path, *, flat: bool) -> tuple[Schema | None, list[Mistake]]:
    document = lines.parse(text, str(path))
    schema, found = validated(Schema, document)
    for name, message in field_mistakes(schema, flat=flat) if schema else ():
        spot = document.key_spot(("fields", name))
        found.append(Mistake(str(path), spot.line, spot.column, dotted(("fields", name)), "names", message))
    return (None if found else schema), found


def _schema_files(document: Document, base: Path) -> list[Mistake]:
    """The mistakes of the schema files a spec names; a missing file is a mistake of the spec."""
    found: dict[str, list[Mistake]] = {}
    for path, written, how in _schema_paths(document.data):
        try:
            file = references.located(written, base)
            if how not in ("avro", "protobuf"):  # those are not in our own vocabulary
                found.setdefault(f"{file} {how == 'csv'}", _schema(text_of(file), file, flat=how == "csv")[1])
            elif not file.is_file():
                raise SpecUnreadable(f"{file} cannot be read", cause="no such file or directory")
        except SpecUnreadable as error:
            spot = document.value_spot(path)
            message = f"the schema file '{written}' cannot be read: {error.cause}"
            missing = Mistake(document.file, spot.line, spot.column, dotted(path), "schema-unreadable", message)
            found[dotted(path)] = [missing]
        except (ReferenceMissing, SpecInvalid):
            continue  # lint has said so
    return [mistake for mistakes in found.values() for mistake in mistakes]


def _python_steps(pipeline: Pipeline, document: Document) -> Iterator[Mistake]:
    """Functions and classes that are not where the spec says. Their files are read, not run."""
    for i, step in enumerate(pipeline.transform):
        named = step.python or step.state
        fault = fault_of(named, pipeline.base) if named else None
        if fault is not None:
            path = ("transform", i, *(("python", "function") if step.python else ("state", "processor")))
            spot = document.value_spot(path)
            where = (document.file, spot.line, spot.column, dotted(path))
            yield Mistake(*where, "function-missing", fault.message, fault.hint)


def _paths(pipeline: Pipeline, document: Document) -> Iterator[Mistake]:
    """Paths that are mistakes once their references are replaced; the model refuses those that are as written."""
    for path, written in local_path.written_in(pipeline):
        try:
            if local_path.fault(written) is None:
                references.located(written, pipeline.base)
        except ReferenceMissing:
            continue  # lint has said so
        except SpecInvalid as error:
            if not references.broken(written):  # nor that
                spot = document.value_spot(path)
                where = (document.file, spot.line, spot.column, dotted(path))
                yield Mistake(*where, "bad-path", f"{error.what}: {error.cause}", error.next_command)


def _schema_paths(data: Any) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """The schema paths in data that may have mistakes anywhere else, and the format that has each."""
    source = data.get("source") if isinstance(data, dict) else None
    source = source if isinstance(source, dict) else {}
    topics = source.get("topics")
    reads: dict[tuple[str, ...], Any] = {("pattern",): source.get("pattern")}
    if isinstance(topics, dict):
        reads |= {("topics", name): topic for name, topic in topics.items()}
    for path, read in reads.items():
        for part in ("value", "key") if isinstance(read, dict) else ():
            how = read.get(part)
            written = how.get("schema") if isinstance(how, dict) else None
            if isinstance(written, str):
                yield ("source", *path, part, "schema"), written, how.get("format")


def validated(root: type[_Part], document: Document) -> tuple[_Part | None, list[Mistake]]:
    """The data as a model.

    Strict: a quoted number is not a number, `yes` is not true, in YAML as in the JSON Schema.
    """
    found = document.mistakes
    data = document.data
    if data is None:
        return None, found
    if not isinstance(data, dict):
        document.add("wrong-type", (), f"expected a mapping with {', '.join(root.model_fields)} at the top of the file")
        return None, found
    try:
        part = root.model_validate(data, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        found += explain.mistakes(errors, document, root)
        if root is Pipeline and not any("mistakes" in each.get("ctx", {}) for each in errors):
            found += explain.cross_mistakes(loose.cross_mistakes(data), document)
        return None, found
    return (None if found else part), found


def text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        cause = f"it is not UTF-8 text: byte 0x{error.object[error.start]:02x} on line {line}"
    except OSError as error:
        cause = (error.strerror or type(error).__name__).lower()
    except ValueError:
        cause = "it is not a path"
    raise SpecUnreadable(f"{path} cannot be read", cause=cause, next_command=f"ls -l {path}")


def invalid(path: Path, mistakes: list[Mistake], next_command: str | None) -> SpecInvalid:
    errors = [mistake for mistake in mistakes if mistake.level == "error"]
    count = "a mistake" if len(errors) == 1 else f"{len(errors)} mistakes"
    return SpecInvalid(
        f"{path} has {count}",
        cause="\n         ".join(map(str, errors)),
        next_command=next_command,
        facts={"mistakes": [mistake.as_dict() for mistake in errors]},
    )
