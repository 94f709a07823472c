"""Random schemas and values from serializers we did not write, through a real topic, with a real registry, to rows;
and what becomes of the same records when somebody has damaged them on the way.

What must come out is what was put in, and whether a damaged record can still be one is asked of protobuf's runtime, of
Python's UTF-8, or known from the format: a beginning of an Avro datum or of a JSON object is never another one.
"""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_formats import Shop
from tests.payments import Payments

from penstock import record
from penstock.decode.columns import arrow_type
from penstock.decode.decoded import Decoded
from penstock.decode.formats import Place, Prepared, prepare
from penstock.kafka import admin, connection
from penstock.kafka.schema_registry import RegistrySettings, SchemaRegistry
from penstock.local.broker import Cluster
from penstock.local.registry import LocalRegistry
from penstock.spec.formats import AvroFormat, BytesFormat, CsvFormat, JsonFormat, ProtobufFormat, StringFormat
from penstock.spec.model import TopicSettings

sys.path.append(str(Path(__file__).parent.parent / "unit" / "decode"))

import avro_strategies as avro
import protobuf_strategies as proto
from arrow_rows import keeps_required, rows
from json_strategies import names

Pair = tuple[Any, Any]
"""What is given to a serializer, and what decode must make of it."""

patient = settings(max_examples=15, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))

UTC = datetime.UTC
OTHER_JSON = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {}}}'
HEADER = 5  # the magic byte and the schema id
CLASSES = {
    record.EMPTY_VALUE,
    record.MALFORMED,
    record.WRONG_TYPE,
    record.OUT_OF_RANGE,
    record.MISSING_FIELD,
    record.UNKNOWN_SCHEMA,
    record.INCOMPATIBLE_SCHEMA,
}


class Wire:
    """One topic. What is sent comes back as the broker has it, in the order it was sent."""

    def __init__(self, servers: str) -> None:
        self.topic = f"random-{uuid.uuid4().hex[:8]}"
        config = connection.connect_to(servers)
        admin.create_missing(config, {self.topic: TopicSettings(partitions=1)})
        self.producer = connection.producer(config, linger_ms=0)
        self.consumer = connection.consumer(
            {**config, "group.id": self.topic, "enable.auto.commit": "false", "fetch.wait.max.ms": "50"}
        )
        self.consumer.assign([TopicPartition(self.topic, 0, 0)])

    def through(self, values: list[bytes]) -> list[bytes]:
        example = uuid.uuid4().hex.encode()
        for value in values:
            self.producer.produce(self.topic, value, example)
        assert self.producer.flush(30) == 0
        found: list[bytes] = []
        while len(found) < len(values):
            message = self.consumer.poll(30)
            assert message is not None and message.error() is None, message and message.error()
            if message.key() == example:  # others are of an example that failed before it was read
                found.append(message.value() or b"")
        assert found == values
        return found


class Lab:
    def __init__(self, servers: str, url: str) -> None:
        self.servers = servers
        self.client = SchemaRegistryClient({"url": url})
        self.registry = SchemaRegistry(RegistrySettings(url=url))
        self.wires: dict[str, Wire] = {}
        # Of each kind a schema that records of the other kinds can name by mistake.
        self.of_kind = {
            "avro": self.registry.register(f"other-{uuid.uuid4().hex}", "AVRO", '"string"'),
            "json": self.registry.register(f"other-{uuid.uuid4().hex}", "JSON", OTHER_JSON),
            "protobuf": self.registry.register(
                f"other-{uuid.uuid4().hex}", "PROTOBUF", 'syntax = "proto3"; message M { int32 a = 1; }'
            ),
        }

    def wire(self, kind: str) -> Wire:
        if kind not in self.wires:
            self.wires[kind] = Wire(self.servers)
        return self.wires[kind]

    def prepared(self, how: Any, subject: str | None = None) -> Prepared:
        """As a pipeline makes a format ready whose reader schema is the newest of a subject."""
        return prepare(
            how, Place(Path(), subject, lambda s, *_: self.registry.latest(s).schema, lambda: self.registry.by_id)
        )


@pytest.fixture(scope="module")
def lab(kafka: Cluster, registry: LocalRegistry) -> Iterator[Lab]:
    made = Lab(kafka.bootstrap, registry.url)
    yield made
    made.registry.close()
    for wire in made.wires.values():
        wire.consumer.close()
    made.wires.clear()  # a producer goes on until nobody has it


@dataclass
class Sample:
    """Records of one random schema as a serializer wrote them, and what is known of them without our decoder."""

    kind: str
    prepared: Prepared
    values: list[bytes]
    rows: list[dict[str, Any]]
    holds: Callable[[dict[str, Any]], bool]  # whether a row is one of the schema
    header: int = 0  # bytes before the record itself
    parses: Callable[[bytes], bool] = field(default=lambda _: True)  # False where no reader could read these bytes
    at: int = 0  # Protobuf: the place of the message in its file


