"""What a Delta table asks of whoever adds files to it, and does not look at their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

# What a writer that only adds files keeps by itself: nothing is removed, and other conditions are looked for.
_PLAIN_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
# Of a column: Delta's own, and varchar(n) and char(n), which are text with a length that the engine keeps.
_CONDITIONS = ("delta.", "__CHAR_VARCHAR_TYPE_STRING")
_PLAIN_WRITER, _WRITER_BY_FEATURES = 2, 7  # versions between them imply conditions, from 7 on features are named


def other_columns(table: DeltaTable, columns: StructType) -> str:
    """How the table's columns differ from these, in a word for `plan`; empty: not at all."""
    there = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    new = {field["name"]: field["type"] for field in json.loads(columns.json())["fields"]}
    differ = [name for name in {**there, **new} if _plain(there.get(name)) != _plain(new.get(name))]
    return f"the table has other columns: {', '.join(differ)}" if differ else ""


def demands(table: DeltaTable) -> str:
    """What the table asks of a writer that only adds files and looks at no row; empty: nothing."""
    metadata, protocol = table.metadata(), table.protocol()
    if metadata.partition_columns:
        return f"the table is partitioned by {', '.join(metadata.partition_columns)}"
    checks = [name for name in metadata.configuration if name.startswith("delta.constraints.")]
    if checks:
        return f"the table has the constraint {checks[0].removeprefix('delta.constraints.')}"
    bound = next((name for name, field in _fields(json.loads(table.schema().to_json())) if _bound(field)), None)
    if bound:
        return f"the table has a condition on column {bound}"
    more = sorted(set(protocol.writer_features or []) - _PLAIN_FEATURES)
    if more or _PLAIN_WRITER < protocol.min_writer_version < _WRITER_BY_FEATURES:
        return f"the table wants a writer that knows {', '.join(more) or f'version {protocol.min_writer_version}'}"
    return ""


def _fields(type_: Any, of: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a table's schema that can have a condition, by the column it is in."""
    if isinstance(type_, dict):
        of = of or type_.get("name", "")
        yield of, type_
    for inside in type_.values() if isinstance(type_, dict) else type_ if isinstance(type_, list) else ():
        yield from _fields(inside, of)


def _bound(field: dict[str, Any]) -> bool:
    """Not null, a length, or something that Delta computes or checks: an invariant, an identity, an expression."""
    nullable = (field.get(name, True) for name in ("nullable", "containsNull", "valueContainsNull"))
    return not all(nullable) or any(name.startswith(_CONDITIONS) for name in field.get("metadata", {}))


def _plain(type_: Any) -> Any:
    """A type without what does not matter: whether it may be null, comments."""
    if isinstance(type_, dict):
        ignored = ("nullable", "metadata", "containsNull", "valueContainsNull")
        return {key: _plain(value) for key, value in type_.items() if key not in ignored}
    return [_plain(each) for each in type_] if isinstance(type_, list) else type_
