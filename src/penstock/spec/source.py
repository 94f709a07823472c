"""The way in: topics, where to begin, and how records become rows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.spec.fields import Schema
from penstock.spec.words import Part, TopicName, ViewName


class JsonValue(Part):
    """JSON objects, checked against a declared schema."""

    format: Literal["json"] = Field(description="The only format of this release.")
    schema_: str | Schema = Field(
        alias="schema",
        description="Path of a schema file relative to the spec, or the schema itself: "
        "`{fields: {name: type, ...}}`. A schema file holds the same: `fields:` and below it name to type.",
        examples=["schemas/payment.yaml"],
    )
    tombstones: Literal["dead-letter", "drop"] = Field(
        "dead-letter", description="What a null value means: a dead letter, or a record to drop (and count)."
    )


class Topic(Part):
    """One topic to read, and how its records become rows of a view."""

    value: JsonValue = Field(description="How the value is decoded.")
    view: ViewName | None = Field(
        None, description="Name of the view in SQL. Default: the topic's name with `_` for every `.` and `-`."
    )
    kafka_columns: list[Literal["key", "value", "headers", "timestamp_type"]] = Field(
        default_factory=list,
        description="Kafka's own columns to add to the view's `_kafka` struct, which always holds `topic`, "
        "`partition`, `offset` and `timestamp`.",
    )


class Source(Part):
    """What is read from Kafka, and from where on."""

    topics: dict[TopicName, Topic] = Field(min_length=1, description="Topics to read, by name.")
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where the first run begins. Afterwards the checkpoint owns the offsets."
    )
    on_data_loss: Literal["fail"] = Field(
        "fail",
        description="What happens when offsets expired before they were read: `fail` stops the pipeline.",
    )

    def views(self) -> dict[str, str]:
        """View name -> topic name."""
        return {self.view_of(name): name for name in self.topics}

    def view_of(self, topic: str) -> str:
        return self.topics[topic].view or topic.replace(".", "_").replace("-", "_")
