"""A reader schema that follows its subject: what becomes of columns when somebody registers a new version.

A table only ever gains columns. So the columns known so far stay, whatever the newest version says: a field it no
longer has is its default from now on, or null. With `add` the fields it has gained, and types it has widened, become
columns too. Both hold at every depth, and records of all versions so far are still read: a field that some of them lack
need not be there. Of Protobuf, fields that are messages or enums can not be kept: the newest file need not have their
types. How, is in `avro.merge`, `json_merge` and `protobuf.merge`.
"""

from __future__ import annotations

import base64
import json

from penstock.registry import json_merge
from penstock.registry.avro import merge as avro_merge
from penstock.registry.avro.parse import parse
from penstock.registry.avro.text import text_of
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.json_schema import struct_of_json_schema
from penstock.registry.protobuf import merge as protobuf_merge
from penstock.registry.protobuf.message import files_of


def merged(known: RegisteredSchema, newest: RegisteredSchema, *, add: bool, message: str | None) -> RegisteredSchema:
    """The reader schema from now on. Its id is that of the newest version; where nothing changes, its text stays.

    Raises ValueError for a schema that is none. Whether the result can be a view is not looked at.
    """
    text, references = known.text, known.references
    match known.kind:
        case "AVRO":
            before = parse(known)
            made = text_of(avro_merge.merged(before, parse(newest), add=add))
            if made != text_of(before):
                text, references = made, ()
        case "JSON":
            made = json.dumps(json_merge.merged(json.loads(known.text), json.loads(newest.text), add=add))
            if struct_of_json_schema(made) != struct_of_json_schema(known.text):
                text, references = made, ()
        case "PROTOBUF":
            one, other = (files_of(schema)[-1] for schema in (known, newest))
            file = protobuf_merge.merged(protobuf_merge.File(one), protobuf_merge.File(other), add=add, message=message)
            if file != one:
                text = base64.b64encode(file).decode()
                references = newest.references if add else known.references
    return RegisteredSchema(newest.id, known.kind, text, references)


def gained(known: RegisteredSchema, newest: RegisteredSchema, message: str | None) -> list[str]:
    """Paths of the fields of the newest version that are no columns yet, or no fields of one."""
    try:
        match known.kind:
            case "AVRO":
                return list(avro_merge.gained(parse(known), parse(newest)))
            case "JSON":
                one, other = (json.loads(schema.text) for schema in (known, newest))
                return list(json_merge.gained(json_merge.Part.of(one, one), json_merge.Part.of(other, other)))
            case "PROTOBUF":
                before, now = (protobuf_merge.File(files_of(schema)[-1]) for schema in (known, newest))
                return protobuf_merge.gained(before, now, message)
    except (ValueError, AttributeError, TypeError, KeyError):  # SchemaMistake is a ValueError
        return []
