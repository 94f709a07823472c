"""What a spec says, in short: the path of a record and the routes out of it. References stay as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.batch.output import Outlet
from penstock.kafka.admin import TopicFacts
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.kafka.stock import StockKafkaSink
from penstock.spec.local_path import plain
from penstock.spec.model import Budget, Pipeline
from penstock.spec.real_time import batch_of
from penstock.spec.rules import Rule
from penstock.spec.sinks import Target, target_of
from penstock.spec.steps import Step

_TOGETHER = "the rows of one input partition stay in one task, and say where they came from"
_ASKED = "the spec asks for it"


@dataclass(frozen=True)
class SourceTopic:
    topic: str
    partitions: int | None  # 0 where it is missing, None where Kafka did not say
    format: str
    key: str | None
    view: str


@dataclass(frozen=True)
class Route:
    """Where rows of a view go, and what is guaranteed for them; of dead letters there is no view."""

    name: str
    view: str | None
    where: str | None
    target: Target
    guarantee: str | None = None  # None while something is wrong with the route
    mode: str | None = None  # of Kafka sinks: which way of writing was chosen,
    why: str | None = None  # and why not the other


@dataclass(frozen=True)
class Path:
    pattern: str | None  # that topics are read by; then `topics` are those there are
    topics: list[SourceTopic]
    rules: list[tuple[str, Rule]]  # with the view they are about
    steps: list[Step]
    budget: Budget | Literal["none"] | None = None  # how many records may die


def path_of(pipeline: Pipeline, there: Mapping[str, TopicFacts] | None) -> Path:
    """`there`: the topics of the cluster; None where Kafka did not answer."""
    source, facts = pipeline.source, there or {}
    names = sorted(name for name in facts if source.reads_topic(name)) if source.pattern else list(source.topics)
    topics = []
    for name in names:
        view = source.view_of(name)
        read = source.reads()[view]
        size = None if there is None else facts[name].partitions if name in facts else 0
        topics.append(SourceTopic(name, size, read.value.format, read.key.format if read.key else None, view))
    rules = [(view, rule) for view, rules in pipeline.contract.items() for rule in rules]
    by = source.pattern.match if source.pattern else None
    budget = "none" if batch_of(pipeline.trigger) is not None else pipeline.dead_letters.budget
    return Path(by, topics, rules, list(pipeline.transform), budget)


def routes_of(pipeline: Pipeline, outlets: Iterable[Outlet], dead_letters: str | None) -> list[Route]:
    """In the order of the spec, the dead letters last. Sinks that were told their columns say how they write."""
    made = {outlet.sink.name: outlet.sink for outlet in outlets}
    routes = []
    for name, sink in pipeline.sinks.items():
        said = _said(made[name]) if name in made else {}
        routes.append(Route(name, sink.from_, sink.where, target_of(sink), **said))
    to = pipeline.dead_letters
    target = Target("kafka", to.kafka.topic) if to.kafka else Target("delta", plain(to.delta.path) if to.delta else "")
    return [*routes, Route("dead letters", None, None, target, dead_letters)]


def _said(sink: object) -> dict[str, Any]:
    match sink:
        case KafkaSink(mode=None):
            return {}
        case KafkaSink():
            return {"guarantee": sink.guarantee, "mode": sink.mode, "why": sink.why or _TOGETHER}
        case StockKafkaSink():
            return {"guarantee": sink.guarantee, "mode": "at-least-once", "why": _ASKED}
    return {"guarantee": getattr(sink, "guarantee", None)}
