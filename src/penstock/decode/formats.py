"""Formats made ready on the driver: from the spec's words to columns, and to the decoder a worker makes for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.decode.arrow.decoded import Decoder
from penstock.decode.arrow.wire import WithHeader
from penstock.decode.avro.decoder import AvroDecoder, AvroSchemaMistake
from penstock.decode.avro.decoder import struct_of as avro_struct
from penstock.decode.csv import CsvDecoder
from penstock.decode.json import JsonDecoder
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.decode.text import BytesDecoder, StringDecoder
from penstock.errors import SpecInvalid
from penstock.record import no_column
from penstock.registry.client.schema import Lookup, RegisteredSchema
from penstock.registry.file import message_of, path_of, text_of
from penstock.registry.json_schema import JsonSchemaMistake, struct_of_json_schema
from penstock.registry.protobuf import message as protobuf_schema
from penstock.registry.protobuf.shape import struct_of as protobuf_struct
from penstock.spec.formats import (
    AnyFormat,
    AvroFormat,
    BytesFormat,
    CsvFormat,
    FromRegistry,
    JsonFormat,
    ProtobufFormat,
    StringFormat,
)
from penstock.spec.load import declared
from penstock.spec.types import Member, Scalar, Struct

ONLY = "value"  # the one column of a format that has no fields


@dataclass(frozen=True)
class Prepared:
    """Pickled to the workers, where `make` is called once per task."""

    struct: Struct
    make: Callable[[], Decoder]

    @property
    def is_scalar(self) -> bool:
        return self.make in (StringDecoder, BytesDecoder)


@dataclass(frozen=True)
class Place:
    """What a format needs to know beside itself: where files lie, and the subject a topic's schemas have by custom."""

    base: Path
    subject: str | None
    schema: Callable[[str, int | str, str | None], RegisteredSchema]  # of a subject, a version and a message
    lookup: Callable[[], Lookup]  # raises SpecInvalid when the spec names no registry


def prepare(how: AnyFormat, at: Place) -> Prepared:
    """Called once per start and once per change of a schema. Raises SpecInvalid for a schema that cannot be a view."""
    made = _prepared(how, at)
    why = _no_columns([member.name for member in made.struct.members])
    if why:
        raise _unusable(how, at, why)
    return made


def unusable(schema: RegisteredSchema, message: str | None) -> str:
    """Why a schema of the registry cannot be a view; empty when it can."""
    try:
        return _no_columns([member.name for member in _struct_of(schema, message).members])
    except (JsonSchemaMistake, AvroSchemaMistake, protobuf_schema.SchemaMistake) as mistake:
        return str(mistake)


def _struct_of(schema: RegisteredSchema, message: str | None) -> Struct:
    match schema.kind:
        case "JSON":
            return struct_of_json_schema(schema.text)
        case "AVRO":
            return avro_struct(schema)
        case "PROTOBUF":
            return protobuf_struct(protobuf_schema.from_registered(schema, message).descriptor())


def _no_columns(names: list[str]) -> str:
    """Why fields of these names cannot be the columns of a view; empty when they can."""
    lowered = [name.lower() for name in names]  # as SQL tells names apart
    for name in names:
        if why := no_column(name):
            return why
        if lowered.count(name.lower()) > 1:
            return f"two fields are called '{name}', if upper and lower case do not count"
    return "" if names else "it has no fields"


def _prepared(how: AnyFormat, at: Place) -> Prepared:
    match how:
        case JsonFormat(schema_=None):
            return _json_of_registry(how, at)
        case JsonFormat(schema_=written) if written is not None:
            struct = declared(at.base, written).struct()
            return Prepared(struct, partial(JsonDecoder, struct))
        case AvroFormat():
            return _avro(how, at)
        case ProtobufFormat():
            return _protobuf(how, at)
        case CsvFormat():
            struct = declared(at.base, how.schema_, flat=True).struct()
            return Prepared(struct, partial(CsvDecoder, struct, how.delimiter))
        case StringFormat():
            return Prepared(Struct((Member(ONLY, Scalar("string"), required=True),)), StringDecoder)
        case BytesFormat():
            return Prepared(Struct((Member(ONLY, Scalar("binary"), required=True),)), BytesDecoder)
    raise AssertionError(how)


def _json_of_registry(how: JsonFormat, at: Place) -> Prepared:
    schema = _registered(how, at)
    try:
        struct = struct_of_json_schema(schema.text)
    except JsonSchemaMistake as mistake:
        raise _unusable(how, at, str(mistake)) from None
    return Prepared(struct, partial(WithHeader, partial(JsonDecoder, struct), "JSON", at.lookup()))


def _avro(how: AvroFormat, at: Place) -> Prepared:
    schema = text_of(at.base, how.schema_) if how.schema_ is not None else _registered(how, at)
    try:
        struct = avro_struct(schema)
    except AvroSchemaMistake as mistake:
        raise _unusable(how, at, str(mistake)) from None
    return Prepared(struct, partial(AvroDecoder, schema, None if how.wire == "raw" else at.lookup()))


def _protobuf(how: ProtobufFormat, at: Place) -> Prepared:
    try:
        if how.schema_ is None:
            schema = protobuf_schema.from_registered(_registered(how, at), how.message)
        else:
            schema = message_of(at.base, how.schema_, how.message)
        struct = protobuf_struct(schema.descriptor())
    except protobuf_schema.SchemaMistake as mistake:
        raise _unusable(how, at, str(mistake)) from None
    return Prepared(struct, partial(ProtobufDecoder, schema, None if how.wire == "raw" else at.lookup()))


def _registered(how: FromRegistry, at: Place) -> RegisteredSchema:
    subject = how.subject or at.subject
    if subject is None:
        raise SpecInvalid(
            "a pattern of topics has no subject of its own",
            cause="each topic has its own subject by custom",
            next_command="say which one is read: `subject: ...`",
        )
    return at.schema(subject, how.version, getattr(how, "message", None))


def _unusable(how: AnyFormat, at: Place, why: str) -> SpecInvalid:
    written = getattr(how, "schema_", None)
    if isinstance(written, str):
        file = path_of(at.base, written)
        return SpecInvalid(f"the schema in {file} cannot be a view", cause=why, next_command=f"correct {file}")
    if written is not None:
        return SpecInvalid("a schema of the spec cannot be a view", cause=why, next_command="correct it in the spec")
    subject = getattr(how, "subject", None) or at.subject
    return SpecInvalid(
        f"the schema of '{subject}' cannot be a view",
        cause=why,
        next_command=f"penstock registry show FILE --subject {subject}",
    )
