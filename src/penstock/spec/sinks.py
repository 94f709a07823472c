"""Where rows go: one class per kind of sink, and how records are written for Kafka."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.duration import Duration
from penstock.spec.local_path import LocalPath, plain
from penstock.spec.words import Part, Text, TopicName, ViewName, require_one_of

Guarantee = Literal["exactly-once", "exactly-once-by-partition", "exactly-once-by-batch", "at-least-once"]


class Upsert(Part):
    """A row replaces the one with its key; a row whose `_deleted` is true deletes it. Rows without a key become dead
    letters.
    """

    key: list[Text] = Field(min_length=1, description="Columns that make the key.")
    order_by: Text | None = Field(
        None,
        description="Column by which the newer of two rows is told. Default: their place in Kafka. A row older than "
        "the stored one is left out; one without a value counts by its place.",
    )


class Optimize(Part):
    """Small files are joined, beside the batches."""

    every: Duration = Field(description="How often.", examples=["1h"])
    target_mb: int | None = Field(
        None, ge=1, description="Size of a joined file. Default: what the table says, or 100 MB."
    )


class Vacuum(Part):
    """Files that no commit refers to any more are removed."""

    every: Duration = Field(description="How often.", examples=["24h"])
    keep: Duration = Field(
        timedelta(days=7),
        description="Files younger than this stay: a reader may read them, a batch be writing them. At least 1h.",
    )

    @field_validator("keep")
    @classmethod
    def _long_enough(cls, keep: timedelta) -> timedelta:
        if keep < timedelta(hours=1):
            raise PydanticCustomError("duration", "a batch may still be writing files younger than 1h")
        return keep


class DeltaTable(Part):
    """A Delta table: batches are appended, or rows replaced by key, each batch exactly once."""

    path: LocalPath = Field(description="Directory of the table, relative to the spec.")
    partition_by: list[str] = Field(default_factory=list, description="Columns to partition a new table by.")
    upsert: Upsert | None = Field(None, description="Replace rows by key. Default: append.")
    evolve: Literal["add-columns"] | None = Field(
        None,
        description="`add-columns`: columns that the view has gained are added to the table, and types that became "
        "wider in the view (int to bigint) do in the table. Without it the table keeps its columns, and a view with "
        "others is refused.",
    )
    optimize: Optimize | None = Field(None, description="Join small files on a schedule.")
    vacuum: Vacuum | None = Field(None, description="Remove unused files on a schedule.")
    at_most: Duration = Field(
        timedelta(seconds=10), description="How long a batch may wait for `optimize` or `vacuum`; then they lose."
    )


class ParquetFiles(Part):
    """Parquet files, a directory per batch that appears whole: `<path>/batch=.../`. Readers see a column `batch`."""

    path: LocalPath = Field(description="Directory, relative to the spec. Not a mount point.")
    partition_by: list[str] = Field(default_factory=list, description="Columns to partition each batch by.")
    evolve: Literal["add-columns"] | None = Field(None, description="`add-columns`: the view may gain columns.")


TRANSFORM = re.compile(r"(years|months|days|hours)\((.+)\)|bucket\((\d+), ?(.+)\)")


def partition_column(text: str) -> str:
    """The column in an item of Iceberg's `partition_by`."""
    found = TRANSFORM.fullmatch(text)
    return (found[2] or found[4]) if found else text


CATALOG_NAME = r"^[a-z][a-z0-9_]{0,62}$"
CatalogName = Annotated[str, StringConstraints(pattern=CATALOG_NAME)]
ICEBERG_TABLE = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+$"


class IcebergHadoop(Part):
    """Tables in a directory."""

    type: Literal["hadoop"] = Field(description="`hadoop`.")
    warehouse: LocalPath = Field(description="Directory of the tables, relative to the spec.")
    name: CatalogName = Field("iceberg", description="Name of the catalog in SQL.")


class IcebergJdbc(Part):
    """Tables in a directory; a PostgreSQL database holds the state of each."""

    type: Literal["jdbc"] = Field(description="`jdbc`.")
    uri: Text = Field(description="`jdbc:postgresql://host:port/database`, without a password.")
    user: Text | None = Field(None, description="User of the database.")
    password: Text | None = Field(None, description="Password, as a reference.", examples=["${env:CATALOG_PASSWORD}"])
    warehouse: LocalPath = Field(description="Directory of the tables, relative to the spec.")
    name: CatalogName = Field(
        "iceberg", description="Name of the catalog, also in its database: other programs must use the same."
    )