# --- Avro ---------------------------------------------------------------------------------------------------------


def named(name: str, logical: str) -> dict[str, Any]:
    return {"type": name, "logicalType": logical}


avro_scalars = st.one_of(
    avro.all_scalars,
    st.sampled_from([named("long", "local-timestamp-nanos"), named("fixed", "uuid") | {"name": "F", "size": 16}]),
)
avro_schemas = avro.records_of(avro.types_of(avro_scalars), most=6).map(avro.named)
aware = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(
        datetime.datetime(1900, 1, 1),
        datetime.datetime(2100, 1, 1),
        timezones=st.integers(-14 * 60, 14 * 60).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m))),
    ),
)


def avro_values(schema: Any) -> st.SearchStrategy[Pair]:
    """As a Python program has them: dates, times and UUIDs as such and not as their numbers."""
    match avro.kind_of(schema):
        case "union":
            return st.one_of([_avro_branch(schema, branch) for branch in schema])
        case "array":
            return st.lists(avro_values(schema["items"]), max_size=4).map(_unzipped)
        case "map":
            return st.dictionaries(st.text(max_size=4), avro_values(schema["values"]), max_size=3).map(_unzipped_dict)
        case "record":
            return st.fixed_dictionaries({f["name"]: avro_values(f["type"]) for f in schema["fields"]}).map(
                _unzipped_dict
            )
    match schema:
        case {"logicalType": "date"}:
            return st.dates().map(_twice)
        case {"logicalType": "timestamp-millis" | "local-timestamp-millis" as logical}:
            times = aware if logical[0] == "t" else st.datetimes()
            return times.map(lambda t: _twice(t.replace(microsecond=t.microsecond // 1000 * 1000)))
        case {"logicalType": "timestamp-micros"}:
            return aware.map(_twice)
        case {"logicalType": "local-timestamp-micros"}:
            return st.datetimes().map(_twice)
        case {"logicalType": "time-millis" | "time-micros" as logical}:
            unit = (
                datetime.timedelta(milliseconds=1) if logical == "time-millis" else datetime.timedelta(microseconds=1)
            )
            return st.times().map(
                lambda t: (
                    t,
                    (datetime.datetime.combine(datetime.date.min, t) - datetime.datetime.min) // unit,
                )
            )
        case {"logicalType": "uuid", "type": "string"}:
            return st.uuids().map(lambda u: (u, str(u)))
    return avro.fitting(schema)  # numbers, text, bytes, enums, decimals


def _avro_branch(union: list[Any], branch: Any) -> st.SearchStrategy[Pair]:
    if branch == "null":
        return st.just((None, None))
    name = branch["name"] if isinstance(branch, dict) and "name" in branch else avro.kind_of(branch)
    return avro_values(branch).map(lambda pair: ((name, pair[0]), avro.in_view(union, branch, pair[1])))


def _twice(value: Any) -> Pair:
    return value, value


def _unzipped(pairs: list[Pair]) -> Pair:
    return [given for given, _ in pairs], [expected for _, expected in pairs]


def _unzipped_dict(pairs: dict[str, Pair]) -> Pair:
    return {k: given for k, (given, _) in pairs.items()}, {k: expected for k, (_, expected) in pairs.items()}


def avro_holds(schema: Any, value: Any) -> bool:
    """Whether a decoded value is one of an Avro schema."""
    match avro.kind_of(schema):
        case "union":
            if value is None:
                return "null" in schema
            present = [b for b in schema if b != "null"]
            if len(present) == 1:
                return avro_holds(present[0], value)
            chosen = [i for i in range(len(present)) if value[f"member{i}"] is not None]
            return len(chosen) == 1 and avro_holds(present[chosen[0]], value[f"member{chosen[0]}"])
        case "array":
            return isinstance(value, list) and all(avro_holds(schema["items"], v) for v in value)
        case "map":
            return isinstance(value, dict) and all(avro_holds(schema["values"], v) for v in value.values())
        case "record":
            return isinstance(value, dict) and all(avro_holds(f["type"], value[f["name"]]) for f in schema["fields"])
    match schema:
        case {"logicalType": "decimal", "precision": precision, "scale": scale}:
            digits = value.as_tuple()
            return digits.exponent == -scale and len(digits.digits) <= precision
        case {"logicalType": "date"}:
            return type(value) is datetime.date
        case {"logicalType": str(logical)} if "timestamp-mi" in logical:
            return type(value) is datetime.datetime and (value.tzinfo is None) == logical.startswith("local")
        case {"type": "enum", "symbols": symbols}:
            return value in symbols
        case {"type": "fixed", "size": size}:
            return isinstance(value, bytes) and len(value) == size
    kind = avro.kind_of(schema)
    if kind in avro.BITS:
        return type(value) is int and -(2 ** avro.BITS[kind]) <= value < 2 ** avro.BITS[kind]
    return type(value) is {"boolean": bool, "float": float, "double": float, "bytes": bytes, "string": str}[kind]


def avro_sample(draw: Any, lab: Lab) -> Sample:
    schema = draw(avro_schemas)
    pairs = draw(st.lists(avro_values(schema), min_size=1, max_size=8))
    subject = f"avro-{uuid.uuid4().hex}"
    serialize = AvroSerializer(lab.client, json.dumps(schema), conf=in_subject(subject))
    values = serialized(serialize, [given for given, _ in pairs])
    return Sample(
        "avro",
        lab.prepared(AvroFormat(format="avro"), subject),
        values,
        [expected for _, expected in pairs],
        lambda row: avro_holds(schema, row),
        HEADER,
    )


def in_subject(subject: str) -> dict[str, Any]:
    return {"subject.name.strategy": lambda _context, _name: subject}


def serialized(serialize: Any, given: list[Any]) -> list[bytes]:
    return [serialize(value, SerializationContext("any", MessageField.VALUE)) for value in given]


# --- Protobuf -----------------------------------------------------------------------------------------------------

# Fields of these names hide from confluent-kafka's serializer what it calls on a message.
HIDING = {"SerializeToString": "serialize", "DESCRIPTOR": "descriptor"}


@st.composite
def protobuf_schemas(draw: Any) -> proto.Schema:
    drawn = draw(proto.schemas(most=6))
    fields = tuple(replace(spec, name=HIDING.get(spec.name, spec.name)) for spec in drawn.fields)
    return proto.compiled(drawn.syntax, fields, draw(st.sampled_from(["", "p", "a.b"])))


def protobuf_class(schema: proto.Schema, before: int) -> Any:
    """The message, in a file that has some others before it."""
    *imported, own = schema.compiled.files
    file = FileDescriptorProto.FromString(own)
    messages = list(file.message_type)
    del file.message_type[:]
    for i in range(before):
        other = file.message_type.add(name=f"Before{i}")
        other.field.add(
            name="a", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL, type=FieldDescriptorProto.TYPE_STRING
        )
    file.message_type.extend(messages)
    pool = DescriptorPool()
    for data in (*imported, file.SerializeToString()):
        pool.AddSerializedFile(data)
    return GetMessageClass(pool.FindMessageTypeByName(schema.compiled.message))


def protobuf_holds(spec: proto.Spec, value: Any) -> bool:
    one = replace(spec, how="optional")
    match spec.how:
        case "repeated":
            return isinstance(value, list) and all(protobuf_holds(one, v) for v in value)
        case "map":
            return isinstance(value, dict) and all(
                type(k) is str and v is not None and protobuf_holds(one, v) for k, v in value.items()
            )
    kind = spec.kind
    if value is None:
        return spec.how != "required" and not (spec.how == "plain" and (kind.what == "enum" or type(kind.what) is int))
    if kind.what == "message":
        return all(protobuf_holds(inner, value[inner.name]) for inner in kind.fields)
    if kind.what == "Any":
        return type(value["type_url"]) is str and type(value["value"]) is bytes
    kinds = {"Timestamp": datetime.datetime, "Duration": int, "Empty": bool}
    if isinstance(kind.what, str) and kind.what.removesuffix("Value") not in proto.WRAPPERS:
        return type(value) is kinds.get(kind.what, str)
    number = proto.WRAPPERS[kind.what.removesuffix("Value")] if isinstance(kind.what, str) else kind.what
    if number in proto.DECIMALS:
        return type(value) is Decimal and value == int(value) and 0 <= value < 2**64
    return type(value) is type(proto.ZERO.get(number, 0))


def protobuf_sample(draw: Any, lab: Lab) -> Sample:
    schema = draw(protobuf_schemas())
    before = draw(st.integers(0, 2))
    pairs = draw(st.lists(proto.records(schema.fields, schema.syntax), min_size=1, max_size=8))
    message_class, messages = protobuf_class(schema, before), []
    for put, _ in pairs:
        messages.append(message_class())
        proto.fill(messages[-1], put)
    subject = f"protobuf-{uuid.uuid4().hex}"
    values = serialized(ProtobufSerializer(message_class, lab.client, in_subject(subject)), messages)
    header = HEADER + (2 if before else 1)
    assert {value[HEADER:header] for value in values} == {b"\x02" + bytes([2 * before]) if before else b"\x00"}
    return Sample(
        "protobuf",
        lab.prepared(ProtobufFormat(format="protobuf", message=schema.compiled.message), subject),
        values,
        [row for _, row in pairs],
        lambda row: all(protobuf_holds(spec, row[spec.name]) for spec in schema.fields),
        header,
        parses=lambda body: can_parse(message_class, body),
        at=before,
    )


def can_parse(message_class: Any, body: bytes) -> bool:
    try:
        message = message_class.FromString(body)
    except DecodeError:
        return False
    return bool(message_class.__base__.IsInitialized(message))


# --- JSON Schema --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JsonType:
    schema: dict[str, Any]
    values: st.SearchStrategy[Pair]
    holds: Callable[[Any], bool]


json_scalars = st.sampled_from(
    [
        JsonType({"type": "integer"}, st.integers(-(2**63), 2**63 - 1).map(_twice), lambda v: type(v) is int),
        JsonType(
            {"type": "number"},
            st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)).map(
                lambda n: (n, float(n))
            ),
            lambda v: type(v) is float,
        ),
        JsonType({"type": "boolean"}, st.booleans().map(_twice), lambda v: type(v) is bool),
        JsonType({"type": "string"}, st.text(max_size=12).map(_twice), lambda v: type(v) is str),
        JsonType(
            {"type": "string", "format": "date-time"},
            aware.map(lambda t: (t.isoformat(), t)),
            lambda v: type(v) is datetime.datetime and v.tzinfo is not None,
        ),
        JsonType(
            {"type": "string", "format": "date"},
            st.dates().map(lambda d: (d.isoformat(), d)),
            lambda v: type(v) is datetime.date,
        ),
    ]
)


def json_array(item: JsonType) -> JsonType:
    return JsonType(
        {"type": "array", "items": item.schema},
        st.lists(item.values, max_size=3).map(_unzipped),
        lambda v: isinstance(v, list) and all(map(item.holds, v)),
    )


def json_map(value: JsonType) -> JsonType:
    return JsonType(
        {"type": "object", "additionalProperties": value.schema},
        st.dictionaries(st.text(max_size=4), value.values, max_size=3).map(_unzipped_dict),
        lambda v: isinstance(v, dict) and all(map(value.holds, v.values())),
    )


def json_nullable(inner: JsonType, way: str) -> JsonType:
    null = {"type": "null"}
    kind = inner.schema.get("type")
    schema: dict[str, Any] = {way: [null, inner.schema]}
    if way == "type":
        schema = {**inner.schema, "type": [kind, "null"]} if isinstance(kind, str) else inner.schema
    if inner.holds(None):
        return inner
    return JsonType(schema, st.one_of(st.just((None, None)), inner.values), lambda v: v is None or inner.holds(v))


def json_object(members: list[tuple[str, JsonType, bool]]) -> JsonType:
    required = {name: inner.values for name, inner, needed in members if needed}
    optional = {name: inner.values for name, inner, needed in members if not needed}
    every = dict.fromkeys([name for name, *_ in members])
    schema = {"type": "object", "properties": {name: inner.schema for name, inner, _ in members}}

    def pair(found: dict[str, Pair]) -> Pair:
        given, expected = _unzipped_dict(found)
        return given, {**every, **expected}

    return JsonType(
        {**schema, "required": list(required)} if required else schema,
        st.fixed_dictionaries(required, optional=optional).map(pair),
        lambda v: (
            isinstance(v, dict)
            and all(inner.holds(v[name]) or (v[name] is None and not needed) for name, inner, needed in members)
        ),
    )


def json_objects(of: st.SearchStrategy[JsonType], most: int) -> st.SearchStrategy[JsonType]:
    members = st.tuples(names, of, st.booleans())
    return st.lists(members, min_size=1, max_size=most, unique_by=lambda m: m[0].lower()).map(json_object)


json_types = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        inner.map(json_array),
        inner.map(json_map),
        json_objects(inner, 3),
        st.builds(json_nullable, inner, st.sampled_from(["type", "oneOf", "anyOf"])),
    ),
    max_leaves=5,
)


