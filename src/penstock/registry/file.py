"""Schema files that a spec names: .avsc, .proto, and descriptor sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.errors import CompilerFailed, ReferenceMissing, SpecUnreadable
from penstock.registry.avro.model import AvroSchemaMistake
from penstock.registry.avro.parse import parse
from penstock.registry.avro.view import view_of
from penstock.registry.protobuf import message as protobuf
from penstock.registry.protobuf.shape import struct_of
from penstock.spec.references import located

_DESCRIPTORS = (".desc", ".pb", ".bin")


def text_of(base: Path, written: str) -> str:
    return _text(path_of(base, written))


def message_of(base: Path, written: str, message: str | None) -> protobuf.MessageSchema:
    """Of a .proto file, with the imports that lie beside it, or of a descriptor set. Raises its SchemaMistake."""
    file = path_of(base, written)
    if written.endswith(_DESCRIPTORS):
        return protobuf.from_descriptor_set(_bytes(file), message or "")
    beside = {str(f.relative_to(file.parent)): _text(f) for f in file.parent.rglob("*.proto") if f != file}
    return protobuf.from_text(_text(file), message, beside)


def written_with(text: str, message: str | None = None) -> protobuf.MessageSchema:
    """The schema of what is written, which is registered as one piece. Raises SchemaMistake."""
    try:
        return protobuf.from_text(text, message)
    except protobuf.SchemaMistake:
        if not (imported := protobuf.not_bundled(text)):
            raise
        raise protobuf.SchemaMistake(
            f"it imports {', '.join(imported)}: a schema to write with must be one file, beside imports of google's"
        ) from None


def fault_of_view(base: Path, written: str, kind: str, message: str | None) -> str | None:
    """Why the file cannot be the columns of a view; `kind` is avro or protobuf."""
    if kind == "avro":
        return _fault(lambda: view_of(parse(text_of(base, written))))
    return _fault(lambda: struct_of(message_of(base, written, message).descriptor()))


def fault_to_write(base: Path, written: str, kind: str, message: str | None) -> str | None:
    """Why records cannot be written with the file, whatever the columns."""
    if kind == "avro":
        return _fault(lambda: parse(text_of(base, written)))
    return _fault(lambda: written_with(text_of(base, written), message))


def _fault(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except (AvroSchemaMistake, protobuf.SchemaMistake) as mistake:
        return str(mistake)
    except (SpecUnreadable, CompilerFailed) as error:
        return error.cause or error.what
    except ReferenceMissing:
        return None  # `check` has warned
    return None


def path_of(base: Path, written: str) -> Path:
    return located(written, base)


def _text(file: Path) -> str:
    try:
        return _bytes(file).decode()
    except UnicodeDecodeError as error:
        raise SpecUnreadable(f"{file} cannot be read", cause=f"it is not UTF-8 text: {error}") from None


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SpecUnreadable(
            f"{file} cannot be read", cause=error.strerror or str(error), next_command=f"ls -l {file}"
        ) from None
