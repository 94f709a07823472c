"""What one schema wrote is read as another the way fastavro reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
from arrow_rows import rows
from avro_strategies import (
    binaries,
    fitting,
    framed,
    kind_of,
    named,
    read_by_fastavro,
    records_of,
    registry,
    seen,
    text_of,
    types_of,
    written,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.decode.avro.decoder import AvroDecoder, struct_of

patient = settings(max_examples=80, suppress_health_check=list(HealthCheck))

symbols = st.lists(st.sampled_from("RGBXYZ"), min_size=1, max_size=4, unique=True)
scalars = st.one_of(
    st.sampled_from(["boolean", "int", "long", "float", "double", "string"]),
    symbols.map(lambda found: {"type": "enum", "name": "E", "symbols": found}),
    st.integers(1, 4).map(lambda size: {"type": "fixed", "name": "F", "size": size}),
)
WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
NEW_FIELDS: list[tuple[Any, Any]] = [
    ("long", 7),
    ("string", "né"),
    (["null", "string"], None),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "boolean"}, {"k": True}),
    ("double", 0.5),
]


def two_numbers(schema: Any) -> bool:
    """A union of an int and a float: fastavro reads the int as whatever comes first, Java and we as an int."""
    match kind_of(schema):
        case "union":
            numbers = [b for b in schema if kind_of(b) in ("int", "long", "float", "double")]
            return len(numbers) > 1 or any(map(two_numbers, schema))
        case "array" | "map":
            return two_numbers(schema.get("items", schema.get("values")))
        case "record":
            return any(two_numbers(f["type"]) for f in schema["fields"])
    return False


@st.composite
def evolved(draw: Any, schema: Any) -> Any:
    """A schema that can read what the given one wrote."""
    match kind_of(schema):
        case "record":
            return draw(_evolved_record(schema))
        case "array":
            return {**schema, "items": draw(evolved(schema["items"]))}
        case "map":
            return {**schema, "values": draw(evolved(schema["values"]))}
        case "union":
            return [draw(evolved(b)) if kind_of(b) in ("record", "enum", "array", "map") else b for b in schema]
        case "enum":
            fewer = draw(st.lists(st.sampled_from(schema["symbols"]), min_size=1, unique=True))
            return {**schema, "symbols": fewer, "default": draw(st.sampled_from(fewer))}
    wider = draw(st.sampled_from([schema, *WIDER.get(kind_of(schema), [])]))
    return draw(st.sampled_from([wider, ["null", wider], [wider, "null"]]))


@st.composite
def _evolved_record(draw: Any, schema: Any) -> Any:
    fields = []
    for field in draw(st.permutations(schema["fields"])):
        change = draw(st.sampled_from(["keep", "keep", "drop", "rename"]))
        if change == "drop":
            continue
        kind = draw(evolved(field["type"]))
        renamed = {"name": f"{field['name']}_new", "aliases": ["other", field["name"]]}
        fields.append({**(renamed if change == "rename" else {"name": field["name"]}), "type": kind})
    added = draw(st.lists(st.sampled_from(NEW_FIELDS), min_size=0 if fields else 1, max_size=2))
    fields += [{"name": f"added{i}", "type": t, "default": d} for i, (t, d) in enumerate(added)]
    return {**schema, "fields": fields}


@patient
@given(st.data())
def test_an_evolved_schema_reads_what_fastavro_reads_with_it(data: Any) -> None:
    writer = data.draw(records_of(types_of(scalars), most=5).filter(lambda s: not two_numbers(s)).map(named))
    readers = data.draw(st.lists(evolved(writer), min_size=1, max_size=2))
    values = [written(writer, value) for value, _ in data.draw(st.lists(fitting(writer), min_size=1, max_size=4))]
    for reader in readers:
        decoded = AvroDecoder(text_of(reader), registry({5: writer}))(binaries([framed(5, v) for v in values]))
        assert decoded.failures == {}
        found = rows(struct_of(text_of(reader)), decoded)
        expected = [seen(reader, read_by_fastavro(writer, value, reader)[0]) for value in values]
        assert found == [as_declared(reader, row) for row in expected]


def as_declared(schema: Any, value: Any) -> Any:
    """fastavro makes a Python float of a long that is read as a float; a column of floats has less room."""
    match kind_of(schema):
        case "union":
            [branch] = [b for b in schema if b != "null"] if len([b for b in schema if b != "null"]) == 1 else [None]
            return value if value is None or branch is None else as_declared(branch, value)
        case "array":
            return [as_declared(schema["items"], v) for v in value]
        case "map":
            return {k: as_declared(schema["values"], v) for k, v in value.items()}
        case "record":
            return {f["name"]: as_declared(f["type"], value[f["name"]]) for f in schema["fields"]}
        case "float":
            return float(np.float32(value))
    return value