@st.composite
def json_documents(draw: Any) -> JsonType:
    """A document with a title, as confluent-kafka wants it, and some of its types by reference."""
    found = draw(json_objects(json_types, 6))
    properties, definitions = dict(found.schema["properties"]), {}
    for i, name in enumerate(properties):
        if draw(st.booleans()) and draw(st.booleans()):
            definitions[f"d{i}"] = properties[name]
            properties[name] = {"$ref": f"#/definitions/d{i}"}
    return replace(found, schema={**found.schema, "title": "R", "properties": properties, "definitions": definitions})


def json_sample(draw: Any, lab: Lab) -> Sample:
    document = draw(json_documents())
    pairs = draw(st.lists(document.values, min_size=1, max_size=8))
    subject = f"json-{uuid.uuid4().hex}"
    serialize = JSONSerializer(json.dumps(document.schema), lab.client, conf=in_subject(subject))
    values = serialized(serialize, [given for given, _ in pairs])
    return Sample(
        "json",
        lab.prepared(JsonFormat(format="json"), subject),
        values,
        [row for _, row in pairs],
        document.holds,
        HEADER,
    )


# --- CSV, text, bytes: no registry, and no serializer but Python's own ----------------------------------------------

CSV: dict[str, tuple[st.SearchStrategy[Pair], type]] = {
    "string": (st.text(min_size=1, max_size=10).map(_twice), str),
    "boolean": (st.booleans().map(lambda b: (str(b).lower(), b)), bool),
    "int": (st.integers(-(2**31), 2**31 - 1).map(_twice), int),
    "bigint": (st.integers(-(2**63), 2**63 - 1).map(_twice), int),
    "double": (st.floats(allow_nan=False, allow_infinity=False).map(_twice), float),
    "decimal(12,3)": (st.decimals(-999_999_999, 999_999_999, places=3).map(lambda d: (f"{d:f}", d)), Decimal),
    "date": (st.dates().map(lambda d: (d.isoformat(), d)), datetime.date),
    "timestamp": (aware.map(lambda t: (t.isoformat(), t)), datetime.datetime),
    "timestamp_ntz": (st.datetimes().map(lambda t: (t.isoformat(), t)), datetime.datetime),
    "binary": (st.binary(min_size=1, max_size=8).map(lambda b: (base64.b64encode(b).decode(), b)), bytes),
}


