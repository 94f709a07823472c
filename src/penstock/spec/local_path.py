"""Paths in a spec: files and directories of this machine, written plainly, as `file:///x` or as `~/x`.

A URI that is taken for a relative path makes a directory called `s3:`, and data lies where nobody looks for it. So a
scheme is never part of a path: what cannot be reached is a mistake, in `check` and at a start alike. `./s3:/x` is the
directory of that name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/|(file):", re.IGNORECASE)
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.IGNORECASE | re.DOTALL)
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)(?=/)")
_PATTERN = r"^(?!(?![Ff][Ii][Ll][Ee]:)[A-Za-z][A-Za-z0-9+.-]*:/)"  # for editors: of schemes only `file:`


class Fault(NamedTuple):
    why: str
    instead: str


def fault(text: str) -> Fault | None:
    """Why a text is not a path on this machine. Of a text with references, only what shows before they are resolved."""
    if text != text.strip():
        return Fault("it has blanks at its ends", f"write {text.strip()}")
    scheme = _SCHEME.match(text)
    if scheme and scheme[0].lower().startswith("file:"):
        if "${" in text or _FILE.fullmatch(text):
            return None
        if text[5:7] == "//":
            return Fault("`file://` and a name is a file on another machine", "one on this machine is `file:///...`")
        return Fault("a path with `file:` must be absolute", "write `file:///...`, or the path without `file:`")
    if scheme:
        return Fault(
            f"object stores and other remote file systems (`{scheme[1]}:`) are not supported yet",
            "write a path on this machine, such as `lake/x`, `/data/x`, `file:///data/x` or `~/x`",
        )
    if variable := _VARIABLE.match(text):
        return Fault(f"{variable[0]} is not replaced here", f"write ${{env:{variable[1]}}}")
    if text.startswith("~") and "${" not in text and os.path.expanduser(text) == text:  # noqa: PTH111  Path drops `./`
        user = text.partition("/")[0]
        return Fault(f"there is no home directory {user}", f"write ./{user} for a directory of that name")
    return None


def plain(text: str) -> str:
    """The path that a text without a fault means."""
    if found := _FILE.fullmatch(text):
        return unquote(found[1])
    return os.path.expanduser(text)  # noqa: PTH111  Path takes `./~` for `~`


def _local(text: str) -> str:
    if found := fault(text):
        raise PydanticCustomError("path", "{why}", {"why": found.why, "hint": found.instead})
    return text


LOCAL = AfterValidator(_local)
LocalPath = Annotated[
    str,
    StringConstraints(min_length=1),
    LOCAL,
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": _PATTERN}),
]
"""A file or directory, as it is written. `references.located` says where it is."""


def written_in(part: BaseModel, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every path in a part of a spec: its place there, and its text."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name, None)
        yield from _paths(value, (*at, field.alias or name), is_path((field.annotation, *field.metadata)))


def is_path(annotations: Any) -> bool:
    """Whether one of these annotations, or one inside of them, is a path."""
    return any(each is LOCAL or is_path(_inside(each)) for each in annotations)


def _inside(annotation: Any) -> tuple[Any, ...]:
    return (*getattr(annotation, "__args__", ()), *getattr(annotation, "__metadata__", ()))


def _paths(value: Any, at: tuple[str | int, ...], path: bool) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str) and path:
        yield at, value
    elif isinstance(value, BaseModel):
        yield from written_in(value, at)
    elif isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(each, (*at, key), path)
