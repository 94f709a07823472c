"""Random Avro schemas, and random records of them, each with what decode must make of it.

The bytes are written by fastavro, so what is tested is not what we think the format is.
"""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal as Number
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from penstock.registry.client.schema import Lookup, RegisteredSchema

Json = Any
Pair = tuple[Any, Any]
"""What fastavro is told to write, and what decode must give."""

EPOCH = datetime.datetime(1970, 1, 1)
DAY_ONE, LAST_DAY = -719_162, 2_932_896
FIRST, LAST = DAY_ONE * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
BITS = {"int": 31, "long": 63}

plain = st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string"])
enums = st.lists(st.sampled_from("RGBXYZ"), min_size=1, max_size=4, unique=True).map(
    lambda symbols: {"type": "enum", "name": "E", "symbols": symbols}
)
fixeds = st.integers(0, 20).map(lambda size: {"type": "fixed", "name": "F", "size": size})
times = st.sampled_from(
    [
        {"type": kind, "logicalType": name}
        for kind, name in (
            ("int", "date"),
            ("long", "timestamp-millis"),
            ("long", "timestamp-micros"),
            ("long", "local-timestamp-millis"),
            ("long", "local-timestamp-micros"),
        )
    ]
)
numbers_of_time = st.sampled_from(
    [
        {"type": "int", "logicalType": "time-millis"},
        {"type": "long", "logicalType": "time-micros"},
        {"type": "long", "logicalType": "timestamp-nanos"},
        {"type": "string", "logicalType": "uuid"},
        {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
    ]
)


@st.composite
def decimals(draw: Any) -> Json:
    precision = draw(st.integers(1, 38))
    annotation = {"logicalType": "decimal", "precision": precision, "scale": draw(st.integers(0, precision))}
    if draw(st.booleans()):
        return {"type": "bytes", **annotation}
    least = next(n for n in range(1, 20) if 2 ** (8 * n - 1) >= 10**precision)
    return {"type": "fixed", "name": "F", "size": draw(st.integers(least, least + 4)), **annotation}


without_odd_times = st.one_of(plain, plain, enums, fixeds, times, decimals())
"""What fastavro reads as a value from whatever bytes we accept: no times of day, whose numbers it checks."""
all_scalars = st.one_of(without_odd_times, numbers_of_time)

field_names = st.sampled_from(["id", "a", "b", "Value", "_x", "tags", "f0", "member0", "type", "name", "items"])


def kind_of(schema: Json) -> str:
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else schema["type"]


def _look(schema: Json) -> str:
    """Types of the same look are the same type to Python, and a union of two of them could not be told apart."""
    kind = kind_of(schema)
    looks = {"long": "int", "double": "float", "enum": "string", "fixed": "bytes", "map": "record"}
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return looks.get(kind, kind) if logical is None else f"logical {'time' if 'time' in logical else logical}"


def _identity(schema: Json) -> str:
    """A union holds at most one type of each kind, whatever its logical type, but for those with names."""
    return _look(schema) if isinstance(schema, dict) and "name" in schema else kind_of(schema)


def records_of(types: st.SearchStrategy[Json], most: int = 4) -> st.SearchStrategy[Json]:
    fields = st.lists(st.tuples(field_names, types), min_size=1, max_size=most, unique_by=lambda f: f[0].lower())
    return fields.map(
        lambda found: {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in found]}
    )


def unions_of(types: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    members = types.filter(lambda t: kind_of(t) != "union")
    several = st.lists(members, min_size=1, max_size=3, unique_by=(_look, _identity))
    null = st.sampled_from([None, 0, -1])
    return st.builds(_with_null, several, null)


def _with_null(branches: list[Json], at: int | None) -> list[Json]:
    if at is None:
        return branches
    return ["null", *branches] if at == 0 else [*branches, "null"]


def types_of(scalars: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            inner.filter(lambda t: not _empty(t)).map(lambda t: {"type": "array", "items": t}),
            inner.map(lambda t: {"type": "map", "values": t}),
            records_of(inner),
            unions_of(inner),
        ),
        max_leaves=5,
    )


def _empty(schema: Json) -> bool:
    if kind_of(schema) == "record":
        return all(_empty(f["type"]) for f in schema["fields"])
    return kind_of(schema) == "fixed" and schema["size"] == 0


def schemas_of(scalars: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return records_of(types_of(scalars)).map(named)


def named(schema: Json) -> Json:
    """Every named type under a name of its own, as Avro wants it."""
    count = iter(range(1000))

    def rename(here: Json) -> Json:
        if isinstance(here, list):
            return [rename(b) for b in here]
        if not isinstance(here, dict):
            return here
        inner = {k: rename(v) for k, v in here.items() if k in ("items", "values")}
        if here["type"] == "record":
            inner["fields"] = [{**f, "type": rename(f["type"])} for f in here["fields"]]
        return {**here, **inner, **({"name": f"{here['name']}{next(count)}"} if "name" in here else {})}

    return rename(schema)


schemas = schemas_of(all_scalars)
oracle_schemas = schemas_of(without_odd_times)


def text_of(schema: Json) -> str:
    return json.dumps(schema)


def written(schema: Json, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text_of(schema))), value)
    return out.getvalue()