def csv_sample(draw: Any, lab: Lab) -> Sample:
    # A first field that is never empty: a line of nothing but white space is no record, whatever its delimiter.
    types = ["bigint", *draw(st.lists(st.sampled_from(list(CSV)), max_size=5))]
    needed = [True, *draw(st.lists(st.booleans(), min_size=len(types) - 1, max_size=len(types) - 1))]
    delimiter = draw(st.sampled_from(",;|\t"))
    columns = [
        CSV[type_][0] if need else st.one_of(st.just((None, None)), CSV[type_][0])
        for type_, need in zip(types, needed, strict=True)
    ]
    pairs = draw(st.lists(st.tuples(*columns).map(lambda p: _unzipped(list(p))), min_size=1, max_size=8))
    fields = {f"f{i}": {"type": t, "required": n} for i, (t, n) in enumerate(zip(types, needed, strict=True))}

    def holds(row: dict[str, Any]) -> bool:
        return all(
            (not need if value is None else type(value) is CSV[type_][1])
            for value, type_, need in zip(row.values(), types, needed, strict=True)
        )

    return Sample(
        "csv",
        lab.prepared(CsvFormat.model_validate({"format": "csv", "schema": {"fields": fields}, "delimiter": delimiter})),
        [csv_line(given, delimiter) for given, _ in pairs],
        [dict(zip(fields, expected, strict=True)) for _, expected in pairs],
        holds,
        parses=lambda value: is_line(value, len(types), delimiter),
    )


