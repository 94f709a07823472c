"""A reader schema that follows its subject: what becomes of columns when somebody registers a new version.

A table only ever gains columns. So the columns known so far stay, whatever the newest version says: a field it no
longer has is its default from now on, or null. With `add` the fields it has gained, and types it has widened, become
columns too. Of Protobuf, fields that are messages or enums can not be kept: the newest file need not have their types.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

from penstock.kafka.schema import RegisteredSchema
from penstock.schema.avro.carried import carried
from penstock.schema.json_schema import inlined, top
from penstock.schema.protobuf.message import files_of, named

_MESSAGE_TYPES = (10, 11, 14)  # group, message, enum: they name another type, which the newest file may not have


def merged(known: RegisteredSchema, newest: RegisteredSchema, *, add: bool, message: str | None) -> RegisteredSchema:
    """The reader schema from now on. Its id is that of the newest version. Whether it can be a view is not looked at.

    Raises ValueError for a schema that is none.
    """
    text, references = known.text, known.references
    match known.kind:
        case "AVRO":
            text = _avro(known, newest, add=add)
        case "JSON":
            text = _json(json.loads(known.text), json.loads(newest.text), add=add)
        case "PROTOBUF" if add:
            text = _protobuf(known, newest, message)
    if add:
        references = newest.references
    return RegisteredSchema(newest.id, known.kind, text, references)


def gained(known: RegisteredSchema, newest: RegisteredSchema, message: str | None) -> list[str]:
    """Top-level fields of the newest version that are no columns yet."""
    before = set(_names(known, message))
    return [name for name in _names(newest, message) if name not in before]


def _avro(before: RegisteredSchema, after: RegisteredSchema, *, add: bool) -> str:
    known, newest = json.loads(before.text), json.loads(after.text)
    if not (isinstance(known, dict) and isinstance(newest, dict) and "fields" in known and "fields" in newest):
        return json.dumps(newest if add else known)
    now = {field["name"] for field in newest["fields"]}
    if add:
        gone = carried([field for field in known["fields"] if field["name"] not in now], before, after)
        left = [field if "default" in field else _optional(field) for field in gone]
        return json.dumps({**newest, "fields": [*newest["fields"], *left]})
    fields = [field if field["name"] in now or "default" in field else _optional(field) for field in known["fields"]]
    return json.dumps({**known, "fields": fields})


def _optional(field: dict[str, Any]) -> dict[str, Any]:
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return {**field, "type": ["null", *(branch for branch in branches if branch != "null")], "default": None}


def _json(known: Any, newest: Any, *, add: bool) -> str:
    if not (isinstance(known, dict) and isinstance(newest, dict)):
        return json.dumps(newest if add else known)
    before, after = top(known), top(newest)
    if add:
        now = after.get("properties", {})
        # With all they refer to: the newest version may have other definitions, or none.
        gone = {k: inlined(v, known) for k, v in before.get("properties", {}).items() if k not in now}
        return json.dumps({**after, "properties": {**now, **gone}})
    required = [name for name in before.get("required", []) if name in after.get("required", [])]
    return json.dumps({**before, "required": required})


def _protobuf(known: RegisteredSchema, newest: RegisteredSchema, message: str | None) -> str:
    before, now = (FileDescriptorProto.FromString(files_of(schema)[-1]) for schema in (known, newest))
    old, new = _message(before, message), _message(now, message)
    taken = {field.number for field in new.field} | {field.name for field in new.field}
    for field in old.field:
        if field.number in taken or field.name in taken or field.type in _MESSAGE_TYPES:
            continue
        left = new.field.add()
        left.CopyFrom(field)
        left.ClearField("oneof_index")
        left.ClearField("proto3_optional")
    for reserved in [r for r in new.reserved_range if any(r.start <= f.number < r.end for f in new.field)]:
        new.reserved_range.remove(reserved)
    for name in [n for n in new.reserved_name if n in {f.name for f in new.field}]:
        new.reserved_name.remove(name)
    return base64.b64encode(now.SerializeToString()).decode()


def _message(file: Any, message: str | None) -> Any:
    path = named(file, message).removeprefix(f"{file.package}." if file.package else "").split(".")
    found = next(each for each in file.message_type if each.name == path[0])
    for name in path[1:]:
        found = next(each for each in found.nested_type if each.name == name)
    return found


def _names(schema: RegisteredSchema, message: str | None) -> list[str]:
    try:
        if schema.kind == "PROTOBUF":
            file = FileDescriptorProto.FromString(files_of(schema)[-1])
            return [field.name for field in _message(file, message).field]
        said = json.loads(schema.text)
        if schema.kind == "JSON":
            return list(top(said).get("properties", {}))
        return [field["name"] for field in said.get("fields", [])]
    except (ValueError, AttributeError, TypeError, KeyError):  # SchemaMistake is a ValueError
        return []
