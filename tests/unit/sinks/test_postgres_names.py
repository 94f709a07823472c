"""Names of tables: as written, quoted, never cut short."""

from __future__ import annotations

import pytest

from penstock.sinks.postgres.names import Staging, TableName


@pytest.mark.parametrize(
    ("text", "schema", "table"),
    [
        ("things", None, "things"),
        ("Lake.Things", "Lake", "Things"),
        ("a b.c d", "a b", "c d"),
        ('"a.b"."c ""d"""', "a.b", 'c "d"'),
        ('x."y.z"', "x", "y.z"),
        ("é" * 31, None, "é" * 31),
    ],
)
def test_name_is_taken_as_written(text: str, schema: str | None, table: str) -> None:
    assert TableName.parse(text) == TableName(schema, table)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", '"a', 'a"b', '"a"b', '""', "é" * 32, "a\0b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        TableName.parse(text)


def test_quotes_inside_a_name_cannot_end_it() -> None:
    assert TableName('s"; drop', 't"').quoted().as_string() == '"s""; drop"."t"""'


def test_staging_tables_of_one_sink_share_a_prefix_that_no_other_sink_has() -> None:
    one, two = Staging.new("s", "pipe", "db"), Staging.new("s", "pipe", "db")
    assert one != two
    assert one.name.startswith(Staging.prefix("pipe", "db"))
    assert not one.name.startswith(Staging.prefix("pipe", "other"))
    assert len(f"{one.name}_rows") <= 63
