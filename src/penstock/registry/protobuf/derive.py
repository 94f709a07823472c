"""A Protobuf schema for columns: what a pipeline writes to a topic that has no schema yet.

proto3; a column that is not required is `optional`, and so null when it is absent. Fields are numbered in the order of
the columns, so deriving again after one was added at the end gives a compatible schema. What Protobuf has no type for
is `string`, as text that SQL casts back: decimals, dates, timestamps without a zone; tinyint and smallint are int32.
`struct_of` gives all other columns back as they were. Protobuf knows neither a list directly in a list or map, nor
nulls in them: the first has no schema, the second fails its row when it is written.
"""

from __future__ import annotations

import re

from penstock.registry.protobuf.message import SchemaMistake
from penstock.spec.types import Array, Decimal, Map, Member, Scalar, Struct, Type

_TIMESTAMP = ".google.protobuf.Timestamp"  # from the root: a column may be called `google`
_SCALARS = {
    "string": "string",
    "boolean": "bool",
    "tinyint": "int32",
    "smallint": "int32",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "date": "string",
    "timestamp": _TIMESTAMP,
    "timestamp_ntz": "string",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIRST_RESERVED, _LAST_RESERVED = 19_000, 19_999  # field numbers of Protobuf's own


def proto_text(struct: Struct, name: str) -> str:
    """The .proto text; `name` is that of the message, and may have a package: `com.example.Payment`.

    Raises SchemaMistake for a name that Protobuf does not allow, and for what it has no type for.
    """
    package, _, message = name.rpartition(".")
    for part in name.split("."):
        if not _NAME.fullmatch(part):
            raise SchemaMistake(f"'{name}' is not a name in Protobuf: {_ALLOWED}")
    body = _message(struct, message, "", "")
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    if any(_TIMESTAMP in line for line in body):
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, "", *body, ""])


_ALLOWED = "letters, digits and _, not beginning with a digit"


def _message(struct: Struct, name: str, path: str, indent: str) -> list[str]:
    if not struct.members:
        raise SchemaMistake(f"{path or name}: a message without fields has no columns")
    _check_names(struct, path)
    taken = {name} | {m.name for m in struct.members} | {_entry(m) for m in struct.members if isinstance(m.type, Map)}
    fields: list[str] = []
    inner: list[str] = []
    for i, member in enumerate(struct.members, 1):
        here = f"{path}.{member.name}" if path else member.name
        number = i if i < _FIRST_RESERVED else i + _LAST_RESERVED - _FIRST_RESERVED + 1
        lowest = _lowest(member.type)
        known = ""
        if isinstance(lowest, Struct):
            known = _camel(member.name)
            known = known if _NAME.fullmatch(known) else f"_{known}"
            while known in taken:
                known += "_"
            taken.add(known)
            inner += _message(lowest, known, here, f"{indent}  ")
        fields.append(f"{indent}  {_field(member, known, here)} {member.name} = {number};")
    return [f"{indent}message {name} {{", *fields, *inner, f"{indent}}}"]


def _check_names(struct: Struct, path: str) -> None:
    taken = {member.name for member in struct.members}
    by_json: dict[str, str] = {}
    for member in struct.members:
        here = f"{path}.{member.name}" if path else member.name
        if not _NAME.fullmatch(member.name):
            raise SchemaMistake(f"{here}: '{member.name}' is not a name in Protobuf: {_ALLOWED}")
        first, *rest = member.name.split("_")
        other = by_json.setdefault(first + _camel("_".join(rest)), member.name)
        if other != member.name:
            raise SchemaMistake(f"{here}: Protobuf's JSON does not tell '{member.name}' from '{other}'")
        if isinstance(member.type, Map):
            if _entry(member) in taken:
                raise SchemaMistake(f"{here}: a map of this name makes a message '{_entry(member)}', which is taken")
            taken.add(_entry(member))


def _entry(member: Member) -> str:
    """What protoc calls the message it makes for a map."""
    return f"{_camel(member.name)}Entry"


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _lowest(column: Type) -> Type:
    """What is in a list or map."""
    match column:
        case Array(item=inner) | Map(value=inner):
            return inner
    return column


def _field(member: Member, known: str, path: str) -> str:
    match member.type:
        case Array(item=item):
            return f"repeated {_type(item, known, path)}"
        case Map(value=value):
            return f"map<string, {_type(value, known, path)}>"
        case Struct():
            return _type(member.type, known, path)
    return f"{'' if member.required else 'optional '}{_type(member.type, known, path)}"


def _type(column: Type, known: str, path: str) -> str:
    match column:
        case Scalar(name=name):
            return _SCALARS[name]
        case Decimal():
            return "string"
        case Struct():
            return known
    raise SchemaMistake(f"{path}: a list or map directly in another has no type in Protobuf; put a struct between them")
