"""Steps in Python: a function that takes views as DataFrames and gives the new one; and how a spec names Python."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints

from penstock.spec.words import Part, ViewName

# `module:name`, for functions and classes alike.
NAMED = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
Named = Annotated[str, StringConstraints(pattern=NAMED)]


def parts(written: str) -> tuple[str, str]:
    """Module and name."""
    module, _, name = written.partition(":")
    return module, name


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class PythonStep(Part):
    """A view made by a Python function: one DataFrame in for each view of `from`, in that order, and one out. It is
    called before the start, over no rows, and for every batch, more than once: it only says what is to be computed.
    """

    function: Named = Field(
        description="`module:function`. The module is a file in the directory of the spec, or installed.",
        examples=["steps:with_risk"],
    )
    from_: Annotated[list[ViewName], BeforeValidator(_listed), Field(min_length=1)] = Field(
        alias="from", description="The view it takes, or a list of them."
    )

    @property
    def module(self) -> str:
        return parts(self.function)[0]

    @property
    def name(self) -> str:
        return parts(self.function)[1]

    @property
    def text(self) -> str:
        return f"{self.function}({', '.join(self.from_)})"
