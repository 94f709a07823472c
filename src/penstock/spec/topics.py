"""The topics a spec speaks of, with the settings they are created with: what `apply` makes and `plan` compares."""

from __future__ import annotations

from pathlib import Path

from penstock.spec.model import Pipeline, TopicSettings
from penstock.spec.references import resolve

# A dead letter is its record plus headers: the largest record a topic takes must still fit into the dead-letter topic.
_ROOM = {"max.message.bytes": str(16 * 1024 * 1024)}


def topics_to_make(pipeline: Pipeline) -> dict[str, TopicSettings]:
    """Those of the pipeline, and whatever else the spec gives settings for, such as the topics that a column names."""
    others = {name: _resolved(settings, pipeline.base) for name, settings in pipeline.kafka.topics.items()}
    return others | topics_of(pipeline)


def topics_of(pipeline: Pipeline) -> dict[str, TopicSettings]:
    """The topics a pipeline reads, those it writes to and those of its dead letters."""
    given, source = pipeline.kafka.topics, pipeline.source
    named = source.pattern.only if source.pattern else list(source.topics)
    written = [sink.kafka.topic for sink in pipeline.sinks.values() if sink.kafka and sink.kafka.topic]
    wanted = {name: given.get(name, TopicSettings()) for name in [*named, *written]}
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
