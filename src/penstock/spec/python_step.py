"""Steps in Python: a function that takes views as DataFrames and gives the new one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints

from penstock.spec.words import Part, ViewName

FUNCTION = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class PythonStep(Part):
    """A view made by a Python function: one DataFrame in for each view of `from`, in that order, and one out. It is
    called before the start, over no rows, and for every batch, more than once: it only says what is to be computed.
    """

    function: Annotated[str, StringConstraints(pattern=FUNCTION)] = Field(
        description="`module:function`. The module is a file in the directory of the spec, or installed.",
        examples=["steps:with_risk"],
    )
    from_: Annotated[list[ViewName], BeforeValidator(_listed), Field(min_length=1)] = Field(
        alias="from", description="The view it takes, or a list of them."
    )

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    @property
    def name(self) -> str:
        return self.function.partition(":")[2]

    @property
    def text(self) -> str:
        return f"{self.function}({', '.join(self.from_)})"
