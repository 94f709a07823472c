"""Every value that a sink holds is, to another reader, the one that was decoded; else its record is a dead letter."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import random
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import psycopg
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from psycopg.rows import dict_row
from pyspark.sql import SparkSession
from tests.committed import committed
from tests.databases import Database
from tests.payments import Heard, Payments

from penstock.lifecycle.preview import plan

# Of the view, of the table, what goes in, what does not. By pairs of types.
_NEW_YEAR, _NOON = "2024-01-01T00:00:00", "2024-01-01 12:00:00"
INTO_POSTGRES: list[tuple[str, str, list[Any], list[Any]]] = [
    ("tinyint", "numeric(3)", [127, -128, 0], []),
    ("int", "smallint", [32767, -32768], [32768, -32769]),
    ("int", "real", [16777216, -16777218, 7], [16777217, 2147483647]),
    ("int", "double precision", [2147483647, -2147483648], []),
    ("int", "numeric(4,2)", [99, -99], [100]),
    ("int", "numeric(4,-2)", [1200, 0], [1250, 1]),
    ("int", "text", [5], []),
    ("bigint", "integer", [2147483647], [2147483648]),
    ("bigint", "real", [2**40, 16777216], [16777217, 2**62 + 1, 2**63 - 1]),
    ("bigint", "double precision", [2**53, 2**60, -(2**63)], [2**53 + 1, 2**63 - 1]),
    ("float", "double precision", [0.5, 0.1, 3.4e38], []),
    ("float", "numeric(6,2)", [0.5, 1.25], [1.125, 1e6]),
    ("float", "integer", [5.0], [5.5]),
    ("double", "real", [0.5, 16777216.0, -0.0], [0.1, 16777217.0, 1e300, 1e-300]),
    ("double", "numeric", [0.1, 1e300, 1e-300], []),
    ("double", "numeric(6,2)", [1.23, 9999.99, -0.5], [1.239, 10000.0]),
    ("double", "bigint", [5.0, 1e15], [5.5, 1e300]),
    ("double", "money", [1.25], [1.239]),
    ("decimal(12,3)", "numeric(6,2)", ["1.23", "1.230", "-9999.99"], ["1.239", "0.001", "10000"]),
    ("decimal(12,3)", "AMOUNT", ["1.23"], ["1.239"]),
    ("decimal(12,3)", "numeric(12,4)", ["1.239", "99999999.999"], ["999999999.999"]),
    ("decimal(12,3)", "integer", ["5.000", "-7"], ["5.5"]),
    ("decimal(12,3)", "double precision", ["1.239", "999999999.999"], []),
    ("decimal(12,3)", "real", ["1.239", "16777216.000"], ["16777217.000", "123456.789"]),
    ("decimal(38,0)", "double precision", [str(2**60), "1e20"], [str(2**53 + 1), "9" * 38]),
    ("timestamp", "date", [f"{_NEW_YEAR}Z", f"{_NEW_YEAR}-00:00"], [f"{_NEW_YEAR}+02:00", f"{_NEW_YEAR}.000001Z"]),
    ("timestamp", "timestamp", ["2024-01-01T01:02:03.123456+02:00"], []),
    ("timestamp", "timestamptz(3)", [f"{_NEW_YEAR}.123Z"], [f"{_NEW_YEAR}.1234Z", f"{_NEW_YEAR}.9999Z"]),
    ("timestamp", "timestamp(0)", ["2024-01-01T01:02:03Z"], ["2024-01-01T01:02:03.5Z"]),
    ("timestamp_ntz", "date", ["2024-01-01T00:00:00"], ["2024-01-01T12:00:00"]),
    ("timestamp_ntz", "timestamptz", ["2024-01-01T12:00:00.000001"], []),
    ("date", "timestamp(0)", ["2024-01-01"], []),
    ("string", "varchar(3)", ["abc", "ab ", ""], ["abc ", "abcd"]),
    ("string", "SHORT", ["abcde"], ["abcde "]),
    ("string", "char(3)", ["abc", "ab", "ab "], ["abc ", "abcd"]),
    ("string", "name", ["n" * 63], ["n" * 64]),
    ("string", '"char"', ["c"], ["cd"]),
    ("string", "numeric(6,2)", ["1.23", "1.2300"], ["1.239", "x"]),
    ("string", "real", ["0.1", "16777216"], ["16777217"]),
    ("string", "date", ["2024-01-01", "2024-01-01T00:00:00Z"], [_NOON, f"{_NEW_YEAR}+02:00", "today", "Tomorrow"]),
    ("string", "timestamp", [f"{_NOON}Z", f"{_NOON}.123456"], [f"{_NOON}+02:00", f"{_NOON}.1234567", "now"]),
    ("string", "timestamptz", ["2024-01-01T10:00:00+02:00"], ["2024-01-01 10:00:00.1234567Z"]),
    ("string", "time", ["10:00:00", "10:00:00.5"], ["10:00:00+02", "2024-01-01 10:00:00", "now"]),
    ("string", "interval(0)", ["1 day 00:00:02"], ["1 day 00:00:02.5"]),
    ("string", "boolean", ["true"], ["maybe"]),
    ("boolean", "text", [True, False], []),
    ("array<decimal(12,3)>", "numeric(6,2)[]", [["1.23", None, "0.100"], []], [["1.23", "1.239"]]),
    ("array<double>", "real[]", [[0.5, None]], [[0.5, 0.1]]),
    ("array<bigint>", "double precision[]", [[2**60, None]], [[1, 2**53 + 1]]),
    ("array<float>", "double precision[]", [[0.1, None]], []),
    ("array<decimal(12,3)>", "AMOUNT[]", [["1.23"]], [["1.239"]]),
    ("array<string>", "varchar(3)[]", [["abc", None]], [["abc", "abc "]]),
    ("array<timestamp>", "date[]", [["2024-01-01T00:00:00Z", None]], [["2024-01-01T00:00:01Z"]]),
]  # fmt: skip
# Of these every value is kept, and `plan` has nothing to say.
_ALIKE = {0, 3, 6, 10, 14, 22, 31, 45, 49}
_AS = {"numeric": Decimal, "real": float, "boolean": json.loads, "time": dt.time.fromisoformat}


def decoded(view: str, there: str, sent: Any) -> Any:
    """What the value means, which is what a reader is to find."""
    if sent is None or isinstance(sent, list):
        return sent and [decoded(view.removeprefix("array<")[:-1], there.removesuffix("[]"), each) for each in sent]
    if "date" in (view, there) or view.startswith("timestamp") or there.startswith("timestamp"):
        return instant(sent)
    if view == "float":
        return float(np.float32(sent))
    if view == "double" and there == "real":
        return Decimal(sent)
    if view.startswith("decimal") or view in ("double", "int", "bigint", "tinyint"):
        return str(sent) if there == "text" else Decimal(str(sent))
    if there == "char(3)":
        return sent.ljust(3)
    if there == "interval(0)":
        return dt.timedelta(days=1, seconds=2)
    return _AS.get(there.partition("(")[0], str)(sent) if view == "string" else json.dumps(sent)


def read(view: str, there: str, found: Any) -> Any:
    """What a client found, as `decoded` says it."""
    if found is None or isinstance(found, list):
        return found and [read(view.removeprefix("array<")[:-1], there.removesuffix("[]"), each) for each in found]
    if there == "AMOUNT[]":  # psycopg has no arrays of domains
        return [Decimal(found.strip("{}"))]
    if isinstance(found, dt.date):
        return instant(found)
    if there == "money":
        return Decimal(found.strip("$"))
    if view == "float":
        return float(np.float32(found))
    if isinstance(found, float) and view != "string":  # a client reads the shortest digits of a float
        exact = float(np.float32(found)) if there == "real" else found
        return Decimal(exact if view == "double" or exact.is_integer() else str(found))
    number = view != "string" and isinstance(found, int | float | Decimal) and not isinstance(found, bool)
    return Decimal(str(found)) if number else found


def instant(value: Any) -> dt.datetime:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


EVERY_TYPE: dict[str, Any] = {
    "id": "int",
    "truth": "boolean",
    "long": "long",
    "single": "float",
    "twice": "double",
    "text": "string",
    "raw": "bytes",
    "sum": logical("bytes", "decimal", precision=20, scale=6),
    "day": logical("int", "date"),
    "at": logical("long", "timestamp-micros"),
    "there": logical("long", "local-timestamp-micros"),
    "many": {"type": "array", "items": "double"},
    "bag": {"type": "map", "values": "long"},
}
_COARSE = {**EVERY_TYPE, "at": logical("long", "timestamp-millis")}  # finer times do not go in
_FIRST, _LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
_EPOCH = dt.datetime(1970, 1, 1)
_TEXTS = ["", " ", "NULL", "\\N", 'q"uo\\te', "a\r\nb ", "\u00fc\U0001f600\u202e", "nul\0", "{1,NULL}", "\t", "\ufeffx"]


def generated(records: int) -> list[dict[str, Any]]:
    """The bounds of every type, and what lies at random between them."""
    chance = random.Random(20)

    def single() -> float:
        return struct.unpack("f", chance.randbytes(4))[0]

    def double() -> float:
        return struct.unpack("d", chance.randbytes(8))[0]

    def moment() -> dt.datetime:
        return _FIRST + dt.timedelta(microseconds=chance.randint(0, (_LAST - _FIRST) // dt.timedelta(microseconds=1)))

    odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, 5e-324, 1e308]
    singles = [*odd[:5], struct.unpack("f", b"\xff\xff\x7f\x7f")[0], struct.unpack("f", b"\1\0\0\0")[0]]
    moments = [_FIRST, _LAST, _EPOCH, _EPOCH - dt.timedelta(microseconds=1), dt.datetime(1582, 10, 10, 1, 2, 3)]
    bounds: dict[str, list[Any]] = {
        "long": [0, 2**63 - 1, -(2**63), 2**53 + 1],
        "single": singles,
        "twice": odd,
        "text": _TEXTS,
        "raw": [b"", b"\0", b"\\x00", b"\xff\xfe"],
        "sum": [Decimal(text) for text in ("0.000000", "-0.000001", "99999999999999.999999", "1.500000")],
        "moment": moments,
    }

    def one(kind: str, number: int, otherwise: Callable[[], Any]) -> Any:
        return bounds[kind][number] if number < len(bounds[kind]) else otherwise()

    made = []
    for n in range(records):
        at, there = one("moment", n, moment), one("moment", n, moment)
        made.append(
            {
                "id": n,
                "truth": n % 2 == 0,
                "long": one("long", n, lambda: chance.randint(-(2**63), 2**63 - 1)),
                "single": one("single", n, single),
                "twice": one("twice", n, double),
                "text": one("text", n, lambda: chance.choice(_TEXTS[:4]) * 3 + str(chance.random())),
                "raw": one("raw", n, lambda: chance.randbytes(chance.randint(0, 9))),
                "sum": one("sum", n, lambda: Decimal(chance.randint(-(10**20) + 1, 10**20 - 1)).scaleb(-6)),
                "day": at.date(),
                "at": (at.replace(microsecond=at.microsecond // 1000 * 1000) if n % 3 else at).replace(tzinfo=dt.UTC),
                "there": there,
                "many": [double() for _ in range(n % 4)],
                "bag": {f"k{i}": chance.randint(-(2**63), 2**63 - 1) for i in range(n % 3)},
            }
        )
    return made


def bits(value: Any, of: str) -> Any:
    """Of a float, that two of them are one: a zero has a sign, and what is no number is equal to itself."""
    if isinstance(value, list) and of == "many":
        return [bits(each, of) for each in value]
    if isinstance(value, list):  # a map of Arrow's
        return dict(value)
    if of not in ("single", "twice", "many"):
        return value
    number = float(value)  # JSON has no number that is none: text
    kind = "f" if of == "single" else "d"
    return "nan" if math.isnan(number) else struct.pack(kind, number)


def told(rows: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """By id, each row once."""
    found = [{name: bits(row[name], name) for name in EVERY_TYPE} for row in rows]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def test_what_every_sink_holds_is_what_was_decoded(payments: Payments, db: Database) -> None:
    def schema(name: str, types: dict[str, Any]) -> dict[str, Any]:
        fields = [{"name": field, "type": kind} for field, kind in types.items()]
        of = {"type": "record", "name": "Row", "fields": fields}
        (payments.directory / f"{name}.avsc").write_text(json.dumps(of))
        return of

    whole, coarse = schema("whole", EVERY_TYPE), schema("coarse", _COARSE)
    avro = {"format": "avro", "wire": "raw", "schema": "whole.avsc"}
    columns = {"columns": list(EVERY_TYPE)}
    for name in ("avro", "coarse", "json"):
        payments.create(f"{payments.topic}-{name}")
    payments.spec["source"]["topics"] = {payments.topic: {"view": "rows", "value": avro}}
    payments.spec["contract"], payments.spec["transform"] = {}, []
    iceberg = {"catalog": {"type": "hadoop", "warehouse": "warehouse"}}
    kinds: dict[str, Any] = {
        "delta": {"delta": {"path": "delta"}},
        "newest": {"delta": {"path": "newest", "upsert": {"key": ["id"]}}},
        "parquet": {"parquet": {"path": "parquet"}},
        "iceberg": {"iceberg": {"table": "n.rows", **iceberg}},
        "postgres": {"postgres": {"url": db.url, "table": f"{db.schema}.rows"}},
        "avro": {"kafka": {"topic": f"{payments.topic}-avro", "value": {**avro, **columns}}},
        "coarse": {
            "kafka": {"topic": f"{payments.topic}-coarse", "value": {**avro, **columns, "schema": "coarse.avsc"}}
        },
        "json": {"kafka": {"topic": f"{payments.topic}-json", "value": {"format": "json", **columns}}},
    }
    payments.spec["sinks"] = {name: {"from": "rows", **kind} for name, kind in kinds.items()}
    sent = generated(200)

    def datum(row: dict[str, Any]) -> bytes:
        fastavro.schemaless_writer(out := io.BytesIO(), whole, row)
        return out.getvalue()

    payments.send(*map(datum, sent))
    payments.run()

    def from_json(value: bytes) -> dict[str, Any]:
        row = json.loads(value, parse_float=Decimal)
        times = {name: dt.datetime.fromisoformat(row[name]) for name in ("at", "there")}
        day = dt.date.fromisoformat(row["day"])
        return {**row, **times, "day": day, "raw": base64.b64decode(row["raw"]), "sum": Decimal(row["sum"])}

    def records(name: str) -> list[bytes]:
        return [each.value or b"" for each in committed(payments.bootstrap, f"{payments.topic}-{name}")]

    def datums(name: str, of: dict[str, Any]) -> list[Any]:
        return [fastavro.schemaless_reader(io.BytesIO(value), of, None) for value in records(name)]

    with psycopg.connect(db.url, row_factory=dict_row) as connection:
        connection.execute("set timezone = 'UTC'")
        in_postgres = connection.execute(f"select * from {db.schema}.rows").fetchall()
    files = sorted((payments.directory / "warehouse").rglob("data/**/*.parquet"))
    seen = {
        "delta": DeltaTable(str(payments.directory / "delta")).to_pyarrow_table().to_pylist(),
        "newest": DeltaTable(str(payments.directory / "newest")).to_pyarrow_table().to_pylist(),
        "parquet": ds.dataset(payments.directory / "parquet", partitioning="hive").to_table().to_pylist(),
        "iceberg": ds.dataset(files, format="parquet").to_table().to_pylist(),
        "postgres": in_postgres,
        "avro": datums("avro", whole),
        "coarse": datums("coarse", coarse),
        "json": map(from_json, records("json")),
    }
    dead = [
        (name, fastavro.schemaless_reader(io.BytesIO(letter.value or b""), whole, None)["id"])
        for letter in payments.dead()
        for name in (letter.sinks or "").split(",")
    ]
    by_id = {name: {n for sink, n in dead if sink == name} for name in seen}
    expected = {
        "postgres": {row["id"] for row in sent if "\0" in row["text"]},
        "coarse": {row["id"] for row in sent if row["at"].microsecond % 1000},
    }
    wanted = told(sent)
    for name, rows in seen.items():
        assert by_id[name] == expected.get(name, set()), name
        held = told(rows)
        assert held.keys() == wanted.keys() - by_id[name], name
        for n, row in held.items():
            assert row == wanted[n], (name, n)
    assert payments.verify().complete


@pytest.mark.parametrize("engine", [False, True], ids=["one-pass", "engine"])
def test_value_goes_into_an_existing_postgresql_table_as_it_is_or_dies(
    payments: Payments, db: Database, spark: SparkSession, engine: bool
) -> None:
    columns = ", ".join(f"c{i} {there}" for i, (_, there, _, _) in enumerate(INTO_POSTGRES))
    made = f"create table SCHEMA.kept (id int, {columns})"
    db.run("create domain SCHEMA.amounts as numeric(6,2); create domain SCHEMA.amount as SCHEMA.amounts")
    db.run("create domain SCHEMA.short as varchar(5)")
    db.run(made.replace("AMOUNT", "SCHEMA.amount").replace("SHORT", "SCHEMA.short"))
    fields = {"id": "int", **{f"c{i}": view for i, (view, *_) in enumerate(INTO_POSTGRES)}}
    payments.spec["source"]["topics"] = {
        payments.topic: {"view": "values", "value": {"format": "json", "schema": {"fields": fields}}}
    }
    payments.spec["contract"], payments.spec["rate"]["max_offsets"] = {}, 10_000
    payments.spec["transform"] = [{"view": "again", "sql": "select * from values"}] if engine else []
    table = {"url": db.url, "table": f"{db.schema}.kept"}
    payments.spec["sinks"] = {"db": {"from": "again" if engine else "values", "postgres": table}}
    sent = [(i, value) for i, (*_, kept, dies) in enumerate(INTO_POSTGRES) for value in (*kept, *dies)]
    fates = [fate for (*_, kept, dies) in INTO_POSTGRES for fate in (*[True] * len(kept), *[False] * len(dies))]
    payments.send(*(json.dumps({"id": n, f"c{i}": value}).encode() for n, (i, value) in enumerate(sent)))

    planned = plan(payments.pipeline)
    assert planned.problems == []
    said = [text for text in planned.warnings if text.startswith("sink 'db': column 'c")]
    named = {int(text.split("'")[3][1:]): text for text in said}
    assert named.keys() == set(range(len(INTO_POSTGRES))) - _ALIKE
    payments.run(accept=["dead-letter-budget"], watch=(heard := Heard()))
    assert [text for text in heard.warnings if text in said] == said

    rows = {row[0]: row[1:] for row in db.run("select * from SCHEMA.kept")}
    dead = {json.loads(letter.value or b"")["id"]: letter for letter in payments.dead()}
    assert sorted([*rows, *dead]) == list(range(len(sent)))
    for n, ((i, value), kept) in enumerate(zip(sent, fates, strict=True)):
        view, there, _, _ = INTO_POSTGRES[i]
        assert (n in rows) == kept, (view, there, value, dead[n].reason if n in dead else rows[n][i])
        if kept:
            assert read(view, there, rows[n][i]) == decoded(view, there, value), (view, there)
        else:
            assert (dead[n].stage, dead[n].sinks) == ("sink", "db")
            assert f"c{i}" in dead[n].reason or "out of range" in dead[n].reason or "overflow" in dead[n].reason
    first = next(dead[n] for n, (_, value) in enumerate(sent) if value == "1.239" and n in dead)
    assert first.error_class == "out-of-range"
    assert first.reason == "sink 'db': column 'c18': 1.239 cannot be kept exactly as numeric(6,2)"
    assert payments.verify().complete
