"""Protobuf descriptors from what people have: .proto text, a registered schema, a descriptor set.

All of them become a `MessageSchema`: the compiled files, each after the files it imports, and the name of one message.
It pickles, so the driver compiles once and the workers only load. Every load has a pool of its own: two registries may
mean different things by the same name.

Text is compiled by the protoc inside grpcio-tools, in a process of its own, so no text can take the worker down. Only
the text itself is written to disk, under a name of ours; what it imports is handed over compiled. So the names of
imports never become paths, and nothing but the references and the files that come with protobuf can be imported.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from penstock.errors import CompilerFailed, first_line
from penstock.registry.client.schema import RegisteredSchema

PROTOC_SECONDS = 30  # protoc needs 0.05; a text that keeps it longer is not one
NO_NAME = "_penstock_.proto"  # of the schema itself; nothing may import it
# Where the files that registries leave out of a schema's references come from. Those of google come with protobuf.
_BUNDLED = {
    "google/protobuf/": "google.protobuf.",
    "google/type/": "google.type.",
    "confluent/": "confluent_kafka.schema_registry.confluent.",
}


class SchemaMistake(ValueError):
    """What was given is not a Protobuf schema, or has no such message; the message says what was found instead."""


@dataclass(frozen=True)
class MessageSchema:
    """A message type with all the files it needs, compiled. Pickles; made by the functions below."""

    files: tuple[bytes, ...]  # FileDescriptorProtos, each after those it imports
    message: str  # full name

    def descriptor(self) -> Any:
        """The message's Descriptor, in a pool of its own."""
        return pool_of(self.files).FindMessageTypeByName(self.message)


def from_text(text: str, message: str | None = None, imports: Mapping[str, str] | None = None) -> MessageSchema:
    """A schema from .proto text; `imports` are the texts of the files it imports, by the name it imports them by."""
    texts = dict(imports or {})

    def referred(of: str, above: tuple[str, ...]) -> tuple[tuple[str, RegisteredSchema], ...]:
        found = [name for name in _imported(of) if name in texts]
        for name in found:
            if name in above:
                raise SchemaMistake(f"files import each other: {' -> '.join([*above, name])}")
        return tuple((n, RegisteredSchema(0, "PROTOBUF", texts[n], referred(texts[n], (*above, n)))) for n in found)

    return from_registered(RegisteredSchema(0, "PROTOBUF", text, referred(text, ())), message)


def from_registered(schema: RegisteredSchema, message: str | None = None) -> MessageSchema:
    """A schema from the registry: .proto text, or the base64 FileDescriptorProto that confluent-kafka registers."""
    files = files_of(schema)
    return MessageSchema(files, named(FileDescriptorProto.FromString(files[-1]), message))


def from_descriptor_set(data: bytes, message: str) -> MessageSchema:
    """A schema from the output of `protoc --descriptor_set_out`, with or without `--include_imports` of google's."""
    try:
        found = {file.name: file for file in FileDescriptorSet.FromString(data).file}
    except DecodeError as error:
        raise SchemaMistake(f"not a descriptor set: {error}") from None
    ordered: dict[str, bytes] = {}
    for name in found:
        _add_with_imports(name, found, ordered, ())
    matches = [full for file in found.values() for full in _messages(file) if message in (full, full.split(".")[-1])]
    if len(matches) != 1 and message not in matches:
        raise SchemaMistake(f"{'more than one' if matches else 'no'} message '{message}' in the descriptor set")
    files = tuple(ordered.values())
    pool_of(files)
    return MessageSchema(files, message if message in matches else matches[0])


def same(one: bytes, other: bytes) -> bool:
    """Whether two compiled files say the same. Their own names do not count, and the JSON names of fields neither:
    protoc writes them down, its Python classes do not."""
    return bool(_bare(one) == _bare(other))