def csv_line(given: list[Any], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerow(given)
    return out.getvalue().removesuffix("\r\n").encode()


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_line(value: bytes, fields: int, delimiter: str) -> bool:
    """Whether Python finds one line of so many fields."""
    try:
        found = list(csv.reader(io.StringIO(value.decode(), newline=""), delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error):
        return False
    return len(found) == 1 and len(found[0]) == fields


def string_sample(draw: Any, lab: Lab) -> Sample:
    texts = draw(st.lists(st.text(max_size=20), min_size=1, max_size=8))
    return Sample(
        "string",
        lab.prepared(StringFormat(format="string")),
        [text.encode() for text in texts],
        [{"value": text} for text in texts],
        lambda row: type(row["value"]) is str,
        parses=is_text,
    )


def bytes_sample(draw: Any, lab: Lab) -> Sample:
    values = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
    rows_of = [{"value": value} for value in values]
    prepared = lab.prepared(BytesFormat(format="bytes"))
    return Sample("bytes", prepared, values, rows_of, lambda row: type(row["value"]) is bytes)


SAMPLES = {
    "avro": avro_sample,
    "protobuf": protobuf_sample,
    "json": json_sample,
    "csv": csv_sample,
    "string": string_sample,
    "bytes": bytes_sample,
}
FROM_REGISTRY = ["avro", "protobuf", "json"]


def decode(sample: Sample, values: list[bytes]) -> tuple[Decoded, list[dict[str, Any]]]:
    decoded = sample.prepared.make()(pa.array(values, pa.binary()))
    for member, column in zip(sample.prepared.struct.members, decoded.columns, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(member.type)
        assert len(column) == len(values)
    return decoded, rows(sample.prepared.struct, decoded)


def id_in(value: bytes) -> int | None:
    return int.from_bytes(value[1:HEADER], "big", signed=True) if len(value) >= HEADER and value[0] == 0 else None


@pytest.mark.parametrize("kind", list(SAMPLES))
@patient
@given(data=st.data())
def test_records_of_a_random_schema_come_out_of_kafka_as_they_went_in(lab: Lab, kind: str, data: Any) -> None:
    sample = SAMPLES[kind](data.draw, lab)
    values = lab.wire(kind).through(sample.values)
    decoded, found = decode(sample, values)
    assert decoded.failures == {}
    for row, expected in zip(found, sample.rows, strict=True):
        assert proto.same(row, expected), (row, expected)
        assert sample.holds(row)
    if kind in FROM_REGISTRY:
        assert decoded.schema_ids is not None
        assert decoded.schema_ids.to_pylist() == [id_in(value) for value in values]


# --- Damage -------------------------------------------------------------------------------------------------------

ANYWHERE = ["cut", "add", "change"]
HEADERS = ["magic", "unknown id", "id of another kind"]


def damaged(how: str, value: bytes, sample: Sample, chance: random.Random, others: dict[str, int]) -> bytes:
    match how:
        case "cut":
            return value[: chance.randrange(len(value))] if value else b"\xff"
        case "add":
            return value + chance.randbytes(chance.randint(1, 4))
        case "change":
            if len(value) <= sample.header:
                return value + b"\xff"
            at = chance.randrange(sample.header, len(value))
            return value[:at] + bytes([value[at] ^ chance.randint(1, 255)]) + value[at + 1 :]
        case "magic":
            return bytes([chance.randint(1, 255)]) + value[1:]
        case "unknown id":
            unknown = chance.choice([chance.randrange(10**7, 2**31), chance.randrange(2**31, 2**32), 0, 2**32 - 1])
            return b"\x00" + unknown.to_bytes(HEADER - 1, "big") + value[HEADER:]
        case "id of another kind":
            other = chance.choice([schema_id for kind, schema_id in others.items() if kind != sample.kind])
            return b"\x00" + other.to_bytes(HEADER - 1, "big") + value[HEADER:]
        case "indexes":
            return value[:HEADER] + wrong_indexes(sample.at, chance) + value[sample.header :]
    raise AssertionError(how)


def wrong_indexes(at: int, chance: random.Random) -> bytes:
    """Zig-zag numbers that do not lead to the message."""
    match chance.randrange(4):
        case 0:  # a negative count, and whatever
            return bytes([chance.randrange(1, 128, 2)]) + chance.randbytes(chance.randint(0, 4))
        case 1:  # another message of the file, or none
            return b"\x02" + bytes([2 * chance.choice([i for i in range(64) if i != at])])
        case 2:  # a message inside another
            return bytes([4, 2 * at, 2 * chance.randrange(64)])
    return chance.choice(
        [
            b"\x02\x01",  # a negative index
            b"\xfe\x01",  # a count of 127
            b"\xff" * 6,  # a number without end
            b"\x80\x80\x80\x80\x10",  # of more than 32 bits
            b"\x02\x80\x80\x80\x80\x10",
        ]
    )


def must_fail(how: str, value: bytes, original: bytes, sample: Sample) -> bool:
    """Whether nobody could take these bytes for a record; where they may be one, it is a record like any other."""
    if how in (*HEADERS, "indexes") or len(value) < sample.header:
        return True
    match sample.kind:
        case "avro":
            return how in ("cut", "add")
        case "json":
            return how == "cut" or (how == "add" and bool(value[len(original) :].strip(b" \t\r\n")))
    return not sample.parses(value[sample.header :])


EXPECTED = {
    "magic": {record.MALFORMED},
    "unknown id": {record.UNKNOWN_SCHEMA},
    "id of another kind": {record.INCOMPATIBLE_SCHEMA},
    "indexes": {record.MALFORMED, record.INCOMPATIBLE_SCHEMA},  # no message, or another one
    "cut": {record.MALFORMED, record.EMPTY_VALUE, record.MISSING_FIELD, record.WRONG_TYPE, record.OUT_OF_RANGE},
}


def ways_of(kind: str) -> list[str]:
    return ANYWHERE + (HEADERS if kind in FROM_REGISTRY else []) + (["indexes"] if kind == "protobuf" else [])


@pytest.mark.parametrize("kind", list(SAMPLES))
@patient
@given(data=st.data())
def test_damaged_records_fail_with_a_reason_or_are_rows_of_the_schema(lab: Lab, kind: str, data: Any) -> None:
    """All in one batch: the good ones must not care."""
    sample = SAMPLES[kind](data.draw, lab)
    chance = data.draw(st.randoms())
    batch: list[tuple[str, int, bytes]] = [("", i, value) for i, value in enumerate(sample.values)]
    for how in ways_of(kind):
        for i, value in enumerate(sample.values[:4]):
            batch.append((how, i, damaged(how, value, sample, chance, lab.of_kind)))
    chance.shuffle(batch)
    decoded, found = decode(sample, lab.wire(kind).through([value for *_, value in batch]))
    ids = decoded.schema_ids.to_pylist() if decoded.schema_ids is not None else [None] * len(batch)
    for at, (how, i, value) in enumerate(batch):
        failure = decoded.failures.get(at)
        if not how:
            assert failure is None
            assert proto.same(found[at], sample.rows[i])
        elif failure is None:
            assert not must_fail(how, value, sample.values[i], sample), (how, value)
            assert sample.holds(found[at]), (how, value, found[at])
            for member, column in zip(sample.prepared.struct.members, decoded.columns, strict=True):
                assert keeps_required(member.type, member.required, column[at])
        else:
            assert failure.error_class in EXPECTED.get(how, CLASSES), (how, value, failure)
            assert 0 < len(failure.reason) <= record.REASON_LIMIT
            assert not any(column[at].is_valid for column in decoded.columns)
        if kind in FROM_REGISTRY:
            named_id = id_in(value)
            assert ids[at] == named_id or (ids[at] is None and named_id is not None and named_id < 0)
    if kind == "bytes":
        assert decoded.failures == {}


# --- A pipeline ---------------------------------------------------------------------------------------------------

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": named("long", "timestamp-micros")},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
message Customer { string name = 1; }
message Order { int64 id = 1; Customer customer = 2; repeated string tags = 3; optional string note = 4; }
"""
JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "at"],
}
CSV_FIELDS = {
    "id": {"type": "bigint", "required": True},
    "total": "decimal(12,2)",
    "at": {"type": "timestamp", "required": True},
    "note": "string",
}
SENT = 200  # to each topic


@dataclass
class Order:
    """What each format is told, in its own words."""

    id: int
    total: Decimal
    at: datetime.datetime
    note: str | None
    tags: list[str]

    @staticmethod
    def any(number: int, chance: random.Random) -> Order:
        at = datetime.datetime(2026, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=chance.randrange(10**15))
        note = chance.choice([None, "n", 'a "quoted", one', "grüße\n😀"])
        tags = [chance.choice(["x", "", "ÿ"]) for _ in range(chance.randrange(4))]
        return Order(number, Decimal(chance.randrange(10**10)).scaleb(-2), at, note, tags)


@dataclass
class Topic:
    name: str
    sample: Sample  # its values are those that were sent, in their order
    fates: list[tuple[str, bytes]]  # how each was damaged, and what it was before


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [7])
def test_a_pipeline_over_topics_a_third_of_which_is_damaged_ends_and_accounts_for_all(
    payments: Payments, registry: LocalRegistry, lab: Lab, seed: int
) -> None:
    chance = random.Random(seed)
    shop = Shop(payments, registry)
    orders = [Order.any(i, chance) for i in range(SENT)]
    topics = {kind: topic_of(kind, shop, lab, orders) for kind in ("json", "avro", "protobuf", "csv", "string")}
    sent = {topic.name: send(topic, lab, chance) for topic in topics.values()}
    payments.run()

    dead = {letter.position: letter for letter in payments.dead()}
    assert len(dead) == len(payments.dead())
    for kind, topic in topics.items():
        found = rows_of_table(payments.directory / kind)
        table = {(r["_kafka"]["topic"], r["_kafka"]["partition"], r["_kafka"]["offset"]): r for r in found}
        letters = {at: letter for at, letter in dead.items() if letter.topic == topic.name}
        assert len(found) == len(table)
        assert not table.keys() & letters.keys()
        assert table.keys() | letters.keys() == set(sent[topic.name])
        assert len(letters) >= SENT // 10
        for at, number in sent[topic.name].items():
            how, original = topic.fates[number]
            value = topic.sample.values[number]
            if at in table:
                assert not (how and must_fail(how, value, original, topic.sample)), (kind, how, value)
                row = {name: found for name, found in table[at].items() if name != record.KAFKA}
                assert topic.sample.holds(row)
                assert how or proto.same(row, topic.sample.rows[number])
            else:
                letter = letters[at]
                assert how, (kind, value, letter)
                assert letter.error_class in EXPECTED.get(how, CLASSES)
                assert 0 < len(letter.reason) <= record.REASON_LIMIT
                assert (letter.stage, letter.value, letter.key) == (record.DECODE, value, str(number).encode())
                named_id = id_in(value) if kind in FROM_REGISTRY else None
                assert letter.schema_id == named_id or (named_id is not None and named_id < 0)
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == SENT * len(topics)
    assert report.dead == len(dead)
    assert sum(report.sinks.values()) == report.records - report.dead


def rows_of_table(path: Path) -> list[dict[str, Any]]:
    """A damaged time may be of a year that nanoseconds cannot tell: the table must be readable all the same."""
    return list(DeltaTable(str(path)).to_pyarrow_dataset().to_table().to_pylist())


def topic_of(kind: str, shop: Shop, lab: Lab, orders: list[Order]) -> Topic:
    how = {"csv": {"schema": {"fields": CSV_FIELDS}}, "protobuf": {"message": "shop.Order"}}.get(kind, {})
    name = shop.topic(kind, {"format": kind, **how})
    context = SerializationContext(name, MessageField.VALUE)
    serialize, rows_of, holds, more = serializer_of(kind, shop)
    values = [serialize(order, context) for order in orders]
    sample = Sample(kind, lab.prepared(BytesFormat(format="bytes")), values, list(map(rows_of, orders)), holds, **more)
    return Topic(name, sample, [("", value) for value in values])


def serializer_of(kind: str, shop: Shop) -> tuple[Any, Any, Any, dict[str, Any]]:
    """What makes a record of an order; the row it is; whether a row is one; and more about the records."""

    def has(**types: type | tuple[type, ...]) -> Callable[[dict[str, Any]], bool]:
        return lambda row: row.keys() == types.keys() and all(isinstance(row[k], t) for k, t in types.items())

    none, time = type(None), datetime.datetime
    match kind:
        case "avro":
            return (
                AvroSerializer(shop.client, json.dumps(AVRO), to_dict=lambda order, _: vars(order)),
                vars,
                has(id=int, total=Decimal, at=time, note=(str, none), tags=list),
                {"header": HEADER},
            )
        case "protobuf":
            from penstock.schema.protobuf import message

            order_class = GetMessageClass(message.from_text(PROTO, "shop.Order").descriptor())
            serialize = ProtobufSerializer(order_class, shop.client)

            def made(order: Order) -> Any:
                return order_class(id=order.id, customer={"name": str(order.total)}, tags=order.tags, note=order.note)

            return (
                lambda order, context: serialize(made(order), context),
                lambda o: {"id": o.id, "customer": {"name": str(o.total)}, "tags": o.tags, "note": o.note},
                has(id=int, customer=(dict, none), tags=list, note=(str, none)),
                {"header": HEADER + 2, "at": 1, "parses": lambda body: can_parse(order_class, body)},
            )
        case "json":
            return (
                JSONSerializer(
                    json.dumps(JSON_SCHEMA),
                    shop.client,
                    to_dict=lambda o, _: {"id": o.id, "at": o.at.isoformat(), "note": o.note, "tags": o.tags},
                ),
                lambda o: {"id": o.id, "at": o.at, "note": o.note, "tags": o.tags},
                has(id=int, at=time, note=(str, none), tags=(list, none)),
                {"header": HEADER},
            )
        case "csv":
            return (
                lambda o, _: csv_line([o.id, o.total, o.at.isoformat(), o.note]),
                lambda o: {"id": o.id, "total": o.total, "at": o.at, "note": o.note},
                has(id=int, total=(Decimal, none), at=time, note=(str, none)),
                {"parses": lambda value: is_line(value, len(CSV_FIELDS), ",")},
            )
    return (
        lambda o, _: f"{o.id} {o.note}".encode(),
        lambda o: {"value": f"{o.id} {o.note}"},
        has(value=str),
        {"parses": is_text},
    )


def send(topic: Topic, lab: Lab, chance: random.Random) -> dict[tuple[str, int, int], int]:
    """Damage a third and send all of them. Returns which one is where."""
    sample, found = topic.sample, {}
    for number, value in enumerate(sample.values):
        if chance.randrange(3) == 0:
            how = chance.choice(ways_of(sample.kind))
            topic.fates[number] = (how, value)
            sample.values[number] = damaged(how, value, sample, chance, lab.of_kind)

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        found[message.topic(), message.partition(), message.offset()] = int(message.key())

    producer = connection.producer(connection.connect_to(lab.servers))
    for number, value in enumerate(sample.values):
        producer.produce(topic.name, value, str(number), on_delivery=delivered)
    assert producer.flush(30) == 0
    assert len(found) == SENT
    return found
