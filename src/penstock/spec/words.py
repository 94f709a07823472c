"""The words of a spec that every part uses: names, text, settings, and what all parts have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic_core import PydanticCustomError

NAME = r"^[a-z][a-z0-9_-]{0,62}$"
VIEW_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,127}$"
TOPIC_NAME = r"^[a-zA-Z0-9._-]{1,249}$"
DEAD_LETTER_TOPIC = r"^([a-zA-Z0-9._-]|\{topic\})+$"

Name = Annotated[str, StringConstraints(pattern=NAME)]
"""A pipeline or a sink: lower case letters, digits, `-` and `_`."""

ViewName = Annotated[str, StringConstraints(pattern=VIEW_NAME)]
"""A view in SQL: letters, digits and `_`."""

TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME)]


def _as_text(value: str | int | float | bool) -> str:
    """Kafka and Spark read text, and `True` is not what they call true."""
    return str(value).lower() if isinstance(value, bool) else str(value)


Setting = Annotated[str | int | float | bool, AfterValidator(_as_text)]
"""A value passed on to Kafka or Spark as it is; text may hold references."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string in which `${env:NAME}` and `${file:path}` are replaced when the pipeline starts."""


class Part(BaseModel):
    """Every part of a spec: unknown keys are mistakes, and a part never changes once made."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, validate_default=True)


def require_one_of(part: Part, names: Iterable[str], needs: str) -> None:
    """Raise where not exactly one of these keys is there. `needs`: who needs it, as the message begins."""
    names = list(names)
    if sum(getattr(part, name) is not None for name in names) != 1:
        raise PydanticCustomError("one_kind", f"{needs}: {', '.join(names)}")
