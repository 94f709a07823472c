"""The spec described by its own model: the JSON Schema and the reference page.

`penstock schema` prints them; `docs/reference.md` is the page as printed, and a test keeps it current.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.spec import duration, shape, spark_options
from penstock.spec.case import Cases
from penstock.spec.fields import Field, Schema
from penstock.spec.local_path import LOCAL
from penstock.spec.model import Pipeline
from penstock.spec.words import Name, Setting, Text, TopicName, ViewName

_NAMED: dict[Any, str] = {
    Name: "name",
    ViewName: "view name",
    TopicName: "topic name",
    Text: "text",
    Setting: "setting",
    str: "text",
    int: "whole number",
    bool: "`true` or `false`",
    timedelta: "duration",
}

EXAMPLE = """\
penstock: 1
name: payments
kafka: {bootstrap: "${env:KAFKA_BOOTSTRAP}"}
source:
  topics:
    payments:
      value:
        format: json
        schema:
          fields:
            payment_id: {type: string, required: true}
            amount: {type: "decimal(12,2)", required: true}
            tags: array<string>
contract:
  payments:
    - {name: positive, rule: "amount > 0"}
transform:
  - {view: large, sql: "select * from payments where amount > 1000"}
sinks:
  lake: {from: large, delta: {path: lake/payments}}
"""

_OPENING = """\
# Reference of the spec

This page is printed by `penstock schema --reference`; do not edit it.

One YAML file is one pipeline. `penstock check FILE` reports every mistake in it with its line. The same parts are Python
classes: `Pipeline(...)` in code and a file that says the same are equal. YAML is read as version 1.2: `on`, `off`, `yes`
and `no` are text, and tags, merge keys, duplicate keys and a second document are mistakes. For completion in an editor save
the output of `penstock schema` as `penstock.registry.json` and begin a spec with
`# yaml-language-server: $schema=penstock.registry.json`.

```yaml
{example}```

## Values

| kind | how it is written |
|---|---|
| text | A string. `${{env:NAME}}` stands for the value of a variable, `${{file:path}}` for what is in a file (relative to the spec, without the last line break). Both are resolved when the pipeline starts. A secret is written in no other way. |
| setting | Text, a number, `true` or `false`, passed on as it is. |
| duration | A number and a unit: `500ms`, `10s`, `5m`, `2h`, `1d`. |
| name | Lower case letters, digits, `-` and `_`, with a letter first; at most 63. |
| view name | Letters, digits and `_`, with a letter first; at most 128. Case does not tell two views apart. |
| topic name | Letters, digits, `.`, `_` and `-`; at most 249. |
| path | Text that names a file or a directory of this machine: `lake/x`, `/data/x`, `file:///data/x` (where `%20` is a space) or `~/x`. A relative one starts at the directory of the spec; in Python at the working directory. Object stores and other remote file systems (`s3://...`, `hdfs://...`) are not supported yet, and a mistake. A directory that is called `s3:` is `./s3:`. |
"""  # noqa: E501  rows of a table cannot be broken

_NAMES_OF_SPARK = """\
## Names of Spark

Options of Spark's Kafka source and sink, and methods of its stream writer, have keys of their own here. `check` says
which, wherever such a name stands.

| in Spark | here |
|---|---|"""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a spec, as an editor's YAML language server takes it."""
    return _json_schema(Pipeline, "Penstock pipeline")


def schema_of_tests() -> dict[str, Any]:
    """The same of a file of tests."""
    return _json_schema(Cases, "Tests of a Penstock pipeline")


def _json_schema(root: shape.Part, title: str) -> dict[str, Any]:
    described = root.model_json_schema(by_alias=True, mode="validation")
    opening = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return opening | {key: value for key, value in described.items() if key != "title"}


def markdown() -> str:
    sections = [_OPENING.format(example=EXAMPLE), *(_section(part) for part in parts()), _names_of_spark()]
    return "\n".join(sections)


def _names_of_spark() -> str:
    rows = [f"| `{name}` | {here} |" for name, here in spark_options.rows()]
    return "\n".join([_NAMES_OF_SPARK, *rows, ""])


def parts() -> list[shape.Part]:
    """Every part of a spec, each after the one that first uses it."""
    found: list[shape.Part] = []

    def visit(part: shape.Part) -> None:
        if part in found:
            return
        found.append(part)
        for field in part.model_fields.values():
            for used in _parts_in(field.annotation):
                visit(used)

    visit(Pipeline)
    return found


def _parts_in(annotation: Any) -> Iterator[shape.Part]:
    for each in shape.branches(annotation):
        if shape.is_part(each):
            yield each
        elif get_origin(each) in (dict, list):
            yield from _parts_in(get_args(each)[-1])


def _section(part: shape.Part) -> str:
    rows = [
        f"| `{field.alias or name}` | {_type(field)} | {_default(field)} | {_description(field)} |"
        for name, field in part.model_fields.items()
    ]
    doc = inspect.cleandoc(part.__doc__ or "")
    table = "\n".join(["| key | type | default | |", "|---|---|---|---|", *rows])
    return f"## {part.__name__}\n\n{doc}\n\n{table}\n"


def _type(field: FieldInfo) -> str:
    metadata = [each for each in field.metadata if not isinstance(each, str)]
    annotation = Annotated[(field.annotation, *metadata)] if metadata else field.annotation
    return _spelled(annotation).replace("|", "\\|")


def _spelled(annotation: Any) -> str:
    named = next((text for known, text in _NAMED.items() if annotation == known), None)
    inner = [each for each in get_args(annotation) if each is not type(None)]
    origin = get_origin(annotation)
    if named:
        said = named
    elif origin is Annotated:
        said = "path" if LOCAL in inner else _spelled(inner[0])
    elif origin is Literal:
        said = " or ".join(f"`{word}`" for word in inner)
    elif origin is dict:
        said = f"mapping of {_spelled(inner[0])} to {_spelled(inner[1])}"
    elif origin is list:
        said = f"list of {_spelled(inner[0])}"
    elif inner:
        said = " or ".join(_spelled(each) for each in inner)
    else:
        short = "type or " if annotation is Field else ""
        said = f"{short}[{annotation.__name__}](#{annotation.__name__.lower()})"
    return said


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ([], {}):
        return ""
    if isinstance(value, timedelta):
        return f"`{duration.text(value)}`"
    if isinstance(value, BaseModel):
        dumped = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        return f"`{json.dumps(dumped)}`" if not isinstance(value, Schema) else ""
    return f"`{json.dumps(value) if not isinstance(value, str) else value}`"


def _description(field: FieldInfo) -> str:
    text = field.description or ""
    limits = [_limit(each) for each in field.metadata]
    said = [text, *(limit for limit in limits if limit)]
    for example in field.examples or ():
        said.append(f"Example: `{example}`.")
    return " ".join(said).replace("\n", " ").replace("|", "\\|")


def _limit(constraint: Any) -> str | None:
    for name, words in (("ge", "At least"), ("le", "At most")):
        if (bound := getattr(constraint, name, None)) is not None:
            return f"{words} {bound:,}."
    return "Not empty." if getattr(constraint, "min_length", None) == 1 else None
