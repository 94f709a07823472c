"""Formats made ready on the driver: from the spec's words and a view's columns to what writes the records."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.encode.arrow.encoded import ColumnsMistake, Encoder
from penstock.encode.arrow.wire import header_of
from penstock.encode.avro.encoder import AvroEncoder
from penstock.encode.json import JsonEncoder
from penstock.encode.protobuf.encoder import ProtobufEncoder
from penstock.errors import SpecInvalid, SubjectMissing
from penstock.registry.avro.derive import avro_schema
from penstock.registry.avro.model import AvroSchemaMistake
from penstock.registry.client.registry import SchemaRegistry
from penstock.registry.client.schema import Kind, RegisteredSchema
from penstock.registry.file import text_of, written_with
from penstock.registry.json_schema import JsonSchemaMistake, json_schema
from penstock.registry.protobuf import message as protobuf
from penstock.registry.protobuf.derive import proto_text
from penstock.spec.sinks import AnyEncode, EncodeAvro, EncodeBytes, EncodeJson, EncodeProtobuf, EncodeString
from penstock.spec.types import MOST_DEPTH, SCALARS, Array, Decimal, Map, Member, Scalar, Struct, Type, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

# Without these Spark writes milliseconds, and a timestamp without a zone as if it had one.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class Prepared:
    """`column` makes, in the engine, the bytes of a record, or with an encoder the struct it is given in the worker."""

    column: Callable[[DataFrame], Column]
    encoder: Encoder | None = None
    columns: tuple[str, ...] = ()  # of the struct; none where one column is the record
    json: Encoder | None = None  # what `column` does, where there is no engine

    @property
    def in_worker(self) -> Encoder | None:
        return self.encoder or self.json


def prepare(
    how: AnyEncode,
    sink: str,
    fields: Sequence[StructField],
    subject: str | None,
    base: Path,
    registry: Callable[[], SchemaRegistry],
) -> Prepared:
    """Called once per start. Raises SpecInvalid for columns that the schema cannot hold, and what the registry says."""
    try:
        match how:
            case EncodeString() | EncodeBytes():
                return Prepared(_one(how.column, "string" if isinstance(how, EncodeString) else "binary"))
            case EncodeJson():
                return _json(how, fields, subject, registry)
            case EncodeAvro() | EncodeProtobuf():
                struct = _struct(fields)
                schema = _schema(how, struct, subject, base, registry)
                return Prepared(_structs(fields), _encoder(how, schema, struct), tuple(f.name for f in fields))
    except (ColumnsMistake, AvroSchemaMistake, JsonSchemaMistake, protobuf.SchemaMistake) as mistake:
        raise SpecInvalid(
            f"sink '{sink}' cannot write its view as {how.format}",
            cause=str(mistake),
            next_command="make the columns fit with a step of `transform`, or name those to write: `columns: [...]`",
        ) from None
    raise AssertionError(how)


def _one(name: str, type_: str) -> Callable[[DataFrame], Column]:
    from pyspark.sql import functions as F

    return lambda _rows: F.col(name).cast(type_).cast("binary")


def _structs(fields: Sequence[StructField]) -> Callable[[DataFrame], Column]:
    from pyspark.sql import functions as F

    return lambda _rows: F.struct(*(F.col(quoted(field.name)) for field in fields))


def _json(
    how: EncodeJson, fields: Sequence[StructField], subject: str | None, registry: Callable[[], SchemaRegistry]
) -> Prepared:
    from pyspark.sql import functions as F

    made, names = _structs(fields), tuple(field.name for field in fields)
    header = b""
    if how.wire == "registry":
        header = header_of(
            _in_registry(how.register_, "JSON", lambda: json_schema(_struct(fields)), subject, registry).id
        )
    try:
        plain: Encoder | None = JsonEncoder(_struct(fields), header)
    except ColumnsMistake:  # a type that only the engine can write
        plain = None

    def column(rows: DataFrame) -> Column:
        text = F.to_json(made(rows), _JSON).cast("binary")
        return F.concat(F.lit(header), text) if header else text

    return Prepared(column, None, names, plain)


def _schema(
    how: EncodeAvro | EncodeProtobuf,
    struct: Struct,
    subject: str | None,
    base: Path,
    registry: Callable[[], SchemaRegistry],
) -> RegisteredSchema:
    kind: Kind = "AVRO" if isinstance(how, EncodeAvro) else "PROTOBUF"

    def text() -> str:
        if how.schema_ is not None:
            return text_of(base, how.schema_)
        name = record_name(subject or "Record")
        return avro_schema(struct, name) if kind == "AVRO" else proto_text(struct, name)

    def registered() -> str:
        # As confluent-kafka registers them: its deserializer reads nothing else, and those in Java read both.
        return text() if kind == "AVRO" else base64.b64encode(written_with(text()).files[-1]).decode()

    if how.wire == "raw":
        return RegisteredSchema(0, kind, text())
    if how.schema_ is not None and not how.register_ and subject is not None:
        return _already_there(subject, kind, registered(), registry())
    return _in_registry(how.register_, kind, registered, subject, registry)


def record_name(subject: str) -> str:
    """The name of an Avro record or a Protobuf message that is made of a subject; no subject is without one."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9_]+", subject))
    return name if re.match(r"[A-Za-z_]", name) else f"Record{name}"


