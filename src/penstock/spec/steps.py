"""Steps: how views are made from other views. One class per kind; a step is exactly one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.spec import sql_names
from penstock.spec.enrich import Enrich
from penstock.spec.python_step import PythonStep
from penstock.spec.stateful import AnyStateful, Deduplicate, Join, State, Window
from penstock.spec.words import Part, Text, ViewName, require_one_of

STATEFUL = ("window", "deduplicate", "join", "state")  # they keep state between batches
KINDS = ("sql", "python", "enrich", *STATEFUL)


class Step(Part):
    """A named view made from other views: by SQL, by a function in Python, with columns of a reference table, or by a
    step that keeps state between batches.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]})

    view: ViewName = Field(description="Name of the new view.")
    sql: Text | None = Field(None, description="A Spark SQL query over the views defined before it.")
    python: PythonStep | None = Field(None, description="A function over views defined before it.")
    enrich: Enrich | None = Field(None, description="A view with columns of a reference table beside its own.")
    window: Window | None = Field(None, description="Aggregates over windows of event time.")
    deduplicate: Deduplicate | None = Field(None, description="Rows without repetitions.")
    join: Join | None = Field(None, description="Two streams, row by row.")
    state: State | None = Field(None, description="State per key, with timers.")
    per: Literal["batch"] | None = Field(
        None,
        description="`batch`: the step is meant to group, compare, sort, limit or join the rows of one batch, without "
        "those of other batches. Without it `plan` and `run` warn of that. For steps in SQL and Python.",
    )

    @property
    def kind(self) -> str:
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def stateful(self) -> AnyStateful | None:
        """What the step keeps state for; None for a step that sees one batch at a time."""
        return self.window or self.deduplicate or self.join or self.state

    @property
    def text(self) -> str:
        """What the step does, in one line."""
        if self.sql is not None:
            return " ".join(self.sql.split())
        if self.stateful:
            return self.stateful.said()
        return str(getattr(self, self.kind).text)

    def reads(self) -> list[tuple[tuple[str | int, ...], str]]:
        """The views it surely reads, each with the place below the step that says so."""
        if self.python is not None:
            return [(("python", "from"), name) for name in self.python.from_]
        if self.enrich is not None:
            return [(("enrich", "from"), self.enrich.from_)]
        if self.stateful:
            return []  # they say themselves what is wrong (`stateful_check`)
        return [(("sql",), name) for name in sql_names.names(self.sql or "")]

    @model_validator(mode="after")
    def _one_kind(self) -> Step:
        require_one_of(self, KINDS, "a step needs exactly one of")
        if self.per is not None and not (self.sql or self.python):
            raise PydanticCustomError("per_batch", "`per: batch` is for steps in SQL and Python")
        return self


def stateful_steps(steps: Iterable[Step]) -> list[Step]:
    return [step for step in steps if step.stateful]
