"""The spec: what a pipeline is, as pydantic models.

These classes are at once the validation of a YAML file, the Python API, the JSON Schema (`penstock schema`)
and the reference page (`docs/reference.md`): a field's type, default and description are written here and
nowhere else. Nothing in this package imports an engine or a Kafka client.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from penstock.record import ERROR, KAFKA, RULE
from penstock.spec.duration import Duration
from penstock.spec.fields import Schema

NAME = r"^[a-z][a-z0-9_-]{0,62}$"
VIEW_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,127}$"
TOPIC_NAME = r"^[a-zA-Z0-9._-]{1,249}$"
DEAD_LETTER_TOPIC = r"^([a-zA-Z0-9._-]|\{topic\})+$"

Name = Annotated[str, StringConstraints(pattern=NAME)]
"""A pipeline or a sink: lower case letters, digits, `-` and `_`."""

ViewName = Annotated[str, StringConstraints(pattern=VIEW_NAME)]
"""A view in SQL: letters, digits and `_`."""

TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME)]


def _as_text(value: str | int | float | bool) -> str:
    """Kafka and Spark read text, and `True` is not what they call true."""
    return str(value).lower() if isinstance(value, bool) else str(value)


Setting = Annotated[str | int | float | bool, AfterValidator(_as_text)]
"""A value passed on to Kafka or Spark as it is; text may hold references."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string in which `${env:NAME}` and `${file:path}` are replaced when the pipeline starts."""


CrossMistake = tuple[tuple[str | int, ...], str, list[str]]


class Part(BaseModel):
    """Every part of a spec: unknown keys are mistakes, and a part never changes once made."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, validate_default=True)


class TopicSettings(Part):
    """How a topic is created when it is missing (`penstock apply`)."""

    partitions: int = Field(1, ge=1, le=10_000, description="Partitions of a new topic.")
    replication: int = Field(1, ge=1, le=32, description="Copies of each partition.")
    config: dict[str, Setting] = Field(
        default_factory=dict, description="Topic configuration in Kafka's own names, such as `retention.ms`."
    )


class Kafka(Part):
    """The Kafka cluster: one connection block for Spark, the clients and the tools."""

    bootstrap: Text = Field(
        description="`host:port[,host:port...]` of the brokers.", examples=["${env:KAFKA_BOOTSTRAP}"]
    )
    topics: dict[TopicName, TopicSettings] = Field(
        default_factory=dict,
        description="Settings of the topics this pipeline may create (`penstock apply`).",
    )


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


class Rule(Part):
    """A condition every record of a view must meet."""

    name: Name = Field(description="Name in dead letters, ledger and metrics.")
    rule: Text = Field(description="A SQL condition. A record for which it is not true breaks the rule.")
    otherwise: Literal["dead-letter", "drop", "stop"] = Field(
        "dead-letter",
        description="What happens to a record that breaks the rule: it becomes a dead letter, it is dropped "
        "and counted, or the pipeline stops before the batch is written.",
    )


class Step(Part):
    """A named view made from other views by SQL."""

    view: ViewName = Field(description="Name of the new view.")
    sql: Text = Field(description="A Spark SQL query over the views defined before it.")


class DeltaTable(Part):
    """A Delta table that batches are appended to, each exactly once."""

    path: Text = Field(description="Directory of the table, relative to the spec.")
    partition_by: list[str] = Field(default_factory=list, description="Columns to partition a new table by.")


class Sink(Part):
    """Where the rows of a view go: exactly one of the kinds below."""

    from_: ViewName = Field(alias="from", description="The view that is written.")
    delta: DeltaTable = Field(description="Write to a Delta table.")


class DeadLetterTopic(Part):
    """Dead letters as Kafka records: key, value and headers as they came, origin and reason in further
    headers.
    """

    topic: Annotated[str, StringConstraints(pattern=DEAD_LETTER_TOPIC)] = Field(
        "{topic}.DLT", description="Topic to write to; `{topic}` stands for the topic the record came from."
    )


class DeadLetterTable(Part):
    """Dead letters as rows of a Delta table."""

    path: Text = Field(description="Directory of the table, relative to the spec.")


class DeadLetters(Part):
    """Where records go that could not be decoded or broke the contract, written exactly once: `kafka`
    or `delta`.
    """

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    kafka: DeadLetterTopic | None = Field(None, description="Write dead letters to a Kafka topic.")
    delta: DeadLetterTable | None = Field(None, description="Write dead letters to a Delta table.")

    @model_validator(mode="after")
    def _one_kind(self) -> DeadLetters:
        if (self.kafka is None) == (self.delta is None):
            raise PydanticCustomError("one_kind", "dead_letters needs exactly one of: kafka, delta")
        return self


class Rate(Part):
    """How much one batch may read."""

    max_offsets: int = Field(500_000, ge=1, description="Most offsets in one batch, over all partitions.")
    target_batch: Duration | None = Field(
        None,
        description="How long a batch should take. Reserved for adaptive rate control: this release keeps "
        "`max_offsets` fixed.",
    )


class Every(Part):
    """A batch per interval."""

    every: Duration = Field(description="Time between the starts of two batches.", examples=["10s"])


class Spark(Part):
    """The Spark session of this pipeline."""

    master: Text = Field("local[*]", description="Spark master. `local[*]` is this machine with all its cores.")
    conf: dict[str, Setting] = Field(default_factory=dict, description="Spark configuration, passed on as it is.")


class Pipeline(Part):
    """A pipeline: Kafka topics in, views and rules between, sinks out."""

    penstock: Literal[1] = Field(1, description="Version of this vocabulary.")
    name: Name = Field(
        examples=["payments"],
        description="Name of the pipeline; part of every id it leaves in Kafka and in tables.",
    )
    kafka: Kafka = Field(description="The Kafka cluster.")
    source: Source = Field(description="What is read.")
    contract: dict[ViewName, list[Rule]] = Field(
        default_factory=dict,
        description="Rules per source view, tried in order; the first one broken decides.",
    )
    transform: list[Step] = Field(
        default_factory=list, description="SQL steps, in order; each can use the views before it."
    )
    sinks: dict[Name, Sink] = Field(min_length=1, description="Where rows go.")
    dead_letters: DeadLetters = Field(
        default_factory=lambda: DeadLetters(kafka=DeadLetterTopic()),
        description="Where records go that fail.",
    )
    rate: Rate = Field(default_factory=Rate, description="How much one batch may read.")
    trigger: Literal["continuous", "available-now"] | Every = Field(
        "continuous",
        description="`continuous`: the next batch starts when the last one ends. `available-now`: read what "
        "is there, then end. `{every: 10s}`: a batch per interval.",
    )
    checkpoint: Text | None = Field(
        None,
        description="Directory for Spark's checkpoint and the ledger, relative to the spec. "
        "Default: `.penstock/<name>`.",
    )
    spark: Spark = Field(default_factory=Spark, description="The Spark session.")

    _base: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def base(self) -> Path:
        """Relative paths of the spec start here: the directory of the file, or for Python the
        working directory.
        """
        return self._base

    def at(self, base: Path) -> Pipeline:
        """The same pipeline with its relative paths starting at `base`."""
        self._base = base
        return self

    def __eq__(self, other: object) -> bool:
        """Two pipelines are equal when they say the same, wherever they were written."""
        return isinstance(other, Pipeline) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Read a YAML spec. Raises SpecInvalid with every mistake in it."""
        from penstock.spec.load import load

        return load(Path(path))

    @model_validator(mode="after")
    def _names_agree(self) -> Pipeline:
        mistakes = list(cross_check(self))
        if mistakes:
            raise PydanticCustomError(
                "names", "{text}", {"mistakes": mistakes, "text": "; ".join(text for _, text, _ in mistakes)}
            )
        return self


