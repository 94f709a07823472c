"""The names in a spec that has mistakes, so that mistakes between its parts show in the same run.

`load` calls this when the model refused the data. Only names are taken over, without any check; the result is
good for `cross_check` and for nothing else. Where a name itself is missing, nothing can be said about its
uses.
"""

from __future__ import annotations

from typing import Any

from penstock.spec import shape
from penstock.spec.cross import CrossMistake, cross_check
from penstock.spec.formats import StringFormat
from penstock.spec.model import DeadLetters, Kafka, Pipeline
from penstock.spec.rules import Rule
from penstock.spec.sinks import DeltaTable, Sink
from penstock.spec.source import Source, Topic
from penstock.spec.steps import STATEFUL, Step

_NO_STATE = dict.fromkeys(STATEFUL)


def cross_mistakes(data: Any) -> list[CrossMistake]:
    topics = _mappings(_mapping(data, "source"), "topics")
    steps = _list(data, "transform")
    # A view whose name is mistyped is one mistake, not one more at each place that uses it.
    names_known = all(set(topic) <= set(shape.keys(Topic)) for topic in topics.values()) and all(
        isinstance(_mapping(step).get("view"), str) for step in steps
    )
    if not topics or not names_known:
        return []
    spec = Pipeline.model_construct(
        name="",
        kafka=Kafka.model_construct(bootstrap=""),
        source=Source.model_construct(
            pattern=None, start="earliest", topics={name: _topic(topic) for name, topic in topics.items()}
        ),
        contract={
            view: [Rule.model_construct(name=rule["name"], rule="") for rule in rules]
            for view, rules in _mapping(data, "contract").items()
            if isinstance(rules, list) and all(map(_named, rules))
        },
        transform=[Step.model_construct(view=step["view"], sql="", **_NO_STATE) for step in steps],
        sinks={
            name: Sink.model_construct(
                from_=sink["from"],
                # A path that is missing is a mistake of its own; the sink's name stands in for it.
                delta=DeltaTable.model_construct(path=_text(_mapping(sink, "delta").get("path"), f"\0{name}")),
                parquet=None,
                iceberg=None,
                postgres=None,
                kafka=None,
                console=None,
                memory=None,
            )
            for name, sink in _mappings(data, "sinks").items()
            if isinstance(sink.get("from"), str) and not _late(sink["from"], steps)
        },
        dead_letters=DeadLetters.model_construct(kafka=None, delta=None),
    )
    return cross_check(spec)


def _late(view: str, steps: list[Any]) -> bool:
    """Views of late rows come with steps that keep state, of which nothing is taken over but the name."""
    return any(view.startswith(f"{step['view']}_late") and "sql" not in step for step in steps)


def _topic(topic: dict[str, Any]) -> Topic:
    view = topic.get("view")
    value = StringFormat.model_construct(format="string")
    return Topic.model_construct(view=view if isinstance(view, str) else None, value=value, key=None, partitions=None)


def _named(rule: Any) -> bool:
    return isinstance(_mapping(rule).get("name"), str)


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
