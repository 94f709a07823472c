"""Protobuf, with or without the registry's header. The mapping of types is in `protobuf.shape`.

The path of a batch:

1. With a registry, the header of each record names the schema and the message it was written with. It must be known to
   the registry, be the message that is read here, and differ from it only in ways that lose nothing
   (`protobuf.evolution`). Without a registry every value is a message, also the empty one: all its fields are absent.
2. Records that are as serializers write them, of messages without arrays and maps, are read side by side by numpy
   (`protobuf.flat`): nearly all that there are.
3. The others are parsed with the reader's schema by protobuf's own runtime and written again, many in one call
   (`protobuf.bundle`), one by one where that fails; a record it refuses has failed.
4. ptars turns what was written into columns, all records at once (`protobuf.batch`); where it cannot, they are read
   record by record (`protobuf.rows`). All ways give the same.
5. Records that hold a value no column can hold, such as a time after the year 9999, have failed too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from penstock import record
from penstock.decode.arrow.decoded import NULL, Decoded
from penstock.decode.arrow.page import MOST_BYTES, Numbers, Page, page_of
from penstock.decode.protobuf.batch import Batch, suits
from penstock.decode.protobuf.bundle import Bundle, bundled
from penstock.decode.protobuf.evolution import conflict
from penstock.decode.protobuf.flat import Flat
from penstock.decode.protobuf.flat import suits as is_flat
from penstock.decode.protobuf.header import Header, headers
from penstock.decode.protobuf.rows import Rows
from penstock.record import Failure, shortened
from penstock.registry.client.schema import Lookup, RegisteredSchema, why_unknown
from penstock.registry.protobuf.message import MessageSchema, SchemaMistake, files_of
from penstock.registry.protobuf.shape import shape_of

BUNDLED_BYTES = 1_000_000  # what is parsed at once: it takes many times as much memory
_FEW = 500  # records that say nothing about those to come
_PAUSE = 100  # batches


class Reader:
    """Reads messages of one type. Made once per schema and worker process."""

    def __init__(self, descriptor: Any) -> None:
        shape = shape_of(descriptor)
        self.rows = Rows(descriptor, shape)
        self._bundle = Bundle(descriptor)
        self._batch = Batch(shape) if suits(shape) else None
        self._flat = Flat(shape) if self._batch is not None and is_flat(shape) else None
        self._without_flat = 0  # batches for which it is not tried: it did not pay

    def read(self, page: Page, starts: Numbers, ends: Numbers) -> tuple[list[pa.Array], Any, dict[int, Failure]]:
        """Columns of the records that could be read; the position in them of each record, or -1; and the failures."""
        self._without_flat = max(0, self._without_flat - 1)
        if self._flat is None or self._batch is None or self._without_flat or len(page.data) > MOST_BYTES:
            return self._parsed(_bodies(page, starts, ends))
        plain, odd = self._flat(page, starts, ends)
        columns, bad = self._batch.meant(plain)
        others = np.flatnonzero(odd if bad is None else odd | bad)
        position = np.arange(len(starts))
        if not len(others):
            return columns, position, {}
        if len(others) > max(_FEW, len(starts) // 2):
            self._without_flat = _PAUSE
        parsed, places, refused = self._parsed(_bodies(page, starts[others], ends[others]))
        columns = [pa.concat_arrays(pair) for pair in zip(columns, parsed, strict=True)]
        position[others] = np.where(places < 0, -1, places + len(starts))
        return columns, position, {int(others[i]): failure for i, failure in refused.items()}

    def _parsed(self, bodies: list[bytes]) -> tuple[list[pa.Array], Any, dict[int, Failure]]:
        bundles: list[bytes] = []
        failures: dict[int, Failure] = {}
        together = max(1, BUNDLED_BYTES * len(bodies) // (sum(map(len, bodies)) + 1))
        for start in range(0, len(bodies), together):
            part = bodies[start : start + together]
            bundle = self._bundle.written_again(part)
            bundles.append(bundled(self._written_again(part, start, failures)) if bundle is None else bundle)
        kept = np.delete(np.arange(len(bodies)), list(failures)) if failures else np.arange(len(bodies))
        columns, refused = self._columns(bundles, [bodies[i] for i in kept] if failures else bodies)
        position = np.full(len(bodies), -1)
        position[kept] = np.arange(len(kept))
        for i in kept[refused]:
            failures[int(i)] = self._explain(bodies[i], None)
            position[i] = -1
        return columns, position, failures

    def _written_again(self, bodies: list[bytes], start: int, failures: dict[int, Failure]) -> list[bytes]:
        """Records parsed one by one, rid of what the schema does not have, and written again; failures by place."""
        calls, written = self.rows.calls, list[bytes]()
        for i, body in enumerate(bodies, start):
            try:
                message = calls.parse(body)
                calls.discard_unknown(message)
                written.append(calls.serialize(message))
            except DecodeError as error:
                failures[i] = self.rows.explain(body, error)
            except Exception as error:  # any bytes must end as a record or as a failure
                failures[i] = self._explain(body, error)
        return written

    def _columns(self, bundles: list[bytes], bodies: list[bytes]) -> tuple[list[pa.Array], list[int]]:
        """Columns of records that protobuf takes, in bundles and one by one, and the rows that no column can hold."""
        if self._batch is not None:
            try:
                return self._batch(bundles)
            except Exception:  # the batch, not a record: which one it is, if any, is found out one by one
                pass
            except BaseException as panic:
                if type(panic).__name__ != "PanicException":  # of Rust; it is not an Exception
                    raise
        columns, failures = self.rows.read_each(bodies)
        return columns, list(failures)

    def _explain(self, body: bytes, error: Exception | None) -> Failure:
        try:
            self.rows.row(body)
        except Exception as found:
            error = found
        return self.rows.explain(body, error or ValueError("it cannot be read"))


class ProtobufDecoder:
    """Called for every Arrow batch of raw values. Without `lookup` the values carry no header.

    Raises nothing but RegistryUnreachable, from `lookup`, and CompilerFailed: a writer's schema could not be compiled.
    """

    def __init__(self, schema: MessageSchema, lookup: Lookup | None = None) -> None:
        self._schema = schema
        self._lookup = lookup
        self._reader = reader_of(schema)

    def __call__(self, values: pa.Array) -> Decoded:
        values = values if values.type == pa.binary() else values.cast(pa.binary())
        failures: dict[int, Failure] = {}
        if values.null_count:
            failures = dict.fromkeys(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist(), NULL)
        schema_ids = None
        page = page_of(values)
        if self._lookup is None:
            rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            starts = page.starts[rows]
        else:
            rows, lengths, schema_ids = self._without_headers(values, page, failures)
            starts = page.starts[rows] + lengths
        columns, position, refused = self._reader.read(page, starts, page.ends[rows])
        failures.update({int(rows[i]): failure for i, failure in refused.items()})
        if failures:
            where = np.full(len(values), -1)
            where[rows] = position
            picks = pa.array(where, mask=where < 0)
            columns = [column.take(picks) for column in columns]
        elif (position != np.arange(len(position))).any():
            columns = [column.take(pa.array(position)) for column in columns]
        return Decoded(columns, failures, schema_ids)

    def _without_headers(
        self, values: pa.Array, page: Page, failures: dict[int, Failure]
    ) -> tuple[Numbers, Numbers, pa.Array]:
        """The rows that can be read, how long their headers are, and the schema ids of all rows. The other rows go to
        `failures`."""
        ids, known = np.zeros(len(values), np.int32), np.zeros(len(values), bool)
        lengths = np.full(len(values), -1)
        looked_up: dict[int, RegisteredSchema | None] = {}
        for header, rows in headers(values, page):
            if header.schema_id is not None:
                ids[rows], known[rows] = header.schema_id, True
            failure = header.failure or self._refused(header, looked_up)
            if failure is None:
                lengths[rows] = header.length
            else:
                failures.update(dict.fromkeys(rows.tolist(), failure))
        readable = np.flatnonzero(lengths >= 0)
        return readable, lengths[readable], pa.array(ids, mask=~known)

    def _refused(self, header: Header, looked_up: dict[int, RegisteredSchema | None]) -> Failure | None:
        """Why records with this header are not read. An id the registry does not know is asked for again next time."""
        assert self._lookup is not None and header.schema_id is not None
        schema_id = header.schema_id
        if schema_id not in looked_up:
            looked_up[schema_id] = self._lookup(schema_id) if schema_id >= 0 else None
        found = looked_up[schema_id]
        if found is None:
            return Failure(record.UNKNOWN_SCHEMA, why_unknown(self._lookup, schema_id))
        mistake = writer_mistake(found, header.indexes, self._schema)
        if mistake is None:
            return None
        kind = record.MALFORMED if isinstance(mistake, NoSuchMessage) else record.INCOMPATIBLE_SCHEMA
        return Failure(kind, shortened(f"schema {schema_id}: {mistake}"))


def _bodies(page: Page, starts: Numbers, ends: Numbers) -> list[bytes]:
    raw = page.raw
    return [raw[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


class NoSuchMessage(SchemaMistake):
    """The message indexes of a record lead to no message of its schema."""


@lru_cache(maxsize=64)
def reader_of(schema: MessageSchema) -> Reader:
    return Reader(schema.descriptor())


@lru_cache(maxsize=1024)
def writer_mistake(schema: RegisteredSchema, indexes: tuple[int, ...], reader: MessageSchema) -> SchemaMistake | None:
    """What keeps records of one message of a registered schema from being read; compiled once per worker process."""
    try:
        files = files_of(schema)
        names = names_at(FileDescriptorProto.FromString(files[-1]), indexes)
    except SchemaMistake as mistake:
        return mistake
    except RecursionError:
        return SchemaMistake("its references are nested too deeply")
    if reader.message not in names:
        return SchemaMistake(f"the record is a {' or a '.join(names)}, not a {reader.message}")
    found = conflict(MessageSchema(files, reader.message).descriptor(), reader.descriptor())
    return SchemaMistake(found) if found else None


def names_at(file: Any, indexes: tuple[int, ...]) -> list[str]:
    """The full name of the message that message indexes lead to.

    Two names are possible where a message has both maps and messages inside: a map makes a message too, which Python's
    serializer counts and Java's does not.
    """
    names = [_name_at(file, indexes, counted) for counted in (False, True)]
    found = list(dict.fromkeys(name for name in names if name))
    if not found:
        raise NoSuchMessage(f"no message at the indexes {', '.join(map(str, indexes))}")
    return found


def _name_at(file: Any, indexes: tuple[int, ...], maps_count: bool) -> str | None:
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in indexes:
        counted = [m for m in messages if maps_count or not m.options.map_entry]
        if index >= len(counted) or counted[index].options.map_entry:
            return None
        names.append(counted[index].name)
        messages = counted[index].nested_type
    return ".".join(names)