def _already_there(subject: str, kind: Kind, text: str, registry: SchemaRegistry) -> RegisteredSchema:
    """A schema of the spec's own that may not be registered now, and must have been before."""
    wanted = RegisteredSchema(0, kind, text)
    number = registry.id_of(subject, kind, text)
    found = replace(wanted, id=number) if number is not None else _same_message(subject, wanted, registry)
    if found is None:
        raise SpecInvalid(
            f"the schema of the spec is no version of '{subject}'",
            cause="`register` does not allow to make it one",
            next_command="let Penstock register it: `register: true`; or leave `schema` out to use the newest version",
        )
    return found


def _same_message(subject: str, wanted: RegisteredSchema, registry: SchemaRegistry) -> RegisteredSchema | None:
    """The newest version that says the same. Registries know a Protobuf schema by its text, and each client writes
    another one for the same file."""
    if wanted.kind != "PROTOBUF":
        return None
    file = protobuf.files_of(wanted)[-1]
    try:
        versions = registry.versions(subject)
    except SubjectMissing:
        return None
    for number in reversed(versions):
        schema = registry.version(subject, number).schema
        if schema.kind == wanted.kind and protobuf.same(protobuf.files_of(schema)[-1], file):
            return schema
    return None


def _in_registry(
    register: bool, kind: Kind, text: Callable[[], str], subject: str | None, registry: Callable[[], SchemaRegistry]
) -> RegisteredSchema:
    """The schema that is written with: registered now if that is allowed, else the newest of the subject."""
    if subject is None:
        raise SpecInvalid(
            "a topic that a column names has no subject of its own",
            cause="each topic has its own subject by custom",
            next_command="say under which one the schema stands: `subject: ...`",
        )
    if register:
        written = text()
        return RegisteredSchema(registry().register(subject, kind, written), kind, written)
    try:
        found = registry().latest(subject).schema
    except SubjectMissing as missing:
        raise SubjectMissing(
            missing.what,
            cause=f"{missing.cause}; and `register` does not allow to make it",
            next_command="let Penstock register the schema of the columns: `register: true`; or register one: "
            "penstock registry register FILE",
        ) from None
    if found.kind != kind:
        raise SpecInvalid(
            f"subject '{subject}' is {found.kind}, not {kind}",
            next_command=f"penstock registry show FILE --subject {subject}",
        )
    return found


def _encoder(how: EncodeAvro | EncodeProtobuf, schema: RegisteredSchema, struct: Struct) -> Encoder:
    number = None if how.wire == "raw" else schema.id
    if isinstance(how, EncodeAvro):
        return AvroEncoder(schema, struct, number)
    return ProtobufEncoder(protobuf.from_registered(schema, how.message), struct, number)


def _struct(fields: Sequence[StructField]) -> Struct:
    """All of it may be null: what Spark says about that changes with the SQL, and would change a derived schema too."""
    return Struct(tuple(Member(f.name, _type(f.dataType, f.name)) for f in fields))


def _type(spark: DataType, path: str, depth: int = 0) -> Type:
    """Spark's types as the spec's."""
    from pyspark.sql import types as T

    if depth > MOST_DEPTH:
        raise ColumnsMistake(f"{path}: nested too deeply")
    match spark:
        case T.DecimalType():
            return Decimal(spark.precision, spark.scale)
        case T.ArrayType():
            return Array(_type(spark.elementType, f"{path}[]", depth + 1))
        case T.MapType(keyType=T.StringType()):
            return Map(_type(spark.valueType, f"{path}{{}}", depth + 1))
        case T.StructType():
            inner: Any = [Member(f.name, _type(f.dataType, f"{path}.{f.name}", depth + 1)) for f in spark.fields]
            return Struct(tuple(inner))
    name = spark.simpleString()
    if name not in SCALARS:
        raise ColumnsMistake(f"{path}: {name} has no place in a record")
    return Scalar(name)
