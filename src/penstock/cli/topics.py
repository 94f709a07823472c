"""`penstock topics`: partitions, leaders, copies in sync, offsets, retention."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, table
from penstock.cli.cluster import Bootstrap, Words, chosen, topics_of_spec
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.cli.table import Column
from penstock.errors import TopicMissing, counted

if TYPE_CHECKING:
    from penstock.kafka.topics import Cluster, Partition, Topic

_SHOWN = 20  # partitions that something is wrong with; --all and --json have them all
_TOPICS = (
    Column("topic", least=16),
    Column("partitions", right=True),
    Column("copies", right=True),
    Column("in sync", right=True),
    Column("offsets", right=True),
    Column("retention", right=True),
    Column("cleanup", spare=True),
    Column("min in sync", right=True, spare=True),
    Column("leaders", spare=True, least=12),
)
_PARTITIONS = (
    Column("partition", right=True),
    Column("leader", right=True),
    Column("replicas", least=8),
    Column("in sync", least=8),
    Column("first", right=True),
    Column("end", right=True),
    Column("offsets", right=True, spare=True),
    Column("state", spare=True),
)
_WRONG = (
    Column("state"),
    Column("topic", least=16),
    Column("partition", right=True),
    Column("in sync", least=8),
    Column("replicas", least=8),
)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_SIZES = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 1000))


@app.command()
def topics(
    words: Words = None,
    bootstrap: Bootstrap = None,
    all_: Annotated[bool, typer.Option("--all", help="Every partition by itself.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show topics: partitions, copies, which of them are in sync, offsets, retention; and what is wrong with them.

    Of a spec its own topics, of a cluster all, or those that are named; '*' is every topic.
    """
    from penstock.kafka.topics import look

    at = chosen(words, bootstrap)
    of_spec = None if at.names else topics_of_spec(at)
    found = look(at.config, at.names or of_spec or (), internal=internal)
    if at.names and found.missing:
        raise TopicMissing(
            f"no topic fits {', '.join(map(repr, found.missing))}",
            cause=f"cluster {at.servers}",
            next_command=f"penstock topics --bootstrap {at.servers}",
            facts={"missing": list(found.missing)},
        )
    output.emit(document(at.servers, found), as_json, lambda: show(found, output.width(), all_=all_))


def document(bootstrap: str, found: Cluster) -> dict[str, Any]:
    """What `--json` prints. Keys stay as they are between releases; new ones may come."""
    return {
        "bootstrap": bootstrap,
        "brokers": list(found.brokers),
        "under_replicated": sum(len(topic.under_replicated) for topic in found.topics),
        "offline": sum(len(topic.offline) for topic in found.topics),
        "topics": [
            {
                "topic": topic.name,
                "id": topic.id,
                "internal": topic.internal,
                "replication": topic.replication,
                "min_in_sync": topic.min_in_sync,
                "retention_ms": _number(topic, "retention.ms"),
                "retention_bytes": _number(topic, "retention.bytes"),
                "cleanup_policy": topic.config.get("cleanup.policy"),
                "offsets": topic.offsets if topic.whole else None,
                "under_replicated": [each.number for each in topic.under_replicated],
                "offline": [each.number for each in topic.offline],
                "read_only": [each.number for each in topic.read_only],
                "silent": [each.number for each in topic.silent],
                "partitions": [
                    {
                        "partition": each.number,
                        "leader": each.leader,
                        "replicas": list(each.replicas),
                        "in_sync": list(each.in_sync),
                        "first": each.first,
                        "end": each.end,
                        "offsets": each.offsets,
                    }
                    for each in topic.partitions
                ],
            }
            for topic in found.topics
        ],
        "missing": list(found.missing),
    }


def show(found: Cluster, width: int | None, *, all_: bool) -> None:
    """The same as words."""
    if all_:
        for topic in found.topics:
            output.say(table.fitting(_title(topic), width))
            for line in table.lines(_PARTITIONS, (_partition(topic, each) for each in topic.partitions), width):
                output.say(line)
            output.say()
    elif found.topics:
        for line in table.lines(_TOPICS, map(_row, found.topics), width):
            output.say(line)
    wrong = [(topic, each) for topic in found.topics for each in topic.partitions if topic.state(each)]
    if wrong and not all_:
        output.say()
        for line in table.lines(_WRONG, (_trouble(*each) for each in wrong[:_SHOWN]), width):
            output.say(line)
        if wrong[_SHOWN:]:
            output.say(f"and {counted(len(wrong) - _SHOWN, 'partition')} more: --all shows them")
        output.say()
    for name in found.missing:
        output.say(table.fitting(f"{name} is missing: `penstock apply` creates it", width))
    output.say(_summary(found))


def _row(topic: Topic) -> tuple[object, ...]:
    fewest = min((len(each.in_sync) for each in topic.partitions), default=0)
    return (
        topic.name,
        len(topic.partitions),
        topic.replication,
        f"{fewest}/{topic.replication}",
        "≥" * (not topic.whole) + f"{topic.offsets:,}",
        _retention(topic),
        topic.config.get("cleanup.policy", "?"),
        _known(topic.min_in_sync),
        _ids(sorted({each.leader for each in topic.partitions if each.leader is not None})),
    )


def _partition(topic: Topic, each: Partition) -> tuple[object, ...]:
    return (
        each.number,
        "none" if each.leader is None else each.leader,
        _ids(each.replicas),
        _ids(each.in_sync),
        _known(each.first),
        _known(each.end),
        _count(each.offsets),
        topic.state(each) or "good",
    )


def _trouble(topic: Topic, each: Partition) -> tuple[object, ...]:
    return topic.state(each), topic.name, each.number, _ids(each.in_sync), _ids(each.replicas)


def _title(topic: Topic) -> str:
    policy = topic.config.get("cleanup.policy", "?")
    least = f"min in sync {_known(topic.min_in_sync)}"
    return (
        f"{topic.name}: {counted(len(topic.partitions), 'partition')}, retention {_retention(topic)}, {policy}, {least}"
    )


def _summary(found: Cluster) -> str:
    states = Counter(topic.state(each) for topic in found.topics for each in topic.partitions)
    partitions = states.total()
    wrong = [f"{number} {state}" for state, number in sorted(states.items()) if state]
    state = ", ".join(wrong) or ("all in sync" if partitions else "")
    said = f"{counted(len(found.topics), 'topic')}, {counted(partitions, 'partition')}{': ' * bool(state)}{state}"
    return f"{said}; brokers {_ids(found.brokers)}"


def _retention(topic: Topic) -> str:
    ms, size = _number(topic, "retention.ms"), _number(topic, "retention.bytes")
    limits = [
        *([_rounded(ms, _UNITS, "ms")] if ms is not None and ms >= 0 else []),
        *([_rounded(size, _SIZES, "B")] if size is not None and size >= 0 else []),
    ]
    return ", ".join(limits) or ("?" if ms is None else "for ever")


def _rounded(number: int, units: tuple[tuple[str, int], ...], smallest: str) -> str:
    """In the largest unit that it holds at least one of."""
    for unit, size in units:
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number} {smallest}"


def _number(topic: Topic, setting: str) -> int | None:
    try:
        return int(topic.config[setting])
    except (KeyError, ValueError):
        return None


def _known(value: int | None) -> object:
    return "?" if value is None else value


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _ids(brokers: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, brokers)) or "none"
