"""An Avro schema for columns: what a pipeline writes to a topic that has no schema yet.

`view_of` gives the same columns back, but for tinyint and smallint, which Avro does not have (they are ints). A column
that is not required is `["null", X]` with the default null, so deriving again after a column was added gives a schema
that is compatible both ways. Items of arrays and values of maps may be null in Spark, and so they may here.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.registry.avro.model import AvroSchemaMistake
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

_SCALARS: dict[str, Any] = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_schema(struct: Struct, name: str) -> str:
    """The text of the schema; `name` is that of the record, and may have a namespace: `com.example.Payment`.

    Raises AvroSchemaMistake for a name that Avro does not allow.
    """
    for part in name.split("."):
        if not _NAME.fullmatch(part):
            raise AvroSchemaMistake(
                f"'{name}' is not a name in Avro: letters, digits and _, not beginning with a digit"
            )
    return json.dumps(_record(struct, name, ""), indent=2)


def _record(struct: Struct, name: str, path: str) -> dict[str, Any]:
    """A record inside has the name of its field, in a namespace that is the path to it: so no two have one name."""
    if not struct.members:
        raise AvroSchemaMistake(f"{path or name}: a record without fields has no columns")
    fields: list[dict[str, Any]] = []
    for member in struct.members:
        here = f"{path}.{member.name}" if path else member.name
        if not _NAME.fullmatch(member.name):
            raise AvroSchemaMistake(
                f"{here}: '{member.name}' is not a name in Avro: letters, digits and _, not beginning with a digit"
            )
        kind = _type(member.type, f"{name}.{member.name}", here)
        fields.append(
            {"name": member.name, "type": kind}
            if member.required
            else {"name": member.name, "type": ["null", kind], "default": None}
        )
    return {"type": "record", "name": name, "fields": fields}


def _type(column: Type, name: str, path: str) -> Any:
    match column:
        case Scalar(name=scalar):
            return _SCALARS[scalar]
        case Decimal(precision=precision, scale=scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case Array(item=item):
            return {"type": "array", "items": ["null", _type(item, name, f"{path}[]")]}
        case Map(value=value):
            return {"type": "map", "values": ["null", _type(value, name, f"{path}[]")]}
        case Struct():
            return _record(column, name, path)
    raise AssertionError(column)
