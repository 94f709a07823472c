"""What a pipeline subscribes to: the spec's topics as Spark's options, and what they stand for right now."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from penstock.errors import TopicMissing
from penstock.kafka import admin
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import Config
from penstock.spec.source import Pattern, Source


@dataclass(frozen=True)
class Subscription:
    options: dict[str, str]
    topics: dict[str, TopicFacts]
    held: tuple[str, ...] = ()  # matching topics that wait for somebody to let them in


def subscribe(config: Config, source: Source, known: Collection[str] = (), *, accept_new: bool = False) -> Subscription:
    """Called once per start. `known` are the topics this pipeline has read before: with `new_topics: hold` no others
    are read, unless they are accepted."""
    if source.pattern:
        return _by_pattern(config, source.pattern, set() if accept_new else set(known))
    facts = admin.require_topics(config, source.topics, read=known)
    if all(topic.partitions is None for topic in source.topics.values()):
        return Subscription({"subscribe": ",".join(source.topics)}, facts)
    wanted = {name: topic.partitions or [] for name, topic in source.topics.items()}
    absent = [f"{name}-{p}" for name, some in wanted.items() for p in some if p >= facts[name].partitions]
    if absent:
        raise TopicMissing(
            f"no partition {', '.join(absent)}",
            cause="; ".join(f"'{name}' has {facts[name].partitions}" for name in wanted),
            next_command="correct `partitions` in the spec",
            facts={"missing": absent},
        )
    return Subscription({"assign": json.dumps(wanted)}, facts)


def _by_pattern(config: Config, pattern: Pattern, known: set[str]) -> Subscription:
    there = {name: facts for name, facts in admin.topics(config).items() if pattern.matches(name)}
    if not there:
        raise TopicMissing(
            f"no topic matches '{pattern.match}'"
            + (f" and is one of {', '.join(pattern.only)}" if pattern.only else ""),
            cause=f"cluster {config['bootstrap.servers']}",
            next_command="create one, or correct `pattern` in the spec",
        )
    if pattern.new_topics == "hold":
        read = {name: facts for name, facts in there.items() if name in known} if known else there
        return Subscription({"subscribe": ",".join(read)}, read, tuple(sorted(there.keys() - read.keys())))
    # Spark looks for the pattern anywhere in a name: unanchored, `payments` would read `payments.DLT` too, for ever.
    names = "|".join(map(re.escape, pattern.only)) or pattern.match
    return Subscription({"subscribePattern": f"^(?:{names})$"}, there)
