"""Many Protobuf records in one message, `repeated M record = 1`, so that protobuf's runtime takes them in one call.

Records laid one behind the other, each after its tag and length, are such a message. It is parsed, rid of what the
schema does not have and written again, which is what three calls per record would do, in a fraction of the time.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

RECORDS = "record"
_TAG = b"\x0a"  # field 1, a length follows
_PACKAGE = "penstock_bundle"


class Bundle:
    """Bundles of messages of one type. Made once per schema and worker process."""

    def __init__(self, descriptor: Any) -> None:
        file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
        file.dependency.append(descriptor.file.name)
        add_to(file, f".{descriptor.full_name}")
        pool = descriptor.file.pool
        pool.AddSerializedFile(file.SerializeToString())
        self._make = GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Bundle"))

    def written_again(self, bodies: list[bytes]) -> bytes | None:
        """A bundle of these records without unknown fields, or nothing where one of them, or all as one, is refused."""
        message = self._make()
        try:
            message.ParseFromString(bundled(bodies))
            message.DiscardUnknownFields()
            written: bytes = message.SerializeToString()
        except Exception:  # which record it is, and why, is found out one by one
            return None
        return written


def add_to(file: Any, message: str) -> str:
    """Declare, in a file, the bundle of a message; its name there."""
    declared = file.message_type.add(name="Bundle")
    declared.field.add(
        name=RECORDS,
        number=1,
        label=FieldDescriptorProto.LABEL_REPEATED,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=message,
    )
    return f"{file.package}.Bundle"


def bundled(bodies: list[bytes]) -> bytes:
    lengths = list(map(len, bodies))
    fronts = {length: _front(length) for length in set(lengths)}
    return b"".join(chain.from_iterable(zip(map(fronts.__getitem__, lengths), bodies, strict=True)))


def _front(length: int) -> bytes:
    front = bytearray(_TAG)
    while length > 0x7F:
        front.append(length & 0x7F | 0x80)
        length >>= 7
    front.append(length)
    return bytes(front)