def cross_check(spec: Pipeline) -> list[CrossMistake]:
    """Mistakes that only show when two parts are seen together: (where, what, names that are allowed
    there).
    """
    found = _view_mistakes(spec)
    source_views = list(spec.source.views())
    for view in spec.contract:
        if view not in source_views:
            found.append((("contract", view), f"no source view '{view}'", source_views))
    for view, rules in spec.contract.items():
        names = [rule.name for rule in rules]
        for i, name in enumerate(names):
            if name in names[:i]:
                found.append((("contract", view, i, "name"), f"rule '{name}' is defined twice", []))
    views = [*source_views, *(step.view for step in spec.transform)]
    for name, sink in spec.sinks.items():
        if sink.from_ not in views:
            found.append((("sinks", name, "from"), f"no view '{sink.from_}'", views))
    for topic, read in spec.source.topics.items():
        schema = read.value.schema_
        if isinstance(schema, Schema):
            for field in reserved_in(schema):
                where = ("source", "topics", topic, "value", "schema", "fields", field)
                found.append((where, f"'{field}' is Penstock's own column", []))
    return found + _target_mistakes(spec)


def reserved_in(schema: Schema) -> list[str]:
    """Fields of a schema that would hide a column of Penstock's own.

    Also called for schemas in files of their own.
    """
    return [name for name in schema.fields if name.lower() in (KAFKA, ERROR, RULE)]


def _view_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Views are told apart as Spark SQL does: without regard to case."""
    found: list[CrossMistake] = []
    views: dict[str, str] = {}
    for topic in spec.source.topics:
        view = spec.source.view_of(topic)
        where = ("source", "topics", topic)
        if re.fullmatch(TOPIC_NAME, topic) and not re.fullmatch(VIEW_NAME, view):
            found.append((where, f"the topic's name makes no view name ('{view}'): give it one with `view`", []))
        if view.lower() in views:
            found.append((where, f"topic '{topic}' and topic '{views[view.lower()]}' have the same view '{view}'", []))
        views.setdefault(view.lower(), topic)
    for i, step in enumerate(spec.transform):
        if step.view.lower() in views:
            found.append((("transform", i, "view"), f"view '{step.view}' is defined twice", []))
        views.setdefault(step.view.lower(), step.view)
    return found


def _target_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Two writers of one table break each other's exactly-once; dead letters into a source topic never
    end.
    """
    found: list[CrossMistake] = []
    tables: dict[str, str] = {}
    for name, sink in spec.sinks.items():
        other = tables.setdefault(posixpath.normpath(sink.delta.path), f"sink '{name}'")
        if other != f"sink '{name}'":
            found.append((("sinks", name, "delta", "path"), f"{other} writes to the same table", []))
    dead = spec.dead_letters
    if dead.delta and (sharing := tables.get(posixpath.normpath(dead.delta.path))):
        found.append((("dead_letters", "delta", "path"), f"{sharing} writes to the same table", []))
    if dead.kafka:
        for topic in spec.source.topics:
            target = dead.kafka.topic.replace("{topic}", topic)
            if target in spec.source.topics:
                found.append(
                    (
                        ("dead_letters", "kafka", "topic"),
                        f"dead letters would be read again: '{target}' is a source topic",
                        [],
                    )
                )
    return found
