"""From a message and the columns there are to a writer: which column fits which field.

What decode makes of a field is what it takes (the table is in `registry.protobuf.shape`). Beyond that, any integer
column fits any integer field when the number fits; a bigint or an integer a uint64; smaller integers a double; and a
string takes what Protobuf has no type for, as text that SQL casts back: decimals, dates, timestamps without a zone.

A null is an absent field. Where that would read as something else, the row fails: in a `required` field, in a list, in
a map, and in a field without presence whose column is declared as required.
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor as F  # type: ignore[import-untyped]

from penstock.encode.arrow.encoded import ColumnsMistake, below
from penstock.encode.arrow.wire import Writer
from penstock.encode.protobuf import known, nested, scalars
from penstock.encode.protobuf.value import Value
from penstock.registry.protobuf.shape import (
    Duration,
    Enum,
    Field,
    Json,
    Message,
    Pairs,
    Plain,
    Presence,
    Shape,
    Timestamp,
    Wrapper,
    type_of,
)
from penstock.spec import types
from penstock.spec.mistake import near

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TAKES = {
    F.TYPE_BOOL: ("boolean",),
    F.TYPE_STRING: ("string", "date", "timestamp_ntz"),
    F.TYPE_BYTES: ("binary",),
    F.TYPE_FLOAT: ("float", "tinyint", "smallint"),
    F.TYPE_DOUBLE: ("double", "float", "tinyint", "smallint", "int"),
    **dict.fromkeys(scalars.INTEGERS, _WHOLE),
}


def message_writer(message: Message, struct: types.Struct, path: str = "", *, ignore_extra: bool = False) -> Writer:
    """Raises ColumnsMistake, with all that is wrong with all fields."""
    columns = {member.name: member for member in struct.members}
    names = [field.name for field in message.fields]
    wrong: list[str] = []
    if not ignore_extra:
        wrong += [_extra(below(path, name), name, names) for name in columns if name not in names]
    fields: list[tuple[Field, Writer]] = []
    for field in sorted(message.fields, key=lambda field: field.number):
        here = below(path, field.name)
        if field.name not in columns:
            if field.required:
                wrong.append(f"{here}: there is no such column, and the schema requires the field")
            continue
        try:
            fields.append((field, _field(field, columns[field.name], here, ignore_extra)))
        except ColumnsMistake as mistake:
            wrong += mistake.reasons
    if wrong:
        raise ColumnsMistake(*wrong)
    return nested.fields(path, fields)


def _extra(path: str, name: str, names: list[str]) -> str:
    hint = near(name, names)
    return f"{path}: the message has no such field" + (f"; {hint}" if hint else "")


def _field(field: Field, member: types.Member, path: str, ignore_extra: bool) -> Writer:
    if isinstance(field.shape, Pairs):
        if not isinstance(member.type, types.Map):
            raise _misfit(path, member.type, "map")
        inside = f"{path}[...]"
        value = _value(field.shape.value, member.type.value, inside, ignore_extra)
        return nested.pairs(field.number, scalars.key(field.shape.key.type, inside), value, inside)
    if field.repeated:
        if not isinstance(member.type, types.Array):
            raise _misfit(path, member.type, f"repeated {_told(field.shape)}")
        value = _value(field.shape, member.type.item, f"{path}[]", ignore_extra)
        value = nested.group(value, field.number) if field.group else value
        return nested.repeated(field.number, value, f"{path}[]", packed=field.packed)
    value = _value(field.shape, member.type, path, ignore_extra)
    value = nested.group(value, field.number) if field.group else value
    return nested.single(
        field.number,
        value,
        path,
        presence=field.presence,
        required=field.required or (member.required and not field.presence),
    )


def _value(shape: Shape, column: types.Type, path: str, ignore_extra: bool) -> Value:
    match shape, column:
        case Message(), types.Struct():
            return nested.message(message_writer(shape, column, path, ignore_extra=ignore_extra))
        case Enum(), types.Scalar(name="string"):
            return scalars.enumeration(shape, path)
        case Json(), types.Scalar(name="string"):
            return known.dynamic(shape.descriptor, path)
        case Timestamp(), types.Scalar(name="timestamp"):
            return known.timestamp(path)
        case Duration(), types.Scalar(name=name) if name in _WHOLE:
            return known.duration(path)
        case Presence(), types.Scalar(name="boolean"):
            return known.presence(path)
        case Wrapper(value=inner), _:
            return known.wrapper(_value(inner, column, path, ignore_extra))
        case Plain(type=number), types.Scalar(name=name) if name in _TAKES[number]:
            return scalars.plain(number, column, path)
        case Plain(type=F.TYPE_STRING), types.Decimal():
            return scalars.plain(F.TYPE_STRING, column, path)
        case Plain(type=F.TYPE_UINT64 | F.TYPE_FIXED64 as number), types.Decimal(scale=0):
            return scalars.plain(number, column, path)
    raise _misfit(path, column, _told(shape))


def _told(shape: Shape) -> str:
    if isinstance(shape, Plain):
        return str(next(n for n in dir(F) if n.startswith("TYPE_") and getattr(F, n) == shape.type)[5:].lower())
    return "message" if isinstance(shape, Message) else f"{type(shape).__name__.lower()} ({type_of(shape).ddl()})"


def _misfit(path: str, column: types.Type, wanted: str) -> ColumnsMistake:
    return ColumnsMistake(f"{path}: a column of {column.ddl()} cannot be written as {wanted}")
