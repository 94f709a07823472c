"""Our own JSON says what Spark's `to_json` says: a pipeline may use either, and its readers must not see which."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.decode.arrow.columns import arrow_type
from penstock.encode.json import JsonEncoder
from penstock.spec.types import Member, Struct, parse, quoted

OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
EDGE_TIMES = [
    datetime.datetime.min,
    datetime.datetime(1582, 10, 10, 1, 2, 3),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(2024, 2, 29, 12, 0, 0, 1),
    datetime.datetime.max,
]
TEXTS = ["", "plain", '/"\\\b\t\n\f\r\0\x1f\x7f', "\\u0041", "é\u2028\ufeff\U0001f600", "".join(map(chr, range(0x20)))]
EDGES: dict[str, list[Any]] = {
    "string": TEXTS,
    "boolean": [True, False],
    "tinyint": [-(2**7), 0, 2**7 - 1],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), -1, 2**63 - 1],
    "decimal(5,2)": [Number("1.50"), Number("0.00"), Number("-999.99")],
    "decimal(38,0)": [Number(10**38 - 1), Number(-(10**38) + 1), Number(0)],
    "decimal(38,38)": [
        Number("0E-38"),
        Number("1E-38"),
        Number("-0." + "9" * 38),
        Number("0.5").quantize(Number("1E-9")),
    ],
    "decimal(20,10)": [Number("0E-10"), Number("0.0000001"), Number("0.000001"), Number("-1234567890.5")],
    "date": [time.date() for time in EDGE_TIMES],
    "timestamp": [time.replace(tzinfo=datetime.UTC) for time in EDGE_TIMES],
    "timestamp_ntz": EDGE_TIMES,
    "binary": [b"", b"\0", b"\0\xff", b"\0\xff\x10", bytes(range(256))],
    "array<string>": [[], [None], ["a", None, '"']],
    "array<array<int>>": [[], [None, [], [None, 1]]],
    "map<string,decimal(4,1)>": [[], [("a", None), ('q"\n', Number("1.5"))]],
    "struct<a:int,`b c`:struct<d:timestamp,e:array<date>>>": [
        {"a": None, "b c": None},
        {"a": None, "b c": {"d": None, "e": []}},
        {"a": 1, "b c": {"d": EDGE_TIMES[0].replace(tzinfo=datetime.UTC), "e": [None, datetime.date(2000, 1, 1)]}},
    ],
    "array<struct<x:string>>": [[{"x": None}, None, {"x": "y"}]],
}
FLOATS = [0.0, -0.0, 1.0, 0.1, -2.5, 1e-3, 1e7, 123456.789, 2.0**40, 1e20, float("nan"), float("inf"), float("-inf")]
FLOAT_EDGES = {
    "float": [*FLOATS, 3.4028234663852886e38, 1.401298464324817e-45],
    "double": [*FLOATS, 1.7976931348623157e308, 5e-324, 2e23, 9007199254740993.0],
}


def both(spark: SparkSession, edges: dict[str, list[Any]]) -> tuple[list[str], list[str]]:
    """The rows of a table with a column for each type, by Spark and by us, with nulls in between."""
    count = max(map(len, edges.values())) + len(edges) + 2
    names = [f"{i} {declared}" for i, declared in enumerate(edges)]
    columns = []
    for i, (declared, values) in enumerate(edges.items()):
        padded = [None] * (i + 1) + values
        columns.append(pa.array(padded + [None] * (count - len(padded)), arrow_type(parse(declared))))
    struct = Struct(tuple(Member(name, parse(declared)) for name, declared in zip(names, edges, strict=True)))
    table = pa.table(columns, names=names)
    made = F.to_json(F.struct(*(F.col(quoted(name)) for name in names)), OPTIONS)
    by_spark = [row[0] for row in spark.createDataFrame(table, struct.columns()).coalesce(1).select(made).collect()]
    encoded = JsonEncoder(struct)(table.to_batches()[0])
    assert encoded.failures == {}
    return by_spark, [value.decode() for value in encoded.values.to_pylist()]


def test_every_type_but_floats_is_written_to_the_byte_as_spark_does(spark: SparkSession) -> None:
    by_spark, ours = both(spark, EDGES)
    assert ours == by_spark
    assert ours[0] == "{}"


def test_floats_are_the_numbers_that_spark_writes(spark: SparkSession) -> None:
    """As the double or the float they are: Java may write it in other digits (4.9E-324 for 5e-324)."""
    by_spark, ours = both(spark, FLOAT_EDGES)

    def read(text: str) -> dict[str, Any]:
        found = json.loads(text)
        single = next((name for name in found if name.endswith("float")), None)
        if single is not None and isinstance(found[single], float):
            found[single] = pa.scalar(found[single], pa.float32()).as_py()
        return {name: (type(value), value) for name, value in found.items()}

    assert [read(text) for text in ours] == [read(text) for text in by_spark]
