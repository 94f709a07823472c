"""The way in: topics, where to begin, and how records become rows."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.formats import AnyFormat
from penstock.spec.java_pattern import differs
from penstock.spec.start import Partition, Start, start_text
from penstock.spec.words import Part, Text, TopicName, ViewName

KafkaColumn = Literal["key", "value", "headers", "header_map", "timestamp_type"]


class Read(Part):
    """How records become rows of a view."""

    value: AnyFormat = Field(description="How the value is decoded.")
    key: AnyFormat | None = Field(
        None, description="How the key is decoded, into the column `_key`. Default: it is not."
    )
    kafka_columns: list[KafkaColumn] = Field(
        default_factory=list,
        description="Kafka's own columns to add to the view's `_kafka` struct, which always holds `topic`, "
        "`partition`, `offset` and `timestamp`. `headers` is a list, `header_map` the last value of each name.",
    )


class Topic(Read):
    """One topic to read."""

    view: ViewName | None = Field(
        None, description="Name of the view in SQL. Default: the topic's name with `_` for every `.` and `-`."
    )
    partitions: list[Partition] | None = Field(
        None,
        min_length=1,
        description="Read just these partitions. Then every topic says which, and partitions added later do not join.",
    )


class Pattern(Read):
    """All topics whose name matches, read into one view."""

    match: Text = Field(description="A regular expression for the whole name.", examples=["payments-.*"])
    view: ViewName = Field(description="Name of the view in SQL.")
    only: list[TopicName] = Field(
        default_factory=list, description="Of the matching topics read only these, also when they are created later."
    )
    new_topics: Literal["join", "hold"] = Field(
        "join",
        description="A matching topic that is created later: it joins the running pipeline, or it is held back and "
        "reported until `penstock run --accept new-topics`.",
    )

    @field_validator("match")
    @classmethod
    def _compiles(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise PydanticCustomError("pattern", "not a regular expression: {error}", {"error": str(error)}) from None
        if piece := differs(text):
            raise PydanticCustomError(
                "pattern",
                "'{piece}' does not mean the same to Spark, which reads regular expressions as Java does: write it "
                "another way",
                {"piece": piece},
            )
        return text

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.match, topic) is not None and (not self.only or topic in self.only)


class Source(Part):
    """What is read from Kafka, and from where on: `topics` by name, or one `pattern`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["topics"]}, {"required": ["pattern"]}]})

    topics: dict[TopicName, Topic] = Field(default_factory=dict, description="Topics to read, by name.")
    pattern: Pattern | None = Field(None, description="Topics to read, by a pattern of their names.")
    start: Start = Field(
        "earliest", description="Where the first run begins. Afterwards the checkpoint owns the offsets."
    )
    on_data_loss: Literal["fail", "continue"] = Field(
        "fail",
        description="What happens when offsets expired unread: `fail` stops the pipeline; `continue` "
        "goes on, writes the missing ranges into the ledger and says so.",
    )
    min_partitions: int | None = Field(
        None, ge=1, description="Split large partitions so that a batch has at least this many tasks."
    )
    max_records_per_partition: int | None = Field(
        None, ge=1, description="Split partitions so that no task reads more records than this."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Source:
        if bool(self.topics) == (self.pattern is not None):
            raise PydanticCustomError("one_kind", "source needs exactly one of: topics, pattern")
        return self

    def reads(self) -> dict[str, Read]:
        """View name -> how its records are read."""
        if self.pattern:
            return {self.pattern.view: self.pattern}
        return {self.view_of(name): topic for name, topic in self.topics.items()}

    def formats(self) -> dict[tuple[str, ...], AnyFormat]:
        """Where the source says how values and keys are read -> how."""
        reads: dict[tuple[str, ...], Read] = {("source", "topics", name): topic for name, topic in self.topics.items()}
        if self.pattern:
            reads["source", "pattern"] = self.pattern
        found = {(*at, part): getattr(read, part) for at, read in reads.items() for part in ("value", "key")}
        return {at: how for at, how in found.items() if how is not None}

    def reads_topic(self, topic: str) -> bool:
        return topic in self.topics or (self.pattern is not None and self.pattern.matches(topic))

    def view_of(self, topic: str) -> str:
        if self.pattern:
            return self.pattern.view
        return self.topics[topic].view or topic.replace(".", "_").replace("-", "_")

    def start_text(self) -> str:
        """Where it begins, in one line."""
        return start_text(self.start)
