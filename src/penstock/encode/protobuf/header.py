"""The registry's header before a Protobuf message: 0, the schema id, and which message of the schema it is.

How it looks is told in `decode.protobuf.header`. Messages are counted as Java's serializer does it: those that a map
makes are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

from penstock.encode.arrow.wire import header_of as id_header
from penstock.encode.arrow.wire import varint
from penstock.registry.protobuf.message import MessageSchema


def header_of(schema: MessageSchema, schema_id: int) -> bytes:
    indexes = indexes_of(schema)
    if indexes == [0]:
        return id_header(schema_id) + b"\0"
    return id_header(schema_id) + b"".join(varint(2 * number) for number in (len(indexes), *indexes))  # zig-zag


def indexes_of(schema: MessageSchema) -> list[int]:
    """The way to the message: its place in its file, or that of the message it is in, and then its place in there."""
    for data in reversed(schema.files):
        file = FileDescriptorProto.FromString(data)
        names = schema.message.removeprefix(f"{file.package}." if file.package else "").split(".")
        indexes = list(_way(file.message_type, names))
        if len(indexes) == len(names):
            return indexes
    raise AssertionError(schema.message)


def _way(messages: Any, names: list[str]) -> Iterable[int]:
    counted = [message for message in messages if not message.options.map_entry]
    for i, message in enumerate(counted):
        if names and message.name == names[0]:
            yield i
            yield from _way(message.nested_type, names[1:])
