"""What is wrong with a document, place by place, from what pydantic says of it.

pydantic reports a union once per branch, and its places name those branches. Here a place is walked along the data, so
that branch names fall away and the branches meet again. What is left then is settled in three steps:

    1. A union is settled by the branch that got further into the data: `{real_time: 1m}` is not also "no text".
    2. What only another branch asks for, or does not know, is no mistake where something else is wrong beside it.
    3. A mistyped key is one mistake, not also a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from pydantic_core import ErrorDetails

from penstock.spec import shape, spark_options
from penstock.spec.mistake import Path, nearest

_TAGS = ("format", "type")  # keys that tell the kinds of a union of parts apart
_MISSING, _UNKNOWN = "missing", "extra_forbidden"


@dataclass
class Cause:
    """The errors of one place; more than one when the place is a union."""

    path: Path
    key: bool  # it is the key that is wrong
    errors: list[ErrorDetails] = field(default_factory=list)
    of_another: bool = False  # one of them is of a branch that the data does not mean

    @property
    def about_keys(self) -> bool:
        """Whether it is about which keys there are, and not about a value."""
        return all(error["type"] in (_MISSING, _UNKNOWN) for error in self.errors)

    @property
    def missing(self) -> bool:
        return self.errors[0]["type"] == _MISSING

    @property
    def unknown(self) -> bool:
        return all(error["type"] == _UNKNOWN for error in self.errors)


def causes(errors: Iterable[ErrorDetails], data: Any, root: shape.Part, own: Iterable[str]) -> Iterator[Cause]:
    """In the order pydantic found them. `own`: kinds of errors that validators of ours raise, which are more to the
    point than that another branch expected text."""
    found: dict[Path, Cause] = {}
    deeper: set[Path] = set()
    for error in map(_named_tag, errors):
        path, unions, is_key = _walk(error["loc"], data)
        cause = found.setdefault(path, Cause(path, is_key))
        cause.errors.append(error)
        cause.of_another |= path[:-1] in unions and _of_another_branch(error, path, data, root)
        deeper.update(union for union in unions if union != path)
    told = {cause.path[:-1] for cause in found.values() if cause.path and not (cause.of_another and cause.about_keys)}
    meant = set(_meant(found.values(), root))
    for cause in found.values():
        of_another = cause.of_another and cause.path[:-1] in told  # else keys of two branches are there at once
        if cause.missing and (of_another or cause.path in meant):
            continue
        if cause.unknown and of_another:
            continue
        ours = [error for error in cause.errors if error["type"] in own]
        if ours or cause.path not in deeper:
            yield Cause(cause.path, cause.key, ours or cause.errors)


def keys_at(root: shape.Part, path: Path) -> list[str]:
    """Those of every branch."""
    return _keys(shape.parts_at(root, path))


def keys_of_kind(root: shape.Part, path: Path, data: Any) -> tuple[str | None, list[str]]:
    """What the data says it is, where a key of it tells the branches apart, and the keys of that branch."""
    inside, parts = _at(data, path), shape.parts_at(root, path)
    for tag in _TAGS:
        meant = [part for part in parts if inside.get(tag) in get_args(shape.keys(part).get(tag))]
        if meant:
            return f"{tag} {inside[tag]}", _keys(meant)
    return None, _keys(parts)


def _keys(parts: Iterable[shape.Part]) -> list[str]:
    return list(dict.fromkeys(key for part in parts for key in shape.keys(part)))


def _meant(found: Iterable[Cause], root: shape.Part) -> Iterator[Path]:
    """The keys that unknown ones were probably meant to be."""
    for cause in found:
        if cause.errors[0]["type"] == _UNKNOWN:
            key = nearest(str(cause.path[-1]), keys_at(root, cause.path[:-1]))
            if key is not None:
                yield (*cause.path[:-1], key)
            yield from spark_options.meant_places(str(cause.path[-1]))


def _of_another_branch(error: ErrorDetails, path: Path, data: Any, root: shape.Part) -> bool:
    """Whether the data can be of a branch that would not say so: `{real_time: 1m}` needs no `every`, and `every` is not
    unknown because the branch with `real_time` does not have it."""
    inside, known = _at(data, path[:-1]), keys_at(root, path[:-1])
    if any(step in inside.values() for step in error["loc"] if isinstance(step, str)):
        return False  # the data itself says which branch it is: `format: csv` is read as nothing else
    if error["type"] == _MISSING:
        return any(nearest(key, known) is not None or any(spark_options.meant_places(key)) for key in inside)
    return error["type"] == _UNKNOWN and path[-1] in known


def _at(data: Any, path: Path) -> dict[str, Any]:
    for step in path:
        data = data[step]
    return cast("dict[str, Any]", data)


def _walk(loc: tuple[int | str, ...], data: Any) -> tuple[Path, list[Path], bool]:
    """The place in the data, the unions passed on the way, and whether it is the key that is wrong."""
    path: Path = ()
    unions: list[Path] = []
    for i, step in enumerate(loc):
        last = i == len(loc) - 1
        if _holds(data, step):
            data = data[step]
            path = (*path, step)
        elif step == "[key]" and last:
            return path, unions, True
        elif last and isinstance(data, dict) and step not in map(data.get, _TAGS) and not _is_branch(step):
            return (*path, step), unions, False  # a key that is not there
        else:
            unions.append(path)
    return path, unions, False


def _holds(data: Any, step: str | int) -> bool:
    if isinstance(data, dict):
        return isinstance(step, str) and step in data
    return isinstance(data, list) and isinstance(step, int) and step < len(data)


def _named_tag(error: ErrorDetails) -> ErrorDetails:
    """A kind that is missing or unknown, as a mistake at the key that says it."""
    if error["type"] not in ("union_tag_not_found", "union_tag_invalid"):
        return error
    tag = {**error, "loc": (*error["loc"], error["ctx"]["discriminator"].strip("'"))}
    if error["type"] == "union_tag_not_found":
        return cast(ErrorDetails, {**tag, "type": _MISSING})
    said = error["ctx"]
    return cast(
        ErrorDetails,
        {**tag, "type": "literal_error", "input": said["tag"], "ctx": {"expected": said["expected_tags"]}},
    )


def _is_branch(step: str | int) -> bool:
    """Names pydantic gives the branches of the unions in the model; keys are lower case words."""
    text = str(step)
    return text in ("str", "int", "float", "bool") or "[" in text or text[:1].isupper()