def framed(schema_id: int, datum: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + datum


def registry(schemas_by_id: dict[int, Json]) -> Lookup:
    found = {i: RegisteredSchema(i, "AVRO", text_of(schema)) for i, schema in schemas_by_id.items()}
    return found.get


def fitting(schema: Json) -> st.SearchStrategy[Pair]:
    """Values of a schema. A union's is written with the name of its branch, so that fastavro does not choose."""
    match kind_of(schema):
        case "union":
            return st.one_of([_in_branch(schema, i) for i in range(len(schema))])
        case "array":
            return st.lists(fitting(schema["items"]), max_size=4).map(
                lambda ps: ([w for w, _ in ps], [e for _, e in ps])
            )
        case "map":
            return st.dictionaries(st.text(max_size=4), fitting(schema["values"]), max_size=3).map(
                lambda d: ({k: w for k, (w, _) in d.items()}, {k: e for k, (_, e) in d.items()})
            )
        case "record":
            names = [f["name"] for f in schema["fields"]]
            return st.tuples(*(fitting(f["type"]) for f in schema["fields"])).map(
                lambda ps: (
                    {n: w for n, (w, _) in zip(names, ps, strict=True)},
                    {n: e for n, (_, e) in zip(names, ps, strict=True)},
                )
            )
    return _scalar(schema)


def _in_branch(union: list[Json], i: int) -> st.SearchStrategy[Pair]:
    branch = union[i]
    if branch == "null":
        return st.just((("null", None), None))
    name = branch["name"] if isinstance(branch, dict) and "name" in branch else kind_of(branch)
    return fitting(branch).map(lambda pair: ((name, pair[0]), in_view(union, branch, pair[1])))


def in_view(union: list[Json], branch: Json, value: Any) -> Any:
    """One of several types is a struct of members."""
    present = [b for b in union if b != "null"]
    if len(present) == 1:
        return value
    return {f"member{i}": value if b is branch else None for i, b in enumerate(present)}


def _scalar(schema: Json) -> st.SearchStrategy[Pair]:
    kind = kind_of(schema)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal":
        most = 10 ** schema["precision"] - 1
        return _same(st.integers(-most, most).map(lambda n: scaled(n, schema["scale"])))
    if logical == "date":
        return st.integers(DAY_ONE, LAST_DAY).map(lambda n: (n, EPOCH.date() + datetime.timedelta(n)))
    if logical is not None and "timestamp-mi" in logical:
        return _times(logical)
    match kind:
        case "boolean":
            return _same(st.booleans())
        case "int" | "long":
            most = 2 ** BITS[kind]
            return _same(st.one_of(st.integers(-most, most - 1), st.integers(-200, 200)))
        case "float":
            return _same(st.floats(allow_nan=False, width=32))
        case "double":
            return _same(st.floats(allow_nan=False))
        case "bytes":
            return _same(st.binary(max_size=20))
        case "string":
            return _same(st.text(max_size=20))
        case "enum":
            return _same(st.sampled_from(schema["symbols"]))
        case "fixed":
            return _same(st.binary(min_size=schema["size"], max_size=schema["size"]))
    raise AssertionError(schema)


def _same(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return strategy.map(lambda v: (v, v))


def scaled(number: int, scale: int) -> Number:
    return Number((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _times(logical: str) -> st.SearchStrategy[Pair]:
    per_unit = 1000 if logical.endswith("millis") else 1
    zone = None if logical.startswith("local") else datetime.UTC
    return st.integers(FIRST // per_unit, LAST // per_unit).map(
        lambda n: (n, (EPOCH + datetime.timedelta(microseconds=n * per_unit)).replace(tzinfo=zone))
    )


def read_by_fastavro(writer: Json, datum: bytes, reader: Json = None) -> tuple[Any, int]:
    """What fastavro makes of a datum, and how many bytes it took for it."""
    source = io.BytesIO(datum)
    parsed = [fastavro.parse_schema(json.loads(text_of(s))) for s in (writer, reader) if s is not None]
    return fastavro.schemaless_reader(source, *parsed, *([None] * (2 - len(parsed)))), source.tell()


def seen(schema: Json, value: Any) -> Any:
    """What fastavro read, in the form in which decode gives it."""
    match kind_of(schema):
        case "union":
            if value is None:
                return None
            branch = next(b for b in schema if b != "null" and _is_a(b, value))
            return in_view(schema, branch, seen(branch, value))
        case "array":
            return [seen(schema["items"], v) for v in value]
        case "map":
            return {k: seen(schema["values"], v) for k, v in value.items()}
        case "record":
            return {f["name"]: seen(f["type"], value[f["name"]]) for f in schema["fields"]}
    return value


def _is_a(schema: Json, value: Any) -> bool:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical is not None:
        types: dict[str, type] = {"decimal": Number, "date": datetime.date}
        return type(value) is types.get(logical, datetime.datetime)
    match kind_of(schema):
        case "int" | "long":
            return type(value) is int
        case "float" | "double":
            return type(value) is float
        case "string" | "enum":
            return type(value) is str
        case "bytes" | "fixed":
            return type(value) is bytes
        case "map" | "record":
            return type(value) is dict
    return type(value) is {"boolean": bool, "array": list}[kind_of(schema)]


def binaries(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())
