"""A good spec, and what tests ask about one."""

from __future__ import annotations

from penstock.spec.fields import Schema
from penstock.spec.formats import JsonFormat
from penstock.spec.load import declared
from penstock.spec.mistake import Mistake
from penstock.spec.model import Pipeline

GOOD = """\
penstock: 1
name: payments
kafka:
  bootstrap: localhost:9092
source:
  topics:
    payments:
      value:
        format: json
        schema: {fields: {amount: double}}
transform:
  - view: settled
    sql: select * from payments
sinks:
  lake:
    from: settled
    delta: {path: lake/payments}
"""


def schema_of(pipeline: Pipeline, view: str) -> Schema:
    how = pipeline.source.reads()[view].value
    assert isinstance(how, JsonFormat)
    assert how.schema_ is not None
    return declared(pipeline.base, how.schema_)


def short(mistakes: list[Mistake]) -> list[tuple[int, str, str]]:
    return [(m.line, m.path, m.code) for m in mistakes]
