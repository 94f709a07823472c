"""A whole batch of Protobuf records at once: protobuf's runtime checks each record, ptars makes the columns.

ptars alone is not enough. Of bytes that no serializer writes it reads what protobuf refuses (tags of more than 32 bits,
half an element in a packed field), panics (lengths of nearly 2^64) or reads differently (two members of a oneof, a map
key twice, unknown numbers of a closed enum); and it clamps times that are out of range. So ptars never sees a record
as it came: protobuf parses it, drops the fields the schema does not have and writes it again; that is what ptars reads.
Nor does ptars see the schema as it is, but a plain one with the same field numbers: enums are their numbers, times
their seconds and nanos, messages without fields and those that become JSON their bytes. What they mean is put in here,
in Arrow, with checks that tell the bad rows apart. Hypothesis holds the result to that of `protobuf.rows`.

Not for ptars, and so read record by record: schemas with groups, and with field numbers past MOST_NUMBER (it keeps a
table of 16 bytes per number).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from penstock.decode.arrow.columns import arrow_type
from penstock.decode.protobuf.bundle import RECORDS, add_to
from penstock.decode.protobuf.rows import LONGEST_SECONDS, NANOS, Refused, json_text
from penstock.record import FIRST_SECOND, LAST_SECOND
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
    within,
)

MOST_NUMBER = 20_000

Bad = Any
"""Which entries of a column hold a value that no column can hold: a numpy array of booleans; None for none."""
Convert = Callable[[pa.Array], tuple[pa.Array, Bad]]


def suits(shape: Message) -> bool:
    return not any(field.group or field.number > MOST_NUMBER for field in within(shape))


class Batch:
    """Columns from records that protobuf's runtime wrote. Made once per worker."""

    def __init__(self, shape: Message) -> None:
        descriptor = _Plainly().bundle(shape)
        self._handler = ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)
        self._converts = [_field(field) for field in shape.fields]

    def __call__(self, bundles: list[bytes]) -> tuple[list[pa.Array], list[int]]:
        """The columns of the records in them, and the rows that hold a value no column can hold: what the columns have
        there means nothing.

        Raises where ptars gives up on the batch, which says nothing about any record of it.
        """
        plain = self._handler.array_to_record_batch(pa.array(bundles, pa.binary())).column(RECORDS).flatten()
        # By name: ptars orders fields by number.
        columns, bad = self.meant([plain.field(f"f{i}") for i in range(len(self._converts))])
        return columns, [] if bad is None else np.flatnonzero(bad).tolist()

    def meant(self, plain: list[pa.Array]) -> tuple[list[pa.Array], Bad]:
        """What columns of the plain schema mean."""
        columns: list[pa.Array] = []
        bad: Bad = None
        for convert, column in zip(self._converts, plain, strict=True):
            converted, found = convert(column)
            columns.append(converted)
            bad = _either(bad, found)
        return columns, bad