def _bare(file: bytes) -> Any:
    found = FileDescriptorProto.FromString(file)
    found.ClearField("name")
    found.ClearField("source_code_info")
    messages = list(found.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in (*message.field, *message.extension):
            field.ClearField("json_name")
    for field in found.extension:
        field.ClearField("json_name")
    return found


def named(file: Any, message: str | None) -> str:
    """The full name of a message of a file, which may be given without its package; None for the only one there is."""
    names = list(_messages(file))
    if message is None:
        top = [n for n in names if n.removeprefix(f"{file.package}.").count(".") == 0]
        if len(top) == 1:
            return top[0]
    elif message in names:
        return message
    elif file.package and f"{file.package}.{message}" in names:
        return f"{file.package}.{message}"
    wanted = "name the message" if message is None else f"no message '{message}' in the schema"
    raise SchemaMistake(f"{wanted}; it has: {', '.join(names) or 'none'}")


def pool_of(files: Iterable[bytes]) -> Any:
    pool = DescriptorPool()
    for file in files:
        try:
            pool.AddSerializedFile(file)
        except (TypeError, ValueError, DecodeError) as error:
            name = FileDescriptorProto.FromString(file).name
            raise SchemaMistake(f"'{name}' is not a valid Protobuf file: {error}") from None
    return pool


@lru_cache(maxsize=256)
def files_of(schema: RegisteredSchema) -> tuple[bytes, ...]:
    """The compiled files of a registered schema, itself last."""
    if schema.kind != "PROTOBUF":
        raise SchemaMistake(f"the schema is {schema.kind}, not PROTOBUF")
    ordered: dict[str, bytes] = {}
    _compile(NO_NAME, schema, ordered, ())
    pool_of(ordered.values())
    return tuple(ordered.values())


def _compile(name: str, schema: RegisteredSchema, ordered: dict[str, bytes], above: tuple[str, ...]) -> None:
    """Add a schema's file to `ordered`, after those it refers to."""
    if name in above:
        raise SchemaMistake(f"files import each other: {' -> '.join([*above, name])}")
    for reference, referred in schema.references:
        if _bundled(reference) is None:
            _compile(reference, referred, ordered, (*above, name))
    compiled = _from_base64(schema.text)
    imported = list(compiled.dependency) if compiled else _imported(schema.text)
    for dependency in imported:
        _add_with_imports(dependency, {}, ordered, ())
    if compiled is None:
        compiled = FileDescriptorProto.FromString(_protoc(schema.text, tuple(ordered.values())))
    compiled.name = name
    missing = [dependency for dependency in compiled.dependency if dependency not in ordered]
    if missing:
        raise SchemaMistake(f"imported, but not among the references: {', '.join(missing)}")
    data = compiled.SerializeToString()
    if ordered.setdefault(name, data) != data:
        raise SchemaMistake(f"'{name}' is referred to in two versions")


def _add_with_imports(name: str, given: Mapping[str, Any], ordered: dict[str, bytes], above: tuple[str, ...]) -> None:
    """Add a file that comes with protobuf, or one of `given`, to `ordered` after its imports. Unknown ones are left."""
    file = _bundled(name) or given.get(name)
    if file is None or name in ordered:
        return
    if name in above:
        raise SchemaMistake(f"files import each other: {' -> '.join([*above, name])}")
    for dependency in file.dependency:
        _add_with_imports(dependency, given, ordered, (*above, name))
    ordered[name] = file.SerializeToString()


def _bundled(name: str) -> Any:
    """A file that comes with protobuf, with googleapis-common-protos or with confluent-kafka; None for another."""
    prefix = next((p for p in _BUNDLED if name.startswith(p)), None)
    stem = re.fullmatch(r"([a-z0-9_]+(?:/[a-z0-9_]+)*)\.proto", name.removeprefix(prefix or ""))
    if prefix is None or stem is None:
        return None
    try:
        module = importlib.import_module(f"{_BUNDLED[prefix]}{stem[1].replace('/', '.')}_pb2")
    except ImportError:
        return None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    file.name = name
    return file


def _from_base64(text: str) -> Any:
    """The FileDescriptorProto that a text is the base64 of; None for .proto text: base64 knows no `;` or `{`."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    return file if file.message_type or file.enum_type or file.dependency or file.extension else None


def _imported(text: str) -> list[str]:
    """Names that stand behind `import`. One in a comment does no harm: a file too many is at hand."""
    return re.findall(r"""\bimport\s+(?:public\s+|weak\s+)?["']([^"'\n]+)["']""", text)


def not_bundled(text: str) -> list[str]:
    """The files that a text imports and that do not come with protobuf."""
    return [name for name in _imported(text) if _bundled(name) is None]


def _messages(file: Any) -> Iterable[str]:
    """Full names of all messages of a file, in the order of the file, the nested ones after the one they are in."""

    def walk(prefix: str, messages: Iterable[Any]) -> Iterable[str]:
        for message in messages:
            if not message.options.map_entry:
                yield prefix + message.name
                yield from walk(f"{prefix}{message.name}.", message.nested_type)

    return walk(f"{file.package}." if file.package else "", file.message_type)


@lru_cache(maxsize=256)
def _protoc(text: str, imports: tuple[bytes, ...]) -> bytes:
    """The FileDescriptorProto of a text. The compiler is trusted with no path, no name, and no endless time."""
    with tempfile.TemporaryDirectory(prefix="penstock-protoc-") as directory:
        home, source = Path(directory), Path(directory, "source")
        source.mkdir()  # all that an import can reach on disk: the text, which may not import itself
        (source / NO_NAME).write_text(text, encoding="utf-8", errors="surrogatepass")
        known = FileDescriptorSet(file=[FileDescriptorProto.FromString(data) for data in imports])
        (home / "imports").write_bytes(known.SerializeToString())
        command = [
            # -P: nothing in the working directory may be taken for a Python module
            *(sys.executable, "-P", "-m", "grpc_tools.protoc"),
            *(f"--descriptor_set_in={home / 'imports'}", f"--proto_path={source}"),
            *(f"--descriptor_set_out={home / 'compiled'}", str(source / NO_NAME)),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PROTOC_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _no_compiler("protoc could not be run", str(error)) from None
        if done.returncode != 0:
            said = _complaints(done.stderr.decode("utf-8", "replace"), source)
            # Whatever protoc has against a text, it names the file; a missing module or a kill does not.
            if NO_NAME not in said:
                raise _no_compiler("protoc failed", said)
            raise SchemaMistake(f"protoc: {_without_name(said)}")
        return bytes(FileDescriptorSet.FromString((home / "compiled").read_bytes()).file[0].SerializeToString())


def _no_compiler(what: str, said: str) -> CompilerFailed:
    return CompilerFailed(
        what,
        cause=first_line(said) or "it said nothing",
        next_command=f"try it where it failed: {Path(sys.executable).name} -m grpc_tools.protoc --version",
    )


def _without_name(said: str) -> str:
    """Our name for the file means nothing to anybody."""
    return re.sub(rf"{re.escape(NO_NAME)}:(\d+:\d+)", r"line \1", said).replace(NO_NAME, "the schema")


def _complaints(stderr: str, directory: Path) -> str:
    lines = [line.replace(f"{directory}/", "") for line in stderr.splitlines()]
    said = [line for line in lines if line and not re.match(r"WARNING: All log|[WI]\d{4} ", line)]
    return "; ".join(said) or "it failed without a word"
