"""`penstock schema`: the spec described for editors and for readers, both from the model."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson


@app.command()
def schema(
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference page in Markdown instead.")
    ] = False,
    tests: Annotated[bool, typer.Option("--tests", help="Of a file of tests (`penstock test`) instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of a spec, or of a file of tests, for completion and checks in an editor.

    Save it and name it in the first line of a spec: # yaml-language-server: $schema=penstock.registry.json
    """
    from penstock.spec import reference as pages

    if reference:
        page = pages.markdown()
        output.emit({"reference": page}, as_json, lambda: output.say(page.rstrip("\n")))
    else:
        described = pages.schema_of_tests() if tests else pages.json_schema()
        output.emit(described, as_json, lambda: output.say(json.dumps(described, indent=2)))