class _Plainly:
    """Writes the plain schema that ptars gets: one file, proto3, names f0, f1, ..."""

    def __init__(self) -> None:
        self.file = FileDescriptorProto(name="plain.proto", package="plain", syntax="proto3")

    def bundle(self, shape: Message) -> Any:
        """The descriptor of a bundle of such messages."""
        name = add_to(self.file, self.message([(f.number, f) for f in shape.fields]))
        pool = DescriptorPool()
        pool.AddSerializedFile(self.file.SerializeToString())
        return pool.FindMessageTypeByName(name)

    def message(self, fields: list[tuple[int, Field]]) -> str:
        name = f"M{len(self.file.message_type)}"
        message = self.file.message_type.add(name=name)
        for i, (number, field) in enumerate(fields):
            added = message.field.add(name=f"f{i}", number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            if isinstance(field.shape, Pairs):
                entry = message.nested_type.add(name=f"F{i}Entry")
                entry.options.map_entry = True
                for half, (inner, shape) in enumerate((("key", field.shape.key), ("value", field.shape.value)), 1):
                    made = entry.field.add(name=inner, number=half, label=FieldDescriptorProto.LABEL_OPTIONAL)
                    self.type(made, shape)
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".plain.{name}.F{i}Entry"
                added.label = FieldDescriptorProto.LABEL_REPEATED
                continue
            self.type(added, field.shape)
            if field.repeated:
                added.label = FieldDescriptorProto.LABEL_REPEATED
            elif field.presence and added.type != FieldDescriptorProto.TYPE_MESSAGE:
                added.proto3_optional, added.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_f{i}")
        return f".plain.{name}"

    def type(self, added: Any, shape: Shape) -> None:
        """How a value of this shape is written, seen plainly."""
        inner: list[tuple[int, Field]]
        match shape:
            case Plain(type=number):
                added.type = number
                return
            case Enum():
                added.type = FieldDescriptorProto.TYPE_INT32
                return
            case Json() | Presence():
                added.type = FieldDescriptorProto.TYPE_BYTES
                return
            case Timestamp() | Duration():
                halves = (FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_INT32)
                inner = [(i, Field("", i, Plain(half))) for i, half in enumerate(halves, 1)]
            case Wrapper(value=value):
                inner = [(1, Field("", 1, value))]
            case Message(fields=fields):
                inner = [(f.number, f) for f in fields]
            case Pairs():
                raise AssertionError("a map in a map")
        added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, self.message(inner)


def _either(first: Bad, second: Bad) -> Bad:
    return second if first is None else first if second is None else first | second


def _field(field: Field) -> Convert:
    if isinstance(field.shape, Pairs):
        return _pairs(field.shape)
    return _list(_shape(field.shape)) if field.repeated else _shape(field.shape)


def _list(convert: Convert) -> Convert:
    def lists(column: pa.Array) -> tuple[pa.Array, Bad]:
        items, bad = convert(column.values)
        return pa.ListArray.from_arrays(column.offsets, items), _owners(bad, column.offsets)

    return lists


def _pairs(pairs: Pairs) -> Convert:
    convert = _shape(pairs.value)

    def maps(column: pa.Array) -> tuple[pa.Array, Bad]:
        keys, values = _by_key(column)
        items, bad = convert(values)
        entries = pa.MapArray.from_arrays(column.offsets, keys.cast(pa.string()), items)
        return entries, _owners(bad, column.offsets)

    return maps


def _by_key(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The keys and the values of maps, each map sorted by key: a batch run again must write what it wrote before."""
    keys, ends = column.keys, column.offsets.to_numpy()
    owners = np.repeat(np.arange(len(column)), np.diff(ends))
    ascending = pc.less(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    if (ascending | (owners[1:] != owners[:-1])).all():
        return keys, column.items
    entries = pa.table({"owner": owners, "key": keys})
    order = pc.sort_indices(entries, sort_keys=[("owner", "ascending"), ("key", "ascending")])
    return keys.take(order), column.items.take(order)


def _owners(bad: Bad, offsets: pa.Array) -> Bad:
    """The lists that bad items are in."""
    if bad is None:
        return None
    ends = offsets.to_numpy()
    before = np.concatenate(([0], np.cumsum(bad)))
    return before[ends[1:]] > before[ends[:-1]]


def _shape(shape: Shape) -> Convert:
    match shape:
        case Plain():
            return _cast(arrow_type(type_of(shape)))
        case Enum(names=names):
            return _enum(names)
        case Timestamp():
            return _time(_bad_timestamps, arrow_type(type_of(shape)))
        case Duration():
            return _time(_bad_durations, pa.int64())
        case Wrapper(value=value):
            return _wrapper(_shape(value))
        case Json(descriptor=descriptor):
            return _json(GetMessageClass(descriptor).FromString)
        case Presence():
            return lambda column: (pc.if_else(column.is_valid(), True, pa.scalar(None, pa.bool_())), None)
        case Message(fields=fields):
            return _struct(fields)
        case Pairs():
            raise AssertionError("a map in a map")


def _cast(arrow: pa.DataType) -> Convert:
    return lambda column: (column if column.type == arrow else column.cast(arrow), None)


def _enum(names: tuple[tuple[int, str], ...]) -> Convert:
    numbers, texts = pa.array([n for n, _ in names], pa.int32()), pa.array([t for _, t in names], pa.string())

    def named(column: pa.Array) -> tuple[pa.Array, Bad]:
        found = texts.take(pc.index_in(column, numbers))
        return (found if found.null_count == column.null_count else pc.coalesce(found, column.cast(pa.string()))), None

    return named


def _time(bad_of: Callable[[Any, Any], Any], arrow: pa.DataType) -> Convert:
    def times(column: pa.Array) -> tuple[pa.Array, Bad]:
        seconds, nanos = (column.field(name).to_numpy() for name in ("f0", "f1"))  # zeros where the message is absent
        bad = bad_of(seconds, nanos)
        found: Bad = bad if bad.any() else None
        if found is not None:
            seconds, nanos = np.where(bad, 0, seconds), np.where(bad, 0, nanos)
        below = np.sign(nanos) * (np.abs(nanos) // 1_000)
        absent = column.is_null().to_numpy(zero_copy_only=False)
        return pa.array(seconds * 1_000_000 + below, pa.int64(), mask=absent).cast(arrow), found

    return times


def _bad_timestamps(seconds: Any, nanos: Any) -> Any:
    return (seconds < FIRST_SECOND) | (seconds > LAST_SECOND) | (nanos < 0) | (nanos > NANOS)


def _bad_durations(seconds: Any, nanos: Any) -> Any:
    too_long = (seconds < -LONGEST_SECONDS) | (seconds > LONGEST_SECONDS) | (nanos < -NANOS) | (nanos > NANOS)
    return too_long | (np.sign(seconds) * np.sign(nanos) < 0)


def _wrapper(convert: Convert) -> Convert:
    def values(column: pa.Array) -> tuple[pa.Array, Bad]:
        inner, bad = convert(column.field("f0"))
        return (pc.if_else(column.is_valid(), inner, pa.scalar(None, inner.type)) if column.null_count else inner), bad

    return values


def _json(parse: Callable[[bytes], Any]) -> Convert:
    def texts(column: pa.Array) -> tuple[pa.Array, Bad]:
        found: list[str | None] = []
        bad = np.zeros(len(column), bool)
        for i, body in enumerate(column.to_pylist()):
            try:
                found.append(None if body is None else json_text(parse(body), ""))
            except Refused:
                found.append(None)
                bad[i] = True
        return pa.array(found, pa.string()), bad if bad.any() else None

    return texts


def _struct(fields: tuple[Field, ...]) -> Convert:
    names, converts = [field.name for field in fields], [_field(field) for field in fields]

    def structs(column: pa.Array) -> tuple[pa.Array, Bad]:
        members: list[pa.Array] = []
        bad: Bad = None
        for i, convert in enumerate(converts):
            member, found = convert(column.field(f"f{i}"))
            members.append(member)
            bad = _either(bad, found)
        return pa.StructArray.from_arrays(members, names, mask=column.is_null()), bad

    return structs
