"""Avro: random schemas, and values by confluent-kafka's serializer."""

from __future__ import annotations

import datetime
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry.avro import AvroSerializer
from hypothesis import strategies as st

from penstock.spec.formats import AvroFormat
from tests.samples.lab import (
    HEADER,
    Lab,
    Pair,
    Sample,
    aware,
    in_subject,
    named,
    serialized,
    twice,
    unzipped,
    unzipped_dict,
)

sys.path.append(str(Path(__file__).parent.parent / "unit" / "decode"))

import avro_strategies as avro

avro_scalars = st.one_of(
    avro.all_scalars,
    st.sampled_from([named("long", "local-timestamp-nanos"), named("fixed", "uuid") | {"name": "F", "size": 16}]),
)
avro_schemas = avro.records_of(avro.types_of(avro_scalars), most=6).map(avro.named)


def avro_values(schema: Any) -> st.SearchStrategy[Pair]:
    """As a Python program has them: dates, times and UUIDs as such and not as their numbers."""
    match avro.kind_of(schema):
        case "union":
            return st.one_of([_avro_branch(schema, branch) for branch in schema])
        case "array":
            return st.lists(avro_values(schema["items"]), max_size=4).map(unzipped)
        case "map":
            return st.dictionaries(st.text(max_size=4), avro_values(schema["values"]), max_size=3).map(unzipped_dict)
        case "record":
            return st.fixed_dictionaries({f["name"]: avro_values(f["type"]) for f in schema["fields"]}).map(
                unzipped_dict
            )
    match schema:
        case {"logicalType": "date"}:
            return st.dates().map(twice)
        case {"logicalType": "timestamp-millis" | "local-timestamp-millis" as logical}:
            times = aware if logical[0] == "t" else st.datetimes()
            return times.map(lambda t: twice(t.replace(microsecond=t.microsecond // 1000 * 1000)))
        case {"logicalType": "timestamp-micros"}:
            return aware.map(twice)
        case {"logicalType": "local-timestamp-micros"}:
            return st.datetimes().map(twice)
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
