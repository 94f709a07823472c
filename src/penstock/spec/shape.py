"""What the model allows at a place of a spec: read off the pydantic classes, so that it is written only
there.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from penstock.spec.mistake import Path

Part = type[BaseModel]


def keys(part: Part) -> dict[str, Any]:
    """Key as written in YAML -> the field's annotation, in the model's order."""
    return {field.alias or name: field.annotation for name, field in part.model_fields.items()}


def branches(annotation: Any) -> Iterator[Any]:
    """The plain types an annotation stands for: `Annotated` opened, unions spread."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from branches(get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for each in get_args(annotation):
            yield from branches(each)
    else:
        yield annotation


def is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def parts_at(root: Any, path: Path) -> list[Part]:
    """The models that can stand at `path` below `root`; none when the path leads out of the model."""
    here = list(branches(root))
    for step in path:
        here = [each for annotation in here for each in _below(annotation, step)]
    return [each for each in here if is_part(each)]


def _below(annotation: Any, step: str | int) -> Iterator[Any]:
    origin = get_origin(annotation)
    if is_part(annotation):
        found = keys(annotation).get(str(step))
        if found is not None:
            yield from branches(found)
    elif origin is dict:
        yield from branches(get_args(annotation)[1])
    elif origin is list and isinstance(step, int):
        yield from branches(get_args(annotation)[0])
