"""Reference tables of cases: what type their columns have, and what is wrong with their rows, without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.decode.readers import Readers
from penstock.errors import SpecInvalid
from penstock.spec.case_load import TestFile, read_tests
from penstock.testing.case.tables import CaseTables
from penstock.transform.reference.sources import TableSources

SPEC = """\
name: priced
kafka: {bootstrap: "localhost:9092"}
source: {topics: {orders: {value: {format: json, schema: {fields: {id: string, code: string}}}}}}
references:
  rates: {jdbc: {url: "jdbc:postgresql://db/x", table: rates}}
  shops: {file: {path: shops.csv, format: csv, schema: {fields: {number: {type: int, required: true}, opened: date}}}}
transform:
  - {view: rated, enrich: {from: orders, reference: rates, on: code}}
sinks: {lake: {from: rated, parquet: {path: lake}}}
"""


def file_of(directory: Path, tables: str, case: str = "") -> TestFile:
    (directory / "spec.yaml").write_text(SPEC)
    file = directory / "spec.test.yaml"
    file.write_text(f"tables: {tables}\ncases:\n- name: a\n  given: {{orders: []}}\n  expect: {{}}\n{case}")
    return read_tests(file)


def made(tests: TestFile) -> CaseTables:
    def no_readers() -> Readers:
        raise AssertionError("no table is in a topic")

    return CaseTables.of(tests, TableSources(tests.pipeline, no_readers))


def refused(tests: TestFile) -> list[tuple[int, str, str | None]]:
    with pytest.raises(SpecInvalid) as raised:
        made(tests)
    found = raised.value.facts["mistakes"]
    return [(each["line"], each["message"], each["hint"]) for each in found]  # type: ignore[attr-defined]


def test_columns_have_the_types_that_their_rows_look_like(tmp_path: Path) -> None:
    rows = '[{code: a, n: 1, rate: 0.925, on: true}, {rate: 110, note: null}, {rate: "x"}]'
    [line] = [line for line, *_ in refused(file_of(tmp_path, f"{{rates: {rows}}}"))]
    assert line == 1  # text and numbers in one column
    rows = rows.replace(', {rate: "x"}', "")
    struct = made(file_of(tmp_path, f"{{rates: {rows}}}")).sources.structs["rates"]
    assert struct.columns() == "`code` string, `n` bigint, `rate` decimal(6,3), `on` boolean, `note` string"


def test_rows_that_cannot_be_rows_of_their_table_have_their_line(tmp_path: Path) -> None:
    own = "  tables:\n    shops:\n    - {number: 1, opend: 2020-01-01}\n    - {opened: soon, number: 2}\n    - {}\n"
    found = refused(file_of(tmp_path, "{rates: [{code: a}]}", own))
    assert [(line, message.split(":")[0]) for line, message, _ in found] == [
        (8, "reference 'shops' has no column 'opend'"),
        (9, "it is no row of reference 'shops'"),
        (10, "it is no row of reference 'shops'"),
    ]
    assert found[0][2] == "did you mean 'opened'?"
    assert "number" in found[2][1]


def test_table_without_a_row_needs_its_columns_said(tmp_path: Path) -> None:
    [(line, message, hint)] = refused(file_of(tmp_path, "{rates: []}"))
    assert (line, "nobody knows what columns" in message) == (1, True)
    assert "fields" in str(hint)
    given = "{rates: {fields: {code: string, rate: double}, rows: []}}"
    assert made(file_of(tmp_path, given)).sources.structs["rates"].columns() == "`code` string, `rate` double"


def test_table_of_a_server_must_be_given_and_one_that_is_not_there_cannot(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid) as raised:
        file_of(tmp_path, "{rate: [{code: a}]}")
    found = [(m["line"], m["message"], m["hint"]) for m in raised.value.facts["mistakes"]]  # type: ignore[attr-defined]
    assert found == [
        (1, "the spec has no reference 'rate'", "did you mean 'rates'?"),
        (3, "reference 'rates' is in a database, which tests do not ask", "give its rows: `tables: {rates: [...]}`"),
    ]
