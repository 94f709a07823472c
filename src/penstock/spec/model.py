"""The spec: what a pipeline is, as pydantic models.

These classes are at once the validation of a YAML file, the Python API, the JSON Schema (`penstock schema`)
and the reference page (`docs/reference.md`): a field's type, default and description are written here and
nowhere else. Nothing in this package imports an engine or a Kafka client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.cross import cross_check
from penstock.spec.duration import Duration
from penstock.spec.enrich import ReferenceTable
from penstock.spec.local_path import LocalPath
from penstock.spec.real_time import RealTime
from penstock.spec.registry import Registry
from penstock.spec.rules import Rule
from penstock.spec.sinks import Sink
from penstock.spec.source import Source
from penstock.spec.steps import Step
from penstock.spec.words import DEAD_LETTER_TOPIC, Name, Part, Setting, Text, TopicName, ViewName, require_one_of


class TopicSettings(Part):
    """How a topic is to be: `penstock apply` creates it when it is missing, and changes what differs from this."""

    partitions: int = Field(1, ge=1, le=10_000, description="Partitions. Kafka can add some, and never take one away.")
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
        description="Settings of the topics this pipeline reads and writes (`penstock apply`).",
    )


class DeadLetterTopic(Part):
    """Dead letters as Kafka records: key, value and headers as they came, origin and reason in further
    headers.
    """

    topic: Annotated[str, StringConstraints(pattern=DEAD_LETTER_TOPIC)] = Field(
        "{topic}.DLT", description="Topic to write to; `{topic}` stands for the topic the record came from."
    )


class DeadLetterTable(Part):
    """Dead letters as rows of a Delta table."""

    path: LocalPath = Field(description="Directory of the table, relative to the spec.")


FIRST_RECORDS, NEARLY_ALL = 1_000, 0.9
"""Where a spec has no budget: a pipeline stops if so many of its first records die (`batch.first_records`)."""


class Budget(Part):
    """How many records may die before the pipeline is broken and not the records. The share is taken over a batch, and
    over the batches that ended before it, up to 20 together, where that makes it larger.
    """

    share: float = Field(
        ge=0, lt=1, description="Most dead records, as a share of all. Above it the pipeline stops.", examples=[0.05]
    )
    at_least: int = Field(
        100, ge=1, le=10**12, description="Fewer dead records than this never stop it, whatever their share."
    )


class DeadLetters(Part):
    """Where records go that could not be decoded or broke the contract, written exactly once: `kafka`
    or `delta`.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["kafka"]}, {"required": ["delta"]}]})

    kafka: DeadLetterTopic | None = Field(None, description="Write dead letters to a Kafka topic.")
    delta: DeadLetterTable | None = Field(None, description="Write dead letters to a Delta table.")
    budget: Budget | Literal["none"] | None = Field(
        None,
        description="Stop, before anything of the batch is written, when too many of its records would die. Not given: "
        "only where 90 % of the first 1,000 records of a pipeline would. `none`: never.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> DeadLetters:
        require_one_of(self, ("kafka", "delta"), "dead_letters needs exactly one of")
        return self

    @property
    def allowed(self) -> Budget | None:
        """The budget that the spec gives."""
        return None if self.budget == "none" else self.budget


class Rate(Part):
    """How much one batch may read."""

    max_offsets: int = Field(
        500_000,
        ge=1,
        le=10**12,
        description="Most offsets in one batch, over all partitions. With `target_batch`: of the first batch.",
    )
    min_offsets: int | None = Field(
        None,
        ge=1,
        le=10**12,
        description="A batch waits until that many offsets are there, or `max_delay` is over. Not where a run ends "
        "once it has caught up.",
    )
    max_delay: Duration | None = Field(
        None, description="Longest time a batch waits for `min_offsets`. Default: 15 minutes, as in Spark."
    )
    target_batch: Duration | None = Field(
        None, description="How long a batch should take: the cap then follows it while the pipeline runs."
    )
    floor: int | None = Field(None, ge=1, le=10**12, description="The cap that follows `target_batch` stays above.")
    ceiling: int | None = Field(None, ge=1, le=10**12, description="The cap that follows `target_batch` stays below.")
    by_restart: bool = Field(
        False,
        description="Change the cap by a stop and a start at a batch boundary, as is done where the running query "
        "cannot be changed.",
    )


class Metrics(Part):
    """Prometheus metrics of a running pipeline, under `/metrics`."""

    port: int = Field(ge=1, le=65_535, description="Port to listen on.", examples=[9464])
    host: Text = Field("127.0.0.1", description="Address to listen on.")


class Observe(Part):
    """What looks on while a pipeline runs. None of it can change or stop the run."""

    mirror: bool = Field(
        True,
        description="Copy the committed offsets into the consumer group `penstock.<name>`, so that Kafka's own tools "
        "see the lag.",
    )
    events: bool = Field(True, description="Keep an event log beside the checkpoint (`penstock events`).")
    metrics: Metrics | None = Field(None, description="Serve metrics for Prometheus.")


class Every(Part):
    """A batch per interval."""

    every: Duration = Field(description="Time between the starts of two batches.", examples=["10s"])


class Spark(Part):
    """The Spark session of this pipeline."""

    master: Text = Field("local[*]", description="Spark master. `local[*]` is this machine with all its cores.")
    conf: dict[str, Setting] = Field(
        default_factory=dict,
        description="Spark configuration, passed on as it is. Values with a reference never appear on a command "
        "line; Java options of executors take none.",
    )


class Pipeline(Part):
    """A pipeline: Kafka topics in, views and rules between, sinks out."""

    penstock: Literal[1] = Field(1, description="Version of this vocabulary.")
    name: Name = Field(
        examples=["payments"],
        description="Name of the pipeline; part of every id it leaves in Kafka and in tables.",
    )
    kafka: Kafka = Field(description="The Kafka cluster.")
    registry: Registry | None = Field(
        None, description="The schema registry, where topics take their schemas from one."
    )
    source: Source = Field(description="What is read.")
    contract: dict[ViewName, list[Rule]] = Field(
        default_factory=dict,
        description="Rules per source view, tried in order; the first one broken decides.",
    )
    references: dict[ViewName, ReferenceTable] = Field(
        default_factory=dict,
        description="Tables to look rows up in, by name. Steps in SQL and Python can use them as views.",
    )
    transform: list[Step] = Field(
        default_factory=list, description="Steps, in order; each can use the views before it."
    )
    sinks: dict[Name, Sink] = Field(min_length=1, description="Where rows go.")
    dead_letters: DeadLetters = Field(
        default_factory=lambda: DeadLetters(kafka=DeadLetterTopic()),
        description="Where records go that fail.",
    )
    rate: Rate = Field(default_factory=Rate, description="How much one batch may read.")
    trigger: Literal["continuous", "available-now", "real-time"] | Every | RealTime = Field(
        "continuous",
        description="`continuous`: the next batch starts when the last one ends. `available-now`: read what "
        "is there, then end. `{every: 10s}`: a batch per interval. `real-time`, or `{real_time: 1m}`: records are sent "
        "on one by one, from Kafka to Kafka, at least once.",
    )
    checkpoint: LocalPath | None = Field(
        None,
        description="Directory for Spark's checkpoint and the ledger, relative to the spec. "
        "Default: `.penstock/<name>`.",
    )
    observe: Observe = Field(default_factory=Observe, description="What looks on while it runs.")
    spark: Spark = Field(default_factory=Spark, description="The Spark session.")

    _base: Path = PrivateAttr(default_factory=Path.cwd)
    _file: Path | None = PrivateAttr(default=None)

    @property
    def base(self) -> Path:
        """Relative paths of the spec start here: the directory of the file, or for Python the
        working directory.
        """
        return self._base

    @property
    def file(self) -> Path | None:
        """The file it was read from; None for a pipeline from Python."""
        return self._file

    def formats(self) -> dict[tuple[str, ...], Any]:
        """Where the spec says how records are read and written -> how."""
        found: dict[tuple[str, ...], Any] = {**self.source.formats()}
        for name, sink in self.sinks.items():
            found |= sink.formats(name)
        for name, table in self.references.items():
            if table.kafka:
                found |= {("references", name, "kafka", "value"): table.kafka.value}
                found |= {("references", name, "kafka", "key"): table.kafka.key} if table.kafka.key else {}
        return found

    def at(self, base: Path, file: Path | None = None) -> Pipeline:
        """The same pipeline with its relative paths starting at `base`; `file`: what it was read from."""
        self._base, self._file = base, file
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
