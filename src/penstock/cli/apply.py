"""`penstock apply`: the topics a pipeline needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.spec.model import Pipeline, TopicSettings
from penstock.spec.references import resolve

# A dead letter is its record plus headers: the largest record a topic takes must still fit into the dead-letter topic.
_ROOM = {"max.message.bytes": str(16 * 1024 * 1024)}


def topics_of(pipeline: Pipeline) -> dict[str, TopicSettings]:
    """The topics a pipeline reads and those of its dead letters, with the settings they are created with."""
    given, source = pipeline.kafka.topics, pipeline.source
    named = source.pattern.only if source.pattern else list(source.topics)
    wanted = {name: given.get(name, TopicSettings()) for name in named}
    if source.pattern:
        wanted |= {name: settings for name, settings in given.items() if source.pattern.matches(name)}
    if pipeline.dead_letters.kafka is not None:
        for topic in named or [""]:
            name = pipeline.dead_letters.kafka.topic.replace("{topic}", topic)
            settings = given.get(name, TopicSettings())
            wanted[name] = settings.model_copy(update={"config": {**_ROOM, **settings.config}})
    return {name: _resolved(settings, pipeline.base) for name, settings in wanted.items()}


def _resolved(settings: TopicSettings, base: Path) -> TopicSettings:
    return settings.model_copy(update={"config": {k: resolve(str(v), base) for k, v in settings.config.items()}})


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
