"""Penstock: production Kafka <-> Spark pipelines from one declarative spec.

from penstock import Pipeline, run, verify

pipeline = Pipeline.load("payments.yaml")      # or Pipeline(name=..., kafka=..., ...): the same model
run(pipeline, until_caught_up=True)
assert verify(pipeline).complete
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.lifecycle.stream import run
    from penstock.spec.model import Pipeline
    from penstock.verification.verify import verify

__all__ = ["PenstockError", "Pipeline", "__version__", "run", "verify"]

_HOME = {
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.spec.model",
    "run": "penstock.lifecycle.stream",
    "verify": "penstock.verification.verify",
}


def __getattr__(name: str) -> Any:
    """Names are loaded when they are asked for, so that `import penstock` costs nothing and needs no engine."""
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
