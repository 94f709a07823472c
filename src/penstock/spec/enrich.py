"""Enrichment: a step that looks up each row of a view in a reference table, and what such a table is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.duration import Duration
from penstock.spec.fields import Schema
from penstock.spec.formats import AnyFormat
from penstock.spec.local_path import LocalPath
from penstock.spec.words import Part, Text, TopicName, ViewName, require_one_of

TABLE_KINDS = ("file", "delta", "jdbc", "kafka")

Column = Annotated[str, Field(min_length=1)]


def _paired(value: Any) -> Any:
    """A list of names, or one, is short for names that are the same on both sides."""
    value = [value] if isinstance(value, str) else value
    named = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return {name: name for name in value} if named else value


def _null(value: Any) -> Any:
    """The word in quotes means the same."""
    return None if value == "null" else value


class Enrich(Part):
    """A view with columns of a reference table: each of its rows once, with those of the row that has the same key."""

    from_: ViewName = Field(alias="from", description="The view.")
    reference: ViewName = Field(description="Name of the reference table.")
    on: Annotated[dict[Column, Column], BeforeValidator(_paired)] = Field(
        min_length=1,
        description="Column of the view to column of the table, or a list of columns that both have. No two rows of "
        "the table may have the same values there.",
        examples=[{"currency": "code"}],
    )
    columns: Annotated[dict[Column, Column], BeforeValidator(_paired)] | None = Field(
        None,
        min_length=1,
        description="Columns of the table that are added: a list, or column to new name. Default: all but the key.",
    )
    prefix: str = Field("", description="Put before the names of the columns that are added.", examples=["rate_"])
    missing: Annotated[Literal["dead-letter"] | None, BeforeValidator(_null)] = Field(
        None,
        description="What becomes of a row whose key the table does not have: `null` in the added columns, or "
        "`dead-letter` for its record.",
    )

    @property
    def text(self) -> str:
        keys = ", ".join(left if left == right else f"{left} = {right}" for left, right in self.on.items())
        lost = ", missing: dead-letter" if self.missing else ""
        return f"{self.from_} with {self.reference} on {keys}{lost}"

    def named(self, column: str) -> str:
        """What an added column is called."""
        return self.prefix + ((self.columns or {}).get(column) or column)


class FileTable(Part):
    """A file, or a directory of files."""

    path: LocalPath = Field(description="Where it is, relative to the spec.", examples=["rates.csv"])
    format: Literal["csv", "json", "parquet"] = Field(
        description="`csv`: with a line of column names; `json`: one document per line; `parquet`."
    )
    schema_: Schema | None = Field(
        None, alias="schema", description="Columns of a CSV or JSON file: `{fields: {name: type, ...}}`."
    )

    @model_validator(mode="after")
    def _schema_where_needed(self) -> FileTable:
        if (self.schema_ is None) == (self.format != "parquet"):
            text = "has its own schema" if self.format == "parquet" else "needs a `schema`"
            raise PydanticCustomError("one_kind", f"a {self.format} file {text}")
        return self


class DeltaReference(Part):
    """A Delta table, as it is when it is read."""

    path: LocalPath = Field(description="Directory of the table, relative to the spec.")


class JdbcTable(Part):
    """A table of a database, or what a query gives there: `table` or `query`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["table"]}, {"required": ["query"]}]})

    url: Text = Field(
        description="`jdbc:...` of any database whose driver Spark finds; PostgreSQL's is there, and `postgresql://` "
        "works too.",
        examples=["${env:RATES_URL}"],
    )
    table: Text | None = Field(None, description="Name of the table.")
    query: Text | None = Field(None, description="A query in the database's SQL.")
    user: Text | None = Field(None, description="User to log in as, where the URL does not say.")
    password: Text | None = Field(None, description="Its password.", examples=["${env:RATES_PASSWORD}"])

    @model_validator(mode="after")
    def _one_kind(self) -> JdbcTable:
        require_one_of(self, ("table", "query"), "jdbc needs exactly one of")
        return self


class CompactedTopic(Part):
    """A compacted topic: the newest record of each key. A null value deletes its key."""

    topic: TopicName = Field(description="The topic.")
    value: AnyFormat = Field(description="How the value is decoded.")
    key: AnyFormat | None = Field(None, description="How the key is decoded, into the column `_key`.")


class ReferenceTable(Part):
    """A table that steps look rows up in: a file, a Delta table, a database or a compacted topic. It is read when the
    pipeline starts, and again as `refresh` says, between two batches. Each time a copy is kept in the checkpoint.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in TABLE_KINDS]})

    file: FileTable | None = Field(None, description="A file.")
    delta: DeltaReference | None = Field(None, description="A Delta table.")
    jdbc: JdbcTable | None = Field(None, description="A table of a database.")
    kafka: CompactedTopic | None = Field(None, description="A compacted topic of the same cluster.")
    refresh: Duration | None = Field(None, description="How old it may get. Default: read at each start only.")
    broadcast_mb: int = Field(
        64,
        ge=0,
        le=8_000,
        description="Up to this size every task gets a copy, and rows stay where they are; above it rows are moved "
        "to be joined.",
    )

    @property
    def kind(self) -> str:
        return next(kind for kind in TABLE_KINDS if getattr(self, kind) is not None)

    @property
    def place(self) -> str:
        """Where it is, as it is written."""
        for part, name in ((self.file, "path"), (self.delta, "path"), (self.kafka, "topic")):
            if part is not None:
                return str(getattr(part, name))
        return (self.jdbc and self.jdbc.table) or "a query"

    @model_validator(mode="after")
    def _one_kind(self) -> ReferenceTable:
        require_one_of(self, TABLE_KINDS, "a reference needs exactly one of")
        return self
