"""What is sound in a spec that has mistakes, so that all of them show in the same run.

`load` calls this when the model refused the data. Every part that is sound by itself is taken over: topics, rules,
references, steps, sinks. Of any other there are only the names, taken without any check. What could be said only
because a part is not known is not said: a mistake is told once, where it is. The result is good for checks and for
nothing else.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from penstock.spec import shape
from penstock.spec.cross import CrossMistake, cross_check
from penstock.spec.enrich import ReferenceTable
from penstock.spec.formats import StringFormat
from penstock.spec.mistake import nearest
from penstock.spec.model import DeadLetters, Kafka, Pipeline, Rate, Spark
from penstock.spec.real_time import batch_of
from penstock.spec.registry import Registry
from penstock.spec.rules import Rule
from penstock.spec.sinks import DeltaTable, Sink
from penstock.spec.source import Source, Topic
from penstock.spec.steps import STATEFUL, Step

_Part = TypeVar("_Part", bound=BaseModel)
_NO_STATE = dict.fromkeys(STATEFUL)
_TOP: dict[str, Any] = shape.keys(Pipeline)


def cross_mistakes(data: Any) -> list[CrossMistake]:
    """What does not fit together. Nothing where the name of a view may be mistyped: that is one mistake, and not one
    more at each place that uses it."""
    return cross_check(pipeline(data)) if _names_known(data) else []


def pipeline(data: Any) -> Pipeline:
    """The sound parts in their places, each with those that are not as little more than a name."""
    written, sinks_written = _list(data, "transform"), _mappings(data, "sinks")
    steps, sinks = [_sound(Step, each) for each in written], {n: _sound(Sink, s) for n, s in sinks_written.items()}
    # What is asked of a chain of stateful steps, and of its sinks, can only be asked where all of them are known.
    known = None not in steps and None not in sinks.values()
    source = _top(data, "source", None)
    trigger = _top(data, "trigger", "available-now")
    return Pipeline.model_construct(
        name="",
        kafka=_top(data, "kafka", Kafka.model_construct(bootstrap="")),
        registry=_top(data, "registry", Registry.model_construct(url="")),
        source=source or _source(_mapping(data, "source")),
        contract={
            view: [_sound(Rule, rule) or _rule(rule, i) for i, rule in enumerate(rules)]
            for view, rules in _mapping(data, "contract").items()
            if isinstance(rules, list)
        },
        references={
            name: _sound(ReferenceTable, table) or ReferenceTable.model_construct()
            for name, table in _mappings(data, "references").items()
        },
        transform=[
            step if step and (known or not step.stateful) else _step(each)
            for step, each in zip(steps, written, strict=True)
        ],
        sinks={
            name: sinks[name] or _sink(name, each)
            for name, each in sinks_written.items()
            if isinstance(each.get("from"), str) and (known or not _late(each["from"], written))
        },
        dead_letters=_top(data, "dead_letters", DeadLetters.model_construct(kafka=None, delta=None)),
        rate=_top(data, "rate", Rate()),
        trigger=trigger if (known and source) or batch_of(trigger) is None else "available-now",
        spark=_top(data, "spark", Spark.model_construct(master="", conf={})),  # a name in SQL may be a table there
    )


def _names_known(data: Any) -> bool:
    source, keys = _mapping(data, "source"), list(shape.keys(Pipeline))
    topics = _mappings(source, "topics").values()
    mistyped = {nearest(str(key), keys) for key in _mapping(data) if key not in keys}
    return (
        bool(topics if "topics" in source else _top(data, "source", None))
        and not ("topics" in source and "pattern" in source)
        and not mistyped & {"source", "transform", "references"}
        and all("view" in topic or set(topic) <= set(shape.keys(Topic)) for topic in topics)
        and all(isinstance(_mapping(step).get("view"), str) for step in _list(data, "transform"))
    )


def _sound(model: type[_Part], data: Any) -> _Part | None:
    try:
        return model.model_validate(data, strict=True, by_alias=True, by_name=False)
    except ValidationError:
        return None


def _top(data: Any, name: str, otherwise: Any) -> Any:
    """A part at the top of the file, or its default. `otherwise`: it is not sound, or has to be there and is not."""
    field = Pipeline.model_fields[name]
    if name not in _mapping(data):
        return otherwise if field.is_required() else field.get_default(call_default_factory=True)
    try:
        return TypeAdapter(_TOP[name]).validate_python(_mapping(data)[name], strict=True, by_alias=True, by_name=False)
    except ValidationError:
        return otherwise


def _source(data: dict[str, Any]) -> Source:
    topics = {name: _sound(Topic, topic) or _topic(topic) for name, topic in _mappings(data, "topics").items()}
    return Source.model_construct(pattern=None, start="earliest", topics=topics)


def _topic(topic: dict[str, Any]) -> Topic:
    view = topic.get("view")
    return Topic.model_construct(
        view=view if isinstance(view, str) else None,
        value=StringFormat.model_construct(format="string"),
        key=None,
        partitions=[] if "partitions" in topic else None,
    )


def _rule(rule: Any, place: int) -> Rule:
    return Rule.model_construct(name=_text(_mapping(rule).get("name"), f"\0{place}"), rule="")


def _step(step: Any) -> Step:
    return Step.model_construct(view=_text(_mapping(step).get("view"), ""), sql="", **_NO_STATE)


def _sink(name: str, sink: dict[str, Any]) -> Sink:
    # A path that is missing is a mistake of its own; the sink's name stands in for it.
    path = _text(_mapping(sink, "delta").get("path"), f"\0{name}")
    return Sink.model_construct(from_=sink["from"], delta=DeltaTable.model_construct(path=path))


def _late(view: str, steps: list[Any]) -> bool:
    """Views of late rows come with steps that keep state, of which nothing is taken over but the name."""
    return any(view.startswith(f"{_mapping(step).get('view')}_late") and "sql" not in _mapping(step) for step in steps)


def _text(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) and value else otherwise


def _mapping(data: Any, key: str | None = None) -> dict[str, Any]:
    found = data.get(key) if key is not None and isinstance(data, dict) else data
    return found if isinstance(found, dict) else {}


def _mappings(data: Any, key: str) -> dict[str, dict[str, Any]]:
    return {name: _mapping(value) for name, value in _mapping(data, key).items()}


def _list(data: Any, key: str) -> list[Any]:
    found = _mapping(data).get(key)
    return found if isinstance(found, list) else []
