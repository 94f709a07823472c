"""Reference tables of cases: rows that the file of tests gives stand for a database, a topic or a table.

Rows are read as JSON values of a topic are, by the same decoder; what does not fit is a mistake with its line. From
there on they are any reference table: copied, checked for keys that are there twice, joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.decode.json import JsonDecoder
from penstock.record import KEY
from penstock.spec import types
from penstock.spec.case import Case, GivenTable, Row
from penstock.spec.case_load import TestFile
from penstock.spec.enrich import ReferenceTable
from penstock.spec.fields import struct_of
from penstock.spec.mistake import Mistake, instead
from penstock.spec.mistake import Path as At
from penstock.spec.types import Member, Scalar, Struct, Type
from penstock.testing.case.bytes_of import as_json
from penstock.transform.reference.copies import Copies
from penstock.transform.reference.sources import TableSources
from penstock.transform.reference.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DIGITS = 38  # of the largest decimal


@dataclass(frozen=True)
class _Sources(TableSources):
    structs: Mapping[str, Struct] = field(default_factory=dict)  # of the tables that some case gives
    given: Mapping[str, list[Row]] = field(default_factory=dict)  # others are read where the spec says

    def rows(self, spark: SparkSession, table: ReferenceTable) -> DataFrame:
        name = next(name for name, each in self.pipeline.references.items() if each is table)
        if name not in self.given:
            return super().rows(spark, table)
        struct, rows = self.structs[name], self.given[name]
        read = JsonDecoder(struct)(_as_json(rows))
        columns = pa.Table.from_arrays(read.columns, [member.name for member in struct.members])
        return spark.createDataFrame(columns, struct.columns())


@dataclass(frozen=True)
class CaseTables:
    """The reference tables of one file of tests. A table has the same columns in all of its cases."""

    sources: _Sources

    @classmethod
    def of(cls, tests: TestFile, sources: TableSources) -> CaseTables:
        """Raises SpecInvalid for rows that cannot be rows of their table."""
        written = {name for case in tests.cases.cases for name in case.tables} | tests.cases.tables.keys()
        structs = {name: _struct(tests, name, sources) for name in sorted(written)}
        tests.refuse(mistake for name, struct in structs.items() for mistake in _mistakes(tests, name, struct))
        every_case_has_its_own = {name for name in structs if all(name in case.tables for case in tests.cases.cases)}
        rows: dict[str, list[Row]] = {name: [] for name in every_case_has_its_own}
        rows |= {name: _rows(given) for name, given in tests.cases.tables.items()}
        return cls(_Sources(sources.pipeline, sources.readers, structs, rows))

    def shared(self, at: Path) -> Tables:
        """For cases that give no rows of their own. `at`: where copies are kept."""
        return Tables(self.sources.pipeline, self.sources, Copies(at))

    def of_case(self, case: Case, at: Path) -> Tables:
        own = {**self.sources.given, **case.tables}
        sources = _Sources(self.sources.pipeline, self.sources.readers, self.sources.structs, own)
        return Tables(sources.pipeline, sources, Copies(at))


def _struct(tests: TestFile, name: str, sources: TableSources) -> Struct:
    """The columns of a table: as the tests say, or the spec, or as the rows look."""
    given, table = tests.cases.tables.get(name), tests.pipeline.references[name]
    if isinstance(given, GivenTable) and given.fields is not None:
        return struct_of(given.fields)
    if table.file and table.file.schema_:
        return table.file.schema_.struct()
    if table.kafka:
        decode = sources.decoder(table.kafka)
        columns = decode.value.struct.members
        if decode.key:
            of_key = decode.key.struct
            columns = (*columns, Member(KEY, of_key.members[0].type if decode.key.is_scalar else of_key))
        return Struct(columns)
    tests.refuse(_without_type(tests, name))
    rows = [row for _, rows in _places(tests, name) for row in rows]
    names = dict.fromkeys(column for row in rows for column in row)
    return Struct(tuple(Member(each, _type([row.get(each) for row in rows]) or Scalar("string")) for each in names))


def _type(values: list[Any]) -> Type | None:
    """What such values are, where nobody says; None: it has to be said."""
    values = [value for value in values if value is not None]
    if all(isinstance(value, str) for value in values):
        return Scalar("string")
    if all(isinstance(value, bool) for value in values):
        return Scalar("boolean")
    if any(isinstance(value, bool) or not isinstance(value, int | float | Decimal) for value in values):
        return None
    if all(isinstance(value, int) for value in values):
        return Scalar("bigint")
    if any(isinstance(value, float) for value in values):  # .inf and .nan; what is written with digits is a decimal
        return Scalar("double")
    parts = [Decimal(value).as_tuple() for value in values]
    scale = max(0, *(-int(part.exponent) for part in parts))
    whole = max(len(part.digits) + int(part.exponent) for part in parts)
    return types.Decimal(max(1, whole) + scale, scale) if max(1, whole) + scale <= _DIGITS else Scalar("double")


def _without_type(tests: TestFile, name: str) -> Iterator[Mistake]:
    seen: dict[str, list[Any]] = {}
    if not any(row for _, rows in _places(tests, name) for row in rows):
        at, _ = next(_places(tests, name))
        message = f"without a row nobody knows what columns reference '{name}' has"
        yield tests.mistake(at, "missing-key", message, f"say it: `tables: {{{name}: {{fields: {{...}}, rows: []}}}}`")
    for at, rows in _places(tests, name):
        for i, row in enumerate(rows):
            for column, value in row.items():
                seen.setdefault(column, []).append(value)
                if _type(seen[column]) is None:
                    example = f"`tables: {{{name}: {{fields: {{{column}: ...}}, rows: [...]}}}}`"
                    message = f"what type column '{column}' of reference '{name}' has cannot be told from its rows"
                    yield tests.mistake((*at, i, column), "wrong-type", message, f"say it: {example}")
                    return


def _mistakes(tests: TestFile, name: str, struct: Struct) -> Iterator[Mistake]:
    names = [member.name for member in struct.members]
    for at, rows in _places(tests, name):
        unknown = [(i, column) for i, row in enumerate(rows) for column in row if column not in names]
        for i, column in unknown:
            message = f"reference '{name}' has no column '{column}'"
            yield tests.key_mistake((*at, i, column), message, instead(column, names))
        for i, why in JsonDecoder(struct)(_as_json(rows)).failures.items():
            yield tests.mistake((*at, i), "wrong-type", f"it is no row of reference '{name}': {why.reason}")


def _places(tests: TestFile, name: str) -> Iterator[tuple[At, list[Row]]]:
    """Every place of the file that gives rows of a table."""
    given = tests.cases.tables.get(name)
    if given is not None:
        yield ("tables", name, *(("rows",) if isinstance(given, GivenTable) else ())), _rows(given)
    for i, case in enumerate(tests.cases.cases):
        if name in case.tables:
            yield ("cases", i, "tables", name), case.tables[name]


def _rows(given: list[Row] | GivenTable) -> list[Row]:
    return given.rows if isinstance(given, GivenTable) else given


def _as_json(rows: list[Row]) -> pa.Array:
    return pa.array([as_json(row) for row in rows], pa.binary())
