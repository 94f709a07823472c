"""Real-time mode: records are sent on one by one, in milliseconds, and what a pipeline must be for that.

The engine's real-time mode runs no Python worker, keeps no state between records, takes no limits on what a batch
reads, and writes to Kafka at least once. What of this shows in a spec is refused here, with its line; what only shows
in the plan of a query (`lifecycle/realtime/plan.py`) is refused by `plan` and by a start.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from penstock.spec.duration import Duration
from penstock.spec.formats import AnyFormat, BytesFormat, JsonFormat, StringFormat
from penstock.spec.sinks import KINDS, EncodeAvro, EncodeProtobuf, Sink
from penstock.spec.words import Part

if TYPE_CHECKING:
    from penstock.spec.model import Pipeline

WORD = "real-time"
BATCH = timedelta(minutes=5)
"""How long a batch lasts. Between two of them records wait for a quarter of a second; after a crash, and after a stop,
the records of one are sent again."""
_SHORTEST = timedelta(seconds=1)

_Mistake = tuple[tuple[str | int, ...], str, list[str]]


class RealTime(Part):
    """Records are sent on one by one, with batches of another length than 5m."""

    real_time: Duration = Field(
        description="How long a batch lasts, at least 1s: what is sent again after a stop or a crash is at most what "
        "came in that time; between two batches records wait for some tenths of a second.",
        examples=["1m"],
    )

    @field_validator("real_time")
    @classmethod
    def _long_enough(cls, batch: timedelta) -> timedelta:
        if batch < _SHORTEST:
            raise PydanticCustomError("duration", "a batch of real-time mode lasts at least 1s")
        return batch


def batch_of(trigger: object) -> timedelta | None:
    """How long a batch lasts; None where the trigger is not real-time."""
    if isinstance(trigger, RealTime):
        return trigger.real_time
    return BATCH if trigger == WORD else None


def real_time_mistakes(spec: Pipeline) -> list[_Mistake]:
    """What a pipeline with this trigger cannot have: where, why, and nothing instead."""
    if batch_of(spec.trigger) is None:
        return []
    return [(at, f"not in real-time mode: {why}", []) for at, why in _reasons(spec)]


def _reasons(spec: Pipeline) -> Iterator[tuple[tuple[str | int, ...], str]]:
    yield from _of_source(spec)
    for view, rules in spec.contract.items():
        for i, rule in enumerate(rules):
            if rule.otherwise == "stop":
                why = "records are sent on before a batch ends, so `stop` could not come before them"
                yield ("contract", view, i, "otherwise"), why
            if rule.unique:
                yield ("contract", view, i, "unique"), "each record is judged by itself"
    for i, step in enumerate(spec.transform):
        for name in sorted(step.model_fields_set - {"view", "sql"}):
            if getattr(step, name) is not None:
                yield ("transform", i, name), _of_step(name)
    for name, sink in spec.sinks.items():
        yield from _of_sink(name, sink)
    if spec.dead_letters.delta:
        yield ("dead_letters", "delta"), "dead letters go to Kafka with the other records; write `kafka:`"
    if spec.dead_letters.allowed:
        why = "a budget judges a batch before it is written, and records are sent on before the batch ends"
        yield ("dead_letters", "budget"), why
    for name in sorted(spec.rate.model_fields_set):
        yield ("rate", name), "nothing limits what a batch reads: it lasts a fixed time"


def _of_source(spec: Pipeline) -> Iterator[tuple[tuple[str | int, ...], str]]:
    source = spec.source
    if source.pattern:
        why = "each partition needs a task of its own at all times, so topics cannot join later; name one topic"
        yield ("source", "pattern"), why
    for name in list(source.topics)[1:]:
        yield ("source", "topics", name), "one topic is read, in one scan; make a pipeline for each"
    for name in ("min_partitions", "max_records_per_partition"):
        if getattr(source, name):
            yield ("source", name), "each partition is read by one task"
    for at, how in source.formats().items():
        if why := _of_format(how):
            yield at, why


def _of_format(how: AnyFormat) -> str:
    """Formats that the engine alone can read with the results of our own decoders; others are refused."""
    if isinstance(how, StringFormat | BytesFormat):
        return ""
    if isinstance(how, JsonFormat):
        return "" if how.schema_ is not None else "a schema of the registry is followed by Python; declare `schema:`"
    return f"{how.format} is decoded in Python workers, and none runs; json with a schema, string and bytes can be read"


def _of_step(name: str) -> str:
    if name in ("python", "function", "call"):
        return "a function in Python needs a Python worker, and none runs"
    return f"a step is plain SQL that keeps rows one for one, without state: `{name}` is more than that"


def _of_sink(name: str, sink: Sink) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if sink.kafka is None:
        kind = next((each for each in KINDS if getattr(sink, each, None) is not None), "sink")
        yield ("sinks", name, kind), "sinks are Kafka topics; others are written batch by batch"
        return
    if sink.kafka.guarantee != "at-least-once":
        at: Any = ("sinks", name, "kafka", *(["guarantee"] if "guarantee" in sink.kafka.model_fields_set else []))
        yield at, "what is sent on is sent at least once: write `guarantee: at-least-once` to say that you know"
    for at, how in sink.formats(name).items():
        if isinstance(how, EncodeAvro | EncodeProtobuf):
            yield at, f"{how.format} is written in Python workers, and none runs; json, string and bytes can be written"
