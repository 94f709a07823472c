"""Which Spark types an Avro schema has, and which schemas can be no view."""

from __future__ import annotations

from typing import Any

import pytest
from avro_strategies import text_of

from penstock.decode.avro.decoder import AvroDecoder, AvroSchemaMistake, struct_of
from penstock.spec.types import MOST_DEPTH


def of(kind: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, **more}]}


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, **more: Any) -> Any:
    return {"type": "fixed", "name": "F", "size": size, **more}


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "string"}, "string"),
        ({"type": {"type": "array", "items": "string"}}, "array<string>"),
        (fixed(3), "binary"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "map", "values": ["null", "int"]}, "map<string,int>"),
        (logical("bytes", "decimal", precision=9, scale=2), "decimal(9,2)"),
        (logical("bytes", "decimal", precision=9), "decimal(9,0)"),
        (fixed(4, logicalType="decimal", precision=9, scale=9), "decimal(9,9)"),
        (fixed(4, logicalType="decimal", precision=10), "binary"),  # more digits than 4 bytes hold: no decimal
        (logical("bytes", "decimal", precision=2, scale=3), "binary"),
        (logical("bytes", "decimal"), "binary"),
        (logical("int", "date"), "date"),
        (logical("long", "date"), "bigint"),  # a date is an int
        (logical("int", "time-millis"), "int"),
        (logical("long", "time-micros"), "bigint"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "timestamp-nanos"), "bigint"),
        (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("string", "uuid"), "string"),
        (logical("string", "of-our-own"), "string"),
        (fixed(12, logicalType="duration"), "binary"),
        (["string"], "string"),
        (["null", "string"], "string"),
        (["int", "long"], "bigint"),
        (["null", "double", "float"], "double"),
        (["int", "null", "string"], "struct<`member0`:int,`member1`:string>"),
        (["int", "float"], "struct<`member0`:int,`member1`:float>"),
        ([logical("int", "date"), "long"], "struct<`member0`:date,`member1`:bigint>"),
        ({**of("int"), "name": "Inner"}, "struct<`x`:int>"),
    ],
)
def test_each_avro_type_has_its_spark_type(kind: Any, ddl: str) -> None:
    assert struct_of(text_of(of(kind))).members[0].type.ddl() == ddl


@pytest.mark.parametrize(
    ("kind", "required"), [("int", True), (["int", "null"], False), (["int", "string"], True), (["int"], True)]
)
def test_a_field_is_required_unless_it_may_be_null(kind: Any, required: bool) -> None:
    assert struct_of(text_of(of(kind))).members[0].required is required


def nested(depth: int) -> Any:
    return "int" if depth == 0 else {"type": "array", "items": nested(depth - 1)}


def twice_on_each_level(levels: int) -> Any:
    kind: Any = {**of("int"), "name": "L0"}
    for i in range(1, levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{i - 1}"}]
        kind = {"type": "record", "name": f"L{i}", "fields": fields}
    return kind


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("string", "must be a record, not string"),
        (of("null"), "R.x: only null"),
        (of(["null"]), "R.x: only null"),
        (of(["null", "R"]), "R.x: R contains itself"),
        (of({"type": "array", "items": {"type": "map", "values": "R"}}), "R.x[][]: R contains itself"),
        (of({"type": "record", "name": "Empty", "fields": []}), "R.x: a record without fields"),
        (of({"type": "array", "items": fixed(0)}), "R.x: an array whose items take no bytes"),
        (of(logical("bytes", "decimal", precision=39)), "R.x: decimal(39,0) has more than 38 digits"),
        (of("strin"), "R.x: there is no type 'strin'"),
        (of(["int", "int"]), "R.x: the types of a union"),
        (of([["int"], "null"]), "R.x: a union directly inside a union"),
        (of({"type": "array"}), "R.x: 'items' is missing"),
        (of({"items": "int"}), "R.x: neither a type's name nor an object with 'type'"),
        (of(17), "R.x: neither a type's name"),
        (of(fixed(-1)), "R.x: the size of a fixed is -1"),
        (of({"type": "enum", "name": "E", "symbols": ["A", "A"]}), "R.x: the symbols of an enum"),
        (of({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}), 'R.x: the default "B" is none'),
        (of({**of("int"), "name": "R"}), "R.x: the name 'R' is taken"),
        (of({**of("int"), "name": "1"}), 'R.x: "1" is not a name'),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "R.a: defined twice"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]},
            "R.A: there twice",
        ),
        (of(nested(MOST_DEPTH + 1)), "nested more than 50 levels deep"),
        (of(nested(900)), "nested too deeply"),
        (of(twice_on_each_level(40)), "more than 10000 fields"),
    ],
)
def test_a_schema_that_can_be_no_view_is_refused_with_the_place_in_it(schema: Any, told: str) -> None:
    with pytest.raises(AvroSchemaMistake) as mistake:
        struct_of(text_of(schema))
    assert told in str(mistake.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "[]", "record"])
def test_what_is_no_schema_at_all_is_refused(text: str) -> None:
    with pytest.raises(AvroSchemaMistake):
        struct_of(text)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "1"),
        ("int", 2**31),
        ("int", True),
        ("bytes", "Ā"),
        ("float", 1e39),
        (["null", "int"], "x"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({**of("int"), "name": "Inner"}, {}),
        (fixed(2), "abc"),
        (logical("bytes", "decimal", precision=2), "\u0001\u0000"),
        (logical("int", "date"), 2**31 - 1),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_refused_before_any_record_needs_it(kind: Any, default: Any) -> None:
    with pytest.raises(AvroSchemaMistake, match="x"):
        struct_of(text_of(of(kind, default=default)))
    with pytest.raises(AvroSchemaMistake, match="x"):
        AvroDecoder(text_of(of(kind, default=default)))
