"""Keys of a format that would do nothing where they stand: whoever writes one expects something of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.spec.formats import AvroFormat, FromRegistry, JsonFormat, ProtobufFormat

if TYPE_CHECKING:
    from penstock.spec.source import Source

_FROM_FILE = "does nothing beside `schema`, which is the schema that is read with: remove one of the two"
_NO_IDS = "does nothing here, because these records do not name a schema: remove it"
_OF_A_VALUE = "does nothing on a key, because it is about null values: say it on the value"


def idle_keys(source: Source) -> Iterator[tuple[tuple[str | int, ...], str, list[str]]]:
    for at, how in source.formats().items():
        why: dict[str, str] = {}
        if at[-1] == "key":
            why["tombstones"] = _OF_A_VALUE
        if isinstance(how, FromRegistry) and getattr(how, "schema_", None) is not None:
            why["version"] = _FROM_FILE
            if isinstance(how, AvroFormat | ProtobufFormat):
                why["subject"] = _FROM_FILE
            if isinstance(how, JsonFormat) or getattr(how, "wire", None) == "raw":
                why["unreadable"] = _NO_IDS
        for name, text in why.items():
            # What only repeats the default asks for nothing; a spec that was written out whole has all of them.
            if getattr(how, name) != type(how).model_fields[name].default:
                yield (*at, name), f"`{name}` {text}", []
