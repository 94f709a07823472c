"""The data files of an Iceberg table, found without Spark: a snapshot names a list of manifests, those name the files.

Both are Avro files; the little of Avro that they use is read here.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_REMOVED = 2  # status of a manifest's entry
_DATA, _DELETES = 0, 1  # content of a manifest


def local(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))


def data_files(manifest_list: str) -> list[Path] | None:
    """Files of a snapshot; None when rows of them were deleted apart, or they are not Parquet."""
    found = []
    for manifest in records(local(manifest_list)):
        if manifest.get("content", _DATA) == _DELETES:
            return None
        for entry in records(local(manifest["manifest_path"])):
            file = entry["data_file"]
            if entry["status"] == _REMOVED:
                continue
            if file["file_format"].lower() != "parquet":
                return None
            found.append(local(file["file_path"]))
    return found


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of an Avro file."""
    data = io.BytesIO(path.read_bytes())
    if data.read(4) != b"Obj\x01":
        raise ValueError(f"{path} is not an Avro file")
    meta = _read({"type": "map", "values": "bytes"}, data, {})
    schema, sync = json.loads(meta["avro.schema"]), data.read(16)
    named: dict[str, Any] = {}
    _name(schema, named)
    unpack = _CODECS[meta.get("avro.codec", b"null").decode()]
    while data.tell() < data.getbuffer().nbytes:
        count, size = _long(data), _long(data)
        block = io.BytesIO(unpack(data.read(size)))
        for _ in range(count):
            yield _read(schema, block, named)
        if data.read(16) != sync:
            raise ValueError(f"{path} is damaged")


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": lambda block: zlib.decompress(block, wbits=-15),
}


def _name(schema: Any, named: dict[str, Any]) -> None:
    """Types that are referred to by name later on."""
    if isinstance(schema, list):
        for branch in schema:
            _name(branch, named)
    elif isinstance(schema, dict):
        if "name" in schema and schema["type"] in ("record", "fixed", "enum"):
            named[schema["name"]] = schema
        for inner in (schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", []))):
            _name(inner, named)


def _read(schema: Any, data: io.BytesIO, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return _read(schema[_long(data)], data, named)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, (dict, list)):
        return _read(kind, data, named)
    if kind == "record":
        return {field["name"]: _read(field["type"], data, named) for field in schema["fields"]}
    if kind == "array":
        return [_read(schema["items"], data, named) for _ in _items(data)]
    if kind == "map":
        return {data.read(_long(data)).decode(): _read(schema["values"], data, named) for _ in _items(data)}
    if kind == "fixed":
        return data.read(schema["size"])
    return _PLAIN[kind](data) if kind in _PLAIN else _read(named[kind], data, named)


def _items(data: io.BytesIO) -> Iterator[None]:
    while count := _long(data):
        if count < 0:  # a block that says its size
            count = -count
            _long(data)
        for _ in range(count):
            yield None


def _long(data: io.BytesIO) -> int:
    shift = number = 0
    while True:
        (byte,) = data.read(1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7


_PLAIN: dict[str, Callable[[io.BytesIO], Any]] = {
    "null": lambda _: None,
    "boolean": lambda data: data.read(1) == b"\x01",
    "int": _long,
    "long": _long,
    "float": lambda data: struct.unpack("<f", data.read(4))[0],
    "double": lambda data: struct.unpack("<d", data.read(8))[0],
    "bytes": lambda data: data.read(_long(data)),
    "string": lambda data: data.read(_long(data)).decode(),
}
