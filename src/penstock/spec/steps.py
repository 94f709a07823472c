"""Steps: how views are made from other views. One class per kind; a step is exactly one of them."""

from __future__ import annotations

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec.words import Part, Text, ViewName

KINDS = ("sql",)


class Step(Part):
    """A named view made from other views, by SQL."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]})

    view: ViewName = Field(description="Name of the new view.")
    sql: Text | None = Field(None, description="A Spark SQL query over the views defined before it.")

    @property
    def kind(self) -> str:
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def text(self) -> str:
        """What the step does, in one line."""
        return " ".join((self.sql or "").split())

    @model_validator(mode="after")
    def _one_kind(self) -> Step:
        kinds = [name for name in KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise PydanticCustomError("one_kind", f"a step needs exactly one of: {', '.join(KINDS)}")
        return self
