"""How the bytes of a record are read: one class per format."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.fields import Schema
from penstock.spec.local_path import LocalPath
from penstock.spec.words import Part, Text

Tombstones = Literal["dead-letter", "drop", "delete"]


class Format(Part):
    """What every format has."""

    tombstones: Tombstones = Field(
        "dead-letter",
        description="What a null value means: a dead letter, a record to drop (and count), or a delete: a row that has "
        "only its key, with `_deleted` true.",
    )


class FromRegistry(Format):
    """A format whose records can name their schema: in the registry's wire format each begins with its id."""

    subject: Text | None = Field(
        None, description="Subject of the reader schema. Default: `<topic>-value`, for a key `<topic>-key`."
    )
    version: Annotated[int, Field(ge=1)] | Literal["latest"] = Field(
        "latest",
        description="Version of the subject: pinned, or the newest one, which is followed while the pipeline runs: "
        "columns stay, and new ones come where a sink has `evolve: add-columns`.",
    )
    unreadable: Literal["dead-letter", "stop"] = Field(
        "dead-letter",
        description="What becomes of a record whose schema id is unknown or does not fit the reader schema.",
    )


class JsonFormat(FromRegistry):
    """JSON objects, checked against a declared schema, or against a JSON Schema of the registry."""

    format: Literal["json"] = Field(description="`json`.")
    schema_: LocalPath | Schema | None = Field(
        None,
        alias="schema",
        description="Path of a schema file relative to the spec, or the schema itself: "
        "`{fields: {name: type, ...}}`. A schema file holds the same: `fields:` and below it name to type. Without "
        "one the registry is asked, and records are in its wire format.",
        examples=["schemas/payment.yaml"],
    )

    @model_validator(mode="after")
    def _one_schema(self) -> JsonFormat:
        if self.schema_ is not None and self.subject is not None:
            raise PydanticCustomError("one_kind", "json needs exactly one of: schema, subject")
        return self


class AvroFormat(FromRegistry):
    """Avro: in the registry's wire format, or with `wire: raw` as plain datums."""

    format: Literal["avro"] = Field(description="`avro`.")
    schema_: LocalPath | None = Field(
        None,
        alias="schema",
        description="Path of the reader schema (.avsc) relative to the spec. Default: from the registry.",
        examples=["schemas/payment.avsc"],
    )
    wire: Literal["registry", "raw"] = Field(
        "registry", description="`raw`: values are plain datums, written with `schema`."
    )

    @model_validator(mode="after")
    def _raw_needs_a_schema(self) -> AvroFormat:
        if self.wire == "raw" and self.schema_ is None:
            raise PydanticCustomError(
                "one_kind", "avro with `wire: raw` needs a schema: add `schema`, the path of an .avsc file"
            )
        return self


class ProtobufFormat(FromRegistry):
    """Protobuf: in the registry's wire format, or with `wire: raw` as plain messages."""

    format: Literal["protobuf"] = Field(description="`protobuf`.")
    schema_: LocalPath | None = Field(
        None,
        alias="schema",
        description="Path of a .proto file relative to the spec, or of a descriptor set (.desc). What it imports is "
        "looked for beside it. Default: from the registry.",
        examples=["schemas/payment.proto"],
    )
    message: Text | None = Field(
        None,
        description="Full name of the message. Needed where the file has several at its top.",
        examples=["shop.Payment"],
    )
    wire: Literal["registry", "raw"] = Field("registry", description="`raw`: values are plain messages of `schema`.")

    @model_validator(mode="after")
    def _raw_needs_a_schema(self) -> ProtobufFormat:
        if self.wire == "raw" and self.schema_ is None:
            raise PydanticCustomError(
                "one_kind", "protobuf with `wire: raw` needs a schema: add `schema`, the path of a .proto file"
            )
        return self


class CsvFormat(Format):
    """One line of comma-separated values, in the order of the schema's fields; an empty one without quotes is null."""

    format: Literal["csv"] = Field(description="`csv`.")
    schema_: LocalPath | Schema = Field(alias="schema", description="As for json; no nested types.")
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(",", description="What parts the fields.")


class StringFormat(Format):
    """UTF-8 text, as one column `value`."""

    format: Literal["string"] = Field(description="`string`.")


class BytesFormat(Format):
    """The bytes as they are, as one column `value`."""

    format: Literal["bytes"] = Field(description="`bytes`.")


AnyFormat = Annotated[
    JsonFormat | AvroFormat | ProtobufFormat | CsvFormat | StringFormat | BytesFormat, Field(discriminator="format")
]
