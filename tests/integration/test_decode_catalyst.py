"""The engine's decoder of real-time mode against the ordinary one: the same bytes, the same verdict, the same values.

It may refuse what the ordinary decoder reads, in the few ways that its docstring names; it may never read what that
refuses, and never read anything else than that reads.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest

from penstock.decode import catalyst
from penstock.decode.formats import Prepared
from penstock.decode.json import JsonDecoder
from penstock.decode.text import BytesDecoder, StringDecoder
from penstock.spec.fields import Schema
from penstock.spec.types import Member, Scalar, Struct

_FIELDS: dict[str, Any] = {
    "s": {"type": "string", "required": True},
    "b": "boolean",
    "t": "tinyint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "n": "decimal(10,2)",
    "w": "decimal(38,0)",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "ms": {"type": "timestamp", "epoch": "ms"},
    "sec": {"type": "timestamp_ntz", "epoch": "s"},
    "raw": "binary",
    "tags": "array<string>",
    "rows": "array<array<int>>",
    "map": "map<string,bigint>",
    "who": {"type": "struct", "fields": {"id": {"type": "int", "required": True}, "nick": "string", "na.me": "int"}},
    "odd name": "int",
}
_GOOD: dict[str, str] = {
    "s": '"x"', "b": "true", "t": "1", "i": "2", "l": "3", "f": "1.5", "d": "2.25", "n": '"12.30"', "w": "7",
    "day": '"2024-02-29"', "at": '"2024-01-02T03:04:05.678901Z"', "local": '"2024-01-02T03:04:05"',
    "ms": "1700000000123", "sec": "1700000000", "raw": '"aGk="', "tags": '["a",null,"b"]', "rows": "[[1,2],[],null]",
    "map": '{"k":1,"j":null}', "who": '{"id":1,"nick":"n","na.me":4}', "odd name": "5",
}  # fmt: skip
_NUMBERS = [
    "0",
    "1",
    "-1",
    "-0",
    "127",
    "128",
    "-128",
    "-129",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999",
    "1.0",
    "1.5",
    "0.1",
    "1e2",
    "1E2",
    "1e-2",
    "1.005",
    "12345678.99",
    "123456789.00",
    "99999999.99",
    "100000000",
    "0.000",
    "1.10",
    "1.001",
    "3.4028235e38",
    "3.4028236e38",
    "3.5e38",
    "1e308",
    "1.8e308",
    "1e400",
    "-1e400",
    "1e-400",
    "0.30000000000000004",
    "12345678901234567890123456789012345678",
    "123456789012345678901234567890123456789",
    "0.1234567890123456789012345678901234567890",
    "253402300799",
    "253402300800",
    "-62135596800",
    "-62135596801",
    "253402300799999",
    "253402300800000",
    "01",
    "1.",
    ".5",
    "+1",
    "-",
    "1e",
    "0x1",
    "NaN",
    "Infinity",
    "-Infinity",
    "9007199254740993",
    "1.7976931348623157e308",
]
_WORDS = ["", "x", "1", "1.5", " 1 ", "1_000", "+5", ".5", "5.", "1e2", "1E-2", "1e-3", "-0", "NaN", "Infinity", "true"]
_WORDS += [
    "12345678.99",
    "123456789.99",
    "1.239",
    "0" * 40 + "1",
    "1" + "0" * 40,
    "１",
    "٣",
    "007",
    "null",
    "é",
    "\\u00e9",
    "a\\nb",
]
_WORDS += ["2024-02-29", "2023-02-29", "2024-13-01", "0000-01-01", "0001-01-01", "9999-12-31", "2024-1-1", "20240101"]
_TIMES = [
    "2024-01-02T03:04:05",
    "2024-01-02 03:04:05",
    "2024-01-02t03:04:05",
    "2024-01-02_03:04:05",
    "2024-01-02T03:04",
]
_TIMES += [
    "2024-01-02T24:00:00",
    "2024-01-02T23:59:60",
    "2024-12-31T23:59:59",
    "0001-01-01T00:00:00",
    "2023-02-29T00:00:00",
]
_TIMES += [
    "9999-12-31T23:59:59",
    "0000-01-01T00:00:00",
    "10000-01-01T00:00:00",
    "1583-01-01T00:00:00",
    "1900-01-01T00:00:00",
]
_ENDS = [
    "",
    "Z",
    "z",
    "+00:00",
    "-00:00",
    "+05:30",
    "-0330",
    "+05",
    "+23:59",
    "+24:00",
    "-18:30",
    "+05:60",
    " Z",
    "\\n",
]
_PARTS = ["", ".1", ".123456", ".1234564", ".1234565", ".1234575", ".999999999", ".", ".12345678901234567890"]
_BASE64 = ["aGk=", "aGk", "aGl=", "aGkh", "a", "====", "aGk=\\n", "aG k=", "-_-_", "+/+/", "", "AA==", "AB=="]
_OTHERS = [
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[1]",
    '["a"]',
    "[null]",
    '{"id":1}',
    '{"id":null}',
    '{"nick":"a"}',
    "[[]]",
]
_OTHERS += [
    '{"id":1,"na.me":"x"}',
    '{"id":1,"nick":2}',
    '[[1],["2"]]',
    '{"k":"v"}',
    '{"k":9223372036854775808}',
    "[[null]]",
]
_OTHERS += [
    '"\\ud83d\\ude00"',
    '"\\ud83d"',
    '"\\ude00"',
    '"\\\\ud83d"',
    '"\\u0000"',
    '"\\x"',
    '"a\tb"',
    '"\x7f"',
    "tru",
    "'a'",
]
_OTHERS += ['"\\ud83d\\ud83d\\ude00"', '"\\/"', '"\\\\\\ud83d"', "// x", "1 2", "[1,]", '{"a":1,}', '"', "\ufeff1"]


def _values() -> list[str]:
    texts = [*_WORDS, *_BASE64, *(time + part + end for time in _TIMES for part in _PARTS[:3] for end in _ENDS[:6])]
    texts += [_TIMES[0] + part + end for part in _PARTS for end in _ENDS]
    return [*_NUMBERS, *_OTHERS, *(f'"{text}"' for text in texts)]


def _record(fields: dict[str, str]) -> bytes:
    return ("{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}").encode()


def _records() -> list[bytes | None]:
    dice = random.Random(11)
    good, values = _record(_GOOD), _values()
    found: list[bytes | None] = [
        None,
        b"",
        b" \n",
        good,
        good + b"\n",
        b"\t " + good,
        good + b" x",
        good + good,
        b"[" + good + b"]",
    ]
    found += [
        good[:-1],
        good[1:],
        good + b"}",
        b"{}",
        b"null",
        b"1",
        b'"a"',
        b"[]",
        b"{",
        b"\xff",
        b"\xef\xbb\xbf" + good,
    ]
    found += [good + b"," + good, good + b', "z":1}, {"a":2', good + b"], [1", b'{"s":"\xff"}', b'{"s":"\xed\xa0\x80"}']
    found += [
        b'{"s":"a","s":"b"}',
        b'{"s":"a","zz":{"q":[1,{"r":null}]}}',
        b'{"s":"a","zz":tru}',
        b'{"s":"a","zz":"\xff"}',
        '{"s":"a","größe":5}'.encode("latin-1"),
    ]
    found += [
        b'{"S":"a"}',
        b'{"s":null}',
        b'{"s":1}',
        b'{"s":"' + b"y" * 70_000 + b'"}',
        b'{"s":"a","zz":' + b"[" * 900 + b"]" * 900 + b"}",
    ]
    for name in _GOOD:  # every value in every field, alone in an otherwise good record
        found += [_record({"s": '"x"', name: value}) for value in values]
        found.append(_record({other: text for other, text in _GOOD.items() if other != name}))
    for _ in range(1500):  # some bytes of a good record changed, lost or doubled
        damaged = bytearray(_record(dict(dice.sample(list(_GOOD.items()), len(_GOOD)))))
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(damaged))
            match dice.randrange(3):
                case 0:
                    damaged[at] = dice.randrange(256)
                case 1:
                    del damaged[at]
                case _:
                    damaged[at:at] = damaged[at : at + dice.randint(1, 6)]
        found.append(bytes(damaged))
    return found


def _by_engine(spark: Any, how: Prepared, values: list[bytes | None]) -> pa.Table:
    rows = spark.createDataFrame(list(enumerate(values)), "i int, value binary")
    read = catalyst.decoded(how, rows, rows["value"], "_x")
    fields = [field.alias(f"f{n}") for n, field in enumerate(read.fields)]
    table = read.rows.select("i", read.error.alias("error"), *fields).toArrow()
    return table.sort_by("i")


def _stricter(value: bytes, failure: dict[str, str]) -> bool:
    """Whether the engine may refuse this although the other decoder reads it: what the docstring of `catalyst` says."""
    if failure["class"] == "malformed":
        try:
            json.loads(value, object_pairs_hook=_once)
        except (_Twice, RecursionError):
            return True
    decimals = any(f'"{name}":'.encode() in value for name in ("n", "w"))
    return decimals and (len(value) > 45 or bool(re.search(rb":-?[0-9.]+[eE]", value)))


class _Twice(Exception):
    """A name is written twice in one object."""


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in members}) < len(members):
        raise _Twice
    return dict(members)


def _plain(value: Any) -> Any:
    """Maps as dictionaries: the order of their entries says nothing."""
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return {name: _plain(each) for name, each in value}
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def test_the_engine_reads_json_as_the_ordinary_decoder_does_or_refuses_it(spark: Any) -> None:
    struct = Schema.model_validate({"fields": _FIELDS}).struct()
    values = _records()
    ours = JsonDecoder(struct)(pa.array(values, pa.binary()))
    table = _by_engine(spark, Prepared(struct, lambda: JsonDecoder(struct)), values)
    errors = table.column("error").to_pylist()
    mismatched: list[Any] = []
    columns = [table.column(f"f{n}").to_pylist() for n in range(len(struct.members))]
    expected = [column.to_pylist() for column in ours.columns]
    read = refused = same_class = 0
    for i, value in enumerate(values):
        error, failure = errors[i], ours.failures.get(i)
        if failure is not None and error is None:
            mismatched.append(("read what is refused", value, failure))
        elif failure is None and error is not None and not _stricter(value or b"", error):
            mismatched.append(("refused what is read", value, error))
        elif failure is None and error is None:
            read += 1
            for n, member in enumerate(struct.members):
                if _plain(columns[n][i]) != _plain(expected[n][i]):
                    mismatched.append(("another value", member.name, value, columns[n][i], expected[n][i]))
        elif failure is not None:
            refused += 1
            same_class += failure.error_class == error["class"]
            if any(column[i] is not None for column in columns):
                mismatched.append(("fields of a refused record", value))
    assert not mismatched, (len(mismatched), mismatched[:20])
    assert read > 1000 and refused > 3000  # the table has both in plenty
    assert same_class > 0.95 * refused


@pytest.mark.parametrize("make", [StringDecoder, BytesDecoder])
def test_text_and_bytes_are_read_alike(spark: Any, make: Any) -> None:
    kind = "string" if make is StringDecoder else "binary"
    values = [
        None,
        b"",
        b"a",
        b"\xff",
        "é😀".encode(),
        b"\xed\xa0\x80",
        b"\x00",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"a\xe2\x82",
    ]
    struct = Struct((Member("value", Scalar(kind), required=True),))
    table = _by_engine(spark, Prepared(struct, make), values)
    ours = make()(pa.array(values, pa.binary()))
    assert table.column("f0").to_pylist() == ours.columns[0].to_pylist()
    classes = [error and error["class"] for error in table.column("error").to_pylist()]
    assert classes == [ours.failures[i].error_class if i in ours.failures else None for i in range(len(values))]
