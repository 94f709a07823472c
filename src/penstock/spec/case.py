"""Unit tests of a pipeline: what goes in and what must come out, as pydantic models.

A file of cases lies next to its spec. As with the spec, these classes are the validation, the JSON Schema (`penstock
schema --tests`) and the documentation of the file. Nothing here runs anything: `penstock.testing.case` does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.fields import FieldOrType, struct_of
from penstock.spec.local_path import LocalPath
from penstock.spec.start import Partition, Time
from penstock.spec.types import TypeMistake
from penstock.spec.words import Name, Part, Text, TopicName, ViewName, require_one_of

BYTES = ("text", "base64", "hex")
TOMBSTONES = "tombstones"  # how `dropped` calls null values that the spec drops

Row = dict[str, Any]


class Bytes(Part):
    """Bytes that are written as they are: exactly one of the three."""

    text: str | None = Field(None, description="UTF-8 text.")
    base64: str | None = Field(None, description="Base64.")
    hex: str | None = Field(None, description="Hexadecimal digits; blanks do not count.")

    @model_validator(mode="after")
    def _one_kind(self) -> Bytes:
        require_one_of(self, BYTES, "bytes need exactly one of")
        return self


class Record(Part):
    """A record of a topic: `value`, or its bytes as `text`, `base64` or `hex`."""

    value: Any = Field(
        None,
        description="The value, written in the format of the topic. A mapping is laid over that of `defaults`. `null`: "
        "a tombstone.",
    )
    text: str | None = Field(None, description="The value's bytes, as UTF-8 text.")
    base64: str | None = Field(None, description="The value's bytes, as base64.")
    hex: str | None = Field(None, description="The value's bytes, as hexadecimal digits.")
    without: list[Text] = Field(default_factory=list, description="Fields of `defaults` that this value does not have.")
    key: Any = Field(None, description="The key, in the format the spec reads keys with; without one, as text.")
    raw_key: Bytes | None = Field(None, description="Instead of `key`: its bytes.")
    headers: dict[str, str | Bytes | None] = Field(default_factory=dict, description="Headers: name to text or bytes.")
    time: Time | None = Field(
        None,
        description="The record's timestamp, `2026-11-01T00:00:00Z` or milliseconds since 1970. Default: "
        "2000-01-01T00:00:00Z, and a second more for each record of the case.",
    )
    partition: Partition | None = Field(None, description="Partition. Default: 0.")
    offset: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Offset. Default: 0 for the first record of a partition, then one more than the last."
    )
    version: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Version of `schemas` that the value is written with. Default: the newest."
    )

    @property
    def given(self) -> str | None:
        """Which key says what the value is; None: no key does."""
        said = self.model_fields_set
        return next((name for name in ("value", *BYTES) if name in said), None)

    @model_validator(mode="after")
    def _one_value(self) -> Record:
        said = [name for name in ("value", *BYTES) if name in self.model_fields_set]
        if len(said) > 1:
            raise PydanticCustomError("one_kind", "a record has at most one of: value, text, base64, hex")
        if self.raw_key is not None and "key" in self.model_fields_set:
            raise PydanticCustomError("one_kind", "a record has at most one of: key, raw_key")
        return self


Given = dict[TopicName, list[Record]]
"""The records of one batch, by topic."""


class Rows(Part):
    """Rows, and how they are compared. A list of rows is short for `{rows: [...]}`."""

    rows: list[Row] = Field(description="The rows. Each names the columns that are compared.")
    exact: bool = Field(
        False, description="Whether a row must name every column but Penstock's own (`_kafka`, `_key`, `_deleted`)."
    )
    in_order: bool = Field(False, description="Whether the order of the rows counts.")


AnyRows = list[Row] | Rows


class GivenTable(Part):
    """Rows of a reference table. A list of rows is short for `{rows: [...]}`."""

    rows: list[Row] = Field(description="The rows, by column. A column that is left out is null.")
    fields: dict[str, FieldOrType] | None = Field(
        None,
        min_length=1,
        description="The columns with their types. Default: those the spec declares (`file` with a schema, `kafka`), "
        "else as the rows look: text, whole numbers, decimals, booleans.",
    )

    @model_validator(mode="after")
    def _are_columns(self) -> GivenTable:
        try:
            if self.fields is not None:
                struct_of(self.fields)
        except TypeMistake as mistake:
            raise PydanticCustomError("type", "{text}", {"text": str(mistake)}) from None
        return self


class Letter(Part):
    """A dead letter. What is left out is not compared."""

    topic: TopicName | None = Field(None, description="Topic of the record.")
    partition: Partition | None = Field(None, description="Its partition.")
    offset: Annotated[int, Field(ge=0)] | None = Field(None, description="Its offset.")
    key: str | None = Field(None, description="Its key, as text.")
    value: Any = Field(None, description="Its value: as text, or a mapping where it is JSON.")
    stage: Literal["decode", "contract", "transform", "sink"] | None = Field(None, description="Where it died.")
    error_class: Text | None = Field(None, description="Class of the error.", examples=["missing-field"])
    rule: Text | None = Field(
        None,
        description="The rule of the contract that it broke; `time of <view>` where a stateful step needs a time.",
    )
    reason: Text | None = Field(None, description="Text that the reason holds.")
    sinks: list[Name] | None = Field(None, description="The sinks that do not have the record, where others have it.")


class Refusal(Part):
    """The pipeline stops."""

    code: Text = Field(description="Code of the error.", examples=["rule-stopped"])
    says: Text | None = Field(None, description="Text that the error holds.")


class Expect(Part):
    """What must come out. Sinks, views and rules that are not named are not looked at."""

    sinks: dict[Name, AnyRows] = Field(
        default_factory=dict,
        description="Rows by sink. Of a sink that upserts: the row of each key at the end; a key that was deleted has "
        "`_deleted: true`. Of a Kafka sink also `_record`, with `topic`, `partition`, `key`, `value` and `headers`.",
    )
    views: dict[ViewName, AnyRows] = Field(default_factory=dict, description="Rows by view.")
    dead_letters: list[Letter] | Literal["any"] = Field(
        default_factory=list, description="All dead letters. Default: there is none. `any`: they are not looked at."
    )
    dropped: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description=f"Records dropped, by rule; `{TOMBSTONES}` are null values that the spec drops.",
    )
    error: Refusal | None = Field(None, description="The pipeline must stop with this error.")


class Case(Part):
    """One test: records in, rows and dead letters out."""

    name: Text = Field(description="What is tested, in words.")
    given: Given | list[Given] = Field(description="Records by topic; or a list of that, one for each batch.")
    tables: dict[ViewName, list[Row]] = Field(
        default_factory=dict,
        description="Rows by reference table, for this case only: they take the place of those of the file.",
    )
    expect: Expect = Field(description="What must come out.")

    @property
    def batches(self) -> list[Given]:
        return self.given if isinstance(self.given, list) else [self.given]


class Cases(Part):
    """A file of tests, `<spec>.test.yaml`."""

    penstock: Literal[1] = Field(1, description="Version of this vocabulary.")
    spec: LocalPath | None = Field(
        None, description="The spec, relative to this file. Default: the file of the same name without `.test`."
    )
    schemas: dict[Text, LocalPath | list[LocalPath]] = Field(
        default_factory=dict,
        description="What the registry would hold: subject to schema file (.avsc, .proto, .json), relative to this "
        "file; a list of files is its versions, the oldest first.",
    )
    defaults: dict[TopicName, Record] = Field(
        default_factory=dict, description="By topic: what records have that do not say otherwise."
    )
    tables: dict[ViewName, list[Row] | GivenTable] = Field(
        default_factory=dict,
        description="Rows by reference table of the spec: they stand for its file, Delta table, database or topic. "
        "Those in a database or topic must be given, here or by the case.",
    )
    cases: list[Case] = Field(min_length=1, description="The tests.")
