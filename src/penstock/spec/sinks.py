"""Where rows go: one class per kind of sink, and how records are written for Kafka."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.words import Part, Text, TopicName, ViewName

Guarantee = Literal["exactly-once", "exactly-once-by-partition", "exactly-once-by-batch", "at-least-once"]


class DeltaTable(Part):
    """A Delta table that batches are appended to, each exactly once."""

    path: Text = Field(description="Directory of the table, relative to the spec.")
    partition_by: list[str] = Field(default_factory=list, description="Columns to partition a new table by.")
    evolve: Literal["add-columns"] | None = Field(
        None,
        description="`add-columns`: columns that the view has gained are added to the table. Without it the table "
        "keeps its columns, and a view with others is refused.",
    )


class _Encode(Part):
    """What the formats with fields have in common."""

    columns: list[str] | None = Field(
        None, description="Columns of the record. Default: all of the view but Penstock's own."
    )


class _ToRegistry(_Encode):
    subject: Text | None = Field(
        None, description="Subject of the schema. Default: `<topic>-value`, for a key `<topic>-key`."
    )
    register_: bool = Field(
        False,
        alias="register",
        description="Whether the schema may be registered when the subject does not have it. Otherwise the newest one "
        "there is used.",
    )


class EncodeJson(_ToRegistry):
    """JSON objects; with `wire: registry` behind the id of their JSON Schema."""

    format: Literal["json"] = Field(description="`json`.")
    wire: Literal["raw", "registry"] = Field("raw", description="`registry`: each record begins with its schema's id.")


class EncodeAvro(_ToRegistry):
    """Avro: in the registry's wire format, or with `wire: raw` as plain datums."""

    format: Literal["avro"] = Field(description="`avro`.")
    schema_: str | None = Field(
        None,
        alias="schema",
        description="Path of the schema (.avsc) relative to the spec. Default: the newest one of the subject, or with "
        "`register` the one the columns make.",
    )
    wire: Literal["registry", "raw"] = Field("registry", description="`raw`: plain datums.")


class EncodeProtobuf(_ToRegistry):
    """Protobuf: in the registry's wire format, or with `wire: raw` as plain messages."""

    format: Literal["protobuf"] = Field(description="`protobuf`.")
    schema_: str | None = Field(
        None,
        alias="schema",
        description="Path of the .proto file relative to the spec. Default: as for avro.",
    )
    message: Text | None = Field(None, description="Full name of the message. Default: the first one of the file.")
    wire: Literal["registry", "raw"] = Field("registry", description="`raw`: plain messages.")


class EncodeString(Part):
    """One column as UTF-8 text."""

    format: Literal["string"] = Field(description="`string`.")
    column: Text = Field(description="The column; `a.b` is a field of a struct.")


class EncodeBytes(Part):
    """One column of bytes as they are."""

    format: Literal["bytes"] = Field(description="`bytes`.")
    column: Text = Field(description="The column; `a.b` is a field of a struct.", examples=["_kafka.key"])


AnyEncode = Annotated[
    EncodeJson | EncodeAvro | EncodeProtobuf | EncodeString | EncodeBytes, Field(discriminator="format")
]


class KafkaTopic(Part):
    """A record per row, in one topic or in the one that a column names. A row whose `_deleted` is true becomes a
    record without a value.
    """

    topic: TopicName | None = Field(None, description="Topic to write to.")
    topic_column: Text | None = Field(None, description="Instead of `topic`: the column that names it, row by row.")
    key: AnyEncode | None = Field(None, description="What the record's key is made of. Default: no key.")
    value: AnyEncode = Field(
        default_factory=lambda: EncodeJson(format="json"), description="What the record's value is made of."
    )
    headers: Text | None = Field(
        None,
        description="Column with the record's headers: `map<string,binary>`, or an array of `key` and `value` as in "
        "`_kafka.headers`.",
    )
    partition: Text | None = Field(None, description="Column with the partition to write to. Default: by the key.")
    origin: bool = Field(
        False,
        description="Whether each record has a header `penstock.origin`, `topic/partition/offset` of the record it was "
        "made of. `verify` needs it to prove a topic record by record.",
    )
    guarantee: Guarantee = Field(
        "exactly-once",
        description="`exactly-once`: by partition where the view allows it (rows of one input partition stay together "
        "and say where they came from), else by batch. `at-least-once`: Spark's own sink; a batch that is run again is "
        "written again.",
    )

    @model_validator(mode="after")
    def _one_topic(self) -> KafkaTopic:
        if (self.topic is None) == (self.topic_column is None):
            raise PydanticCustomError("one_kind", "kafka needs exactly one of: topic, topic_column")
        return self


class Sink(Part):
    """Where the rows of a view go: exactly one of the kinds below."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 2})

    from_: ViewName = Field(alias="from", description="The view that is written.")
    where: Text | None = Field(None, description="A SQL condition: only rows for which it is true are written.")
    delta: DeltaTable | None = Field(None, description="Write to a Delta table.")
    kafka: KafkaTopic | None = Field(None, description="Write to a Kafka topic.")

    @model_validator(mode="after")
    def _one_kind(self) -> Sink:
        kinds = [name for name in KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise PydanticCustomError("one_kind", f"a sink needs exactly one of: {', '.join(KINDS)}")
        return self


KINDS = ("delta", "kafka")
