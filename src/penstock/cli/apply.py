"""`penstock apply`: the topics a pipeline needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.spec.model import Pipeline
from penstock.spec.topics import topics_of


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="The spec.")],
    as_json: AsJson = False,
) -> None:
    """Create the topics of a spec that are missing. Topics that exist are never changed or deleted."""
    from penstock.kafka import admin, connection

    pipeline = Pipeline.load(file)
    config = connection.client_config(pipeline)
    wanted = topics_of(pipeline)
    created = admin.create_missing(config, wanted)
    there = admin.topics(config)
    report = [
        {
            "topic": name,
            "created": name in created,
            "partitions": there[name].partitions,
            "replication": there[name].replication,
            "wanted_partitions": settings.partitions if name in pipeline.kafka.topics else None,
        }
        for name, settings in wanted.items()
        if name in there
    ]

    def human() -> None:
        for topic in report:
            done = "created" if topic["created"] else "there"
            line = f"{done:8} {topic['topic']}  {topic['partitions']} partition(s)"
            wants = topic["wanted_partitions"]
            if wants is not None and wants != topic["partitions"]:
                line += f"  (the spec says {wants}; left as it is)"
            output.say(line)

    output.emit({"bootstrap": config["bootstrap.servers"], "topics": report}, as_json, human)
