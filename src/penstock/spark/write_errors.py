"""What the engine says when a write fails, and settings of its session that only hold for one call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


def engine_errors() -> tuple[type[Exception], ...]:
    """Errors of Spark, and those of table formats: these reach Python as Java threw them."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def said_by(error: Exception) -> str:
    """The first line that says something of what Java said."""
    return first_line(getattr(error, "java_exception", error))


def condition_of(error: Exception) -> str:
    """The name of the error, such as DELTA_CONCURRENT_APPEND; empty where it has none."""
    found = _CONDITION.search(said_by(error))
    return found[1] if found else ""


def refuses(error: Exception) -> bool:
    """Whether Spark found before running it that the write cannot be."""
    from pyspark.errors import AnalysisException

    return isinstance(error, AnalysisException)


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Settings of the session for what runs inside. For what can be said to an engine in no other way."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