class IcebergTable(Part):
    """An Iceberg table: each batch is one snapshot, published once."""

    table: Annotated[str, StringConstraints(pattern=ICEBERG_TABLE)] = Field(
        description="`namespace.name`.", examples=["shop.payments"]
    )
    catalog: Annotated[IcebergHadoop | IcebergJdbc, Field(discriminator="type")] = Field(description="Where it is.")
    partition_by: list[str] = Field(
        default_factory=list, description="Columns, or `days(column)` (years, months, hours), `bucket(16, column)`."
    )
    upsert: Upsert | None = Field(None, description="Replace rows by key. Default: append.")
    evolve: Literal["add-columns"] | None = Field(None, description="As for delta.")


class PostgresTable(Part):
    """A PostgreSQL table: rows are appended or, with `upsert`, replace the row that has their key. A batch is one
    transaction.
    """

    url: Text = Field(
        description="`postgresql://user:password@host:port/database`, the password as a reference.",
        examples=["${env:POSTGRES_URL}"],
    )
    table: Text = Field(
        description="`table` or `schema.table`, as written; a part with a dot or a quote in double quotes. Created "
        "when it is not there. `penstock_ledger` and staging tables lie in its schema.",
        examples=["public.payments"],
    )
    upsert: Upsert | None = Field(
        None, description="Replace rows by key: the columns of the primary key or of a unique index. Default: append."
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
    schema_: LocalPath | None = Field(
        None,
        alias="schema",
        description="Path of the schema (.avsc) relative to the spec. Default: the newest one of the subject, or with "
        "`register` the one the columns make.",
    )
    wire: Literal["registry", "raw"] = Field("registry", description="`raw`: plain datums.")


class EncodeProtobuf(_ToRegistry):
    """Protobuf: in the registry's wire format, or with `wire: raw` as plain messages."""

    format: Literal["protobuf"] = Field(description="`protobuf`.")
    schema_: LocalPath | None = Field(
        None,
        alias="schema",
        description="Path of the .proto file relative to the spec. Default: as for avro.",
    )
    message: Text | None = Field(
        None, description="Full name of the message. Needed where the file has several at its top."
    )
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
    transaction_timeout: Duration = Field(
        timedelta(minutes=15),
        description="How long a transaction may be open before the broker ends it, and the batch is tried again. Not "
        "above `transaction.max.timeout.ms` of the brokers.",
    )

    @model_validator(mode="after")
    def _one_topic(self) -> KafkaTopic:
        if (self.topic is None) == (self.topic_column is None):
            raise PydanticCustomError("one_kind", "kafka needs exactly one of: topic, topic_column")
        return self


class Console(Part):
    """Rows as JSON lines on standard output, to try a pipeline out."""

    rows: int = Field(20, ge=0, description="Most rows of a batch that are printed; the others are counted.")


class MemoryTable(Part):
    """Rows in a temporary view of the Spark session, to try a pipeline out from Python: `spark.table(name)`."""

    table: ViewName = Field(description="Name of the view.")
    max_rows: int = Field(100_000, ge=1, description="Most rows it may have; the pipeline stops before there are more.")


class Sink(Part):
    """Where the rows of a view go: exactly one of the kinds below."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 2})

    from_: ViewName = Field(alias="from", description="The view that is written.")
    where: Text | None = Field(None, description="A SQL condition: only rows for which it is true are written.")
    delta: DeltaTable | None = Field(None, description="Write to a Delta table.")
    parquet: ParquetFiles | None = Field(None, description="Write Parquet files.")
    iceberg: IcebergTable | None = Field(None, description="Write to an Iceberg table.")
    postgres: PostgresTable | None = Field(None, description="Write to a PostgreSQL table.")
    kafka: KafkaTopic | None = Field(None, description="Write to a Kafka topic.")
    console: Console | None = Field(None, description="Print rows.")
    memory: MemoryTable | None = Field(None, description="Keep rows in a temporary view of Spark.")

    def formats(self, name: str) -> dict[tuple[str, ...], AnyEncode]:
        """Where a sink of this name says how values and keys are written -> how."""
        if not self.kafka:
            return {}
        found = {("sinks", name, "kafka", part): getattr(self.kafka, part) for part in ("value", "key")}
        return {at: how for at, how in found.items() if how is not None}

    @model_validator(mode="after")
    def _one_kind(self) -> Sink:
        require_one_of(self, KINDS, "a sink needs exactly one of")
        return self


KINDS = ("delta", "parquet", "iceberg", "postgres", "kafka", "console", "memory")


@dataclass(frozen=True)
class Target:
    kind: str
    to: str


def target_of(sink: Sink) -> Target:
    kind = next(name for name in KINDS if getattr(sink, name) is not None)
    to = getattr(sink, kind)
    if getattr(to, "topic_column", None):
        return Target(kind, f"the topic in column {to.topic_column}")
    if files := getattr(to, "path", None):
        return Target(kind, plain(files))
    return Target(kind, getattr(to, "topic", None) or getattr(to, "table", None) or "")
