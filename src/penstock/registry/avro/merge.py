"""Two versions of an Avro schema as one reader schema, which reads the records of both.

Fields meet by name, else by an alias of either; a field that was renamed keeps the name that the view has, and is read
by the other one too. At every depth: a field that one version lacks has its default, or may be null; what one version
lets be null may be null; an enum has the symbols of both. With `add` the fields of the newest version that nobody knew,
the branches its unions have gained, and wider types become part of the view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.registry.avro.default import encoded
from penstock.registry.avro.model import (
    NO_DEFAULT,
    PROMOTED,
    Array,
    AvroSchemaMistake,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)

_NULL = Primitive("null")


def merged(known: Schema, newest: Schema, *, add: bool) -> Schema:
    """What to read with from now on; `known` is a view, so it is walked along and never goes round in circles."""
    if isinstance(known, Union) or isinstance(newest, Union):
        return _unions(_branches(known), _branches(newest), add)
    match known, newest:
        case Record(), Record():
            return _records(known, newest, add)
        case Array(items=one), Array(items=other):
            return Array(merged(one, other, add=add))
        case Map(values=one), Map(values=other):
            return Map(merged(one, other, add=add))
        case Enum(), Enum() if same_name(known, newest):
            symbols = tuple(dict.fromkeys((*known.symbols, *newest.symbols)))
            return replace(
                known, symbols=symbols, aliases=_names(known, newest), default=newest.default or known.default
            )
        case Fixed(), Fixed() if same_name(known, newest) and (known.size, known.logical) == (
            newest.size,
            newest.logical,
        ):
            return replace(known, aliases=_names(known, newest))
        case Primitive(), Primitive() if _reads(known, newest):
            return known
    return newest if add else known


def gained(known: Schema, newest: Schema, path: str = "") -> Iterator[str]:
    """Paths of the fields of the newest version that have no place in the known one."""
    if isinstance(known, Union) or isinstance(newest, Union):
        for one, other in _pairs(_branches(known), _branches(newest)):
            if one is not None and other is not None:
                yield from gained(one, other, path)
        return
    match known, newest:
        case Record(), Record():
            places = {place: field for field, place in _places(known, newest).items()}
            for i, field in enumerate(newest.fields):
                here = f"{path}.{field.name}" if path else field.name
                if i in places:
                    yield from gained(known.fields[places[i]].type, field.type, here)
                else:
                    yield here
        case (Array(items=one), Array(items=other)) | (Map(values=one), Map(values=other)):
            yield from gained(one, other, f"{path}[]")


def same_name(one: Named, other: Named) -> bool:
    """Not counting namespaces, by an alias of either."""
    first, second = ({name.rpartition(".")[2] for name in (each.name, *each.aliases)} for each in (one, other))
    return not first.isdisjoint(second)


def _names(known: Named, newest: Named) -> tuple[str, ...]:
    return tuple(n for n in dict.fromkeys((*known.aliases, newest.name, *newest.aliases)) if n != known.name)


def _reads(known: Primitive, newest: Primitive) -> bool:
    """Whether the known type holds all that the newest one writes."""
    one, other = known.logical, newest.logical
    if one != other and (one is None or other is None or (one.name, one.scale) != (other.name, other.scale)):
        return False
    if one is not None and other is not None and one.precision < other.precision:
        return False
    return known.kind == newest.kind or known.kind in PROMOTED.get(newest.kind, ())


def _branches(schema: Schema) -> tuple[Schema, ...]:
    return schema.branches if isinstance(schema, Union) else (schema,)


def _unions(known: tuple[Schema, ...], newest: tuple[Schema, ...], add: bool) -> Schema:
    """In the order of the known branches: they are member0, member1, … of a column."""
    found: list[Schema] = []
    for one, other in _pairs(known, newest):
        if one is not None:
            found.append(one if other is None else merged(one, other, add=add))
        elif other is not None and add:
            found.append(other)
    nullable = any(branch.kind == "null" for branch in (*known, *newest))
    return Union((_NULL, *found)) if nullable else found[0] if len(found) == 1 else Union(tuple(found))


def _pairs(known: tuple[Schema, ...], newest: tuple[Schema, ...]) -> Iterator[tuple[Schema | None, Schema | None]]:
    one = [branch for branch in known if branch.kind != "null"]
    left = [branch for branch in newest if branch.kind != "null"]
    if len(one) == len(left) == 1:
        yield one[0], left[0]
        return
    for branch in one:
        match_ = next((other for other in left if _alike(branch, other)), None)
        if match_ is not None:
            left.remove(match_)
        yield branch, match_
    for other in left:
        yield None, other


def _alike(one: Schema, other: Schema) -> bool:
    if isinstance(one, Fixed | Enum | Record) and isinstance(other, Fixed | Enum | Record):
        return one.kind == other.kind and same_name(one, other)
    return one.kind == other.kind


def _places(known: Record, newest: Record) -> dict[int, int]:
    """Which field of the known record is which of the newest. Names come first, as in reading."""
    at = {field.name: i for i, field in enumerate(newest.fields)}
    places = {i: at[field.name] for i, field in enumerate(known.fields) if field.name in at}
    for i, field in enumerate(known.fields):
        left = (
            j
            for j, other in enumerate(newest.fields)
            if j not in places.values() and not {field.name, *field.aliases}.isdisjoint((other.name, *other.aliases))
        )
        if i not in places and (found := next(left, None)) is not None:
            places[i] = found
    return places


def _records(known: Record, newest: Record, add: bool) -> Record:
    places = _places(known, newest)
    fields = [
        _optional(field) if i not in places else _field(field, newest.fields[places[i]], add)
        for i, field in enumerate(known.fields)
    ]
    if add:
        fields += [_optional(field) for i, field in enumerate(newest.fields) if i not in places.values()]
    names = {field.name for field in fields}
    return Record(known.name, _names(known, newest), [_apart(field, names - {field.name}) for field in fields])


def _field(known: Field, newest: Field, add: bool) -> Field:
    kind = merged(known.type, newest.type, add=add)
    aliases = tuple(
        name for name in dict.fromkeys((*known.aliases, newest.name, *newest.aliases)) if name != known.name
    )
    made = Field(known.name, aliases, kind, NO_DEFAULT)
    given = [each.default for each in (newest, known) if each.default is not NO_DEFAULT]
    fitting = next((default for default in given if _is_value(kind, default, known.name)), NO_DEFAULT)
    made = replace(made, default=fitting)
    return _optional(made) if given and fitting is NO_DEFAULT else made


def _is_value(schema: Schema, default: object, path: str) -> bool:
    try:
        encoded(schema, default, path)
    except AvroSchemaMistake:
        return False
    return True


def _apart(field: Field, others: set[str]) -> Field:
    """An alias that is the name of another field is that field's: records that have that one may lack this one."""
    if others.isdisjoint(field.aliases):
        return field
    return _optional(replace(field, aliases=tuple(name for name in field.aliases if name not in others)))


def _optional(field: Field) -> Field:
    if field.default is not NO_DEFAULT:
        return field
    branches = tuple(branch for branch in _branches(field.type) if branch.kind != "null")
    return replace(field, type=Union((_NULL, *branches)), default=None)
