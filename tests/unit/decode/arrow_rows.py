"""Decoded columns in plain Python, and whether they keep what a schema asks for."""

from __future__ import annotations

from typing import Any

from penstock.decode.arrow.decoded import Decoded
from penstock.spec.types import Array, Map, Struct, Type


def rows(struct: Struct, decoded: Decoded) -> list[dict[str, Any]]:
    """Decoded rows in plain Python; Arrow gives a map as a list of pairs."""
    lists = [column.to_pylist() for column in decoded.columns]
    return [
        {m.name: _plain(m.type, lists[i][row]) for i, m in enumerate(struct.members)} for row in range(len(lists[0]))
    ]


def _plain(declared: Type, value: Any) -> Any:
    if value is None:
        return None
    match declared:
        case Array(item=item):
            return [_plain(item, v) for v in value]
        case Map(value=inner):
            return {k: _plain(inner, v) for k, v in value}
        case Struct(members=members):
            return {m.name: _plain(m.type, value[m.name]) for m in members}
    return value


def keeps_required(declared: Type, required: bool, value: Any) -> bool:
    if not value.is_valid:
        return not required
    match declared:
        case Array(item=item):
            return all(keeps_required(item, False, v) for v in value)
        case Map(value=inner):
            return all(keeps_required(inner, False, pair["value"]) for pair in value.values)
        case Struct(members=members):
            return all(keeps_required(m.type, m.required, value[i]) for i, m in enumerate(members))
    return True
