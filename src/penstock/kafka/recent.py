"""Records of a topic for somebody who looks: the newest, those since a position, those to come.

Read as a committed reader sees them, without a group. The end is that of the committed records: a transaction that is
open hides what comes after its first record, and nobody waits for it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.errors import BadArgument, KafkaUnreachable, TopicMissing
from penstock.kafka import admin, connection
from penstock.kafka.connection import Config
from penstock.kafka.consume import READER, passes, position, visible
from penstock.kafka.session import session
from penstock.kafka.topics import marks
from penstock.spec.start import milliseconds

if TYPE_CHECKING:
    from confluent_kafka import Message

Bounds = dict[int, tuple[int, int]]
"""Per partition the first offset that is kept, and the end of the committed ones."""

_AT_ONCE = 500
_WIDER = 4  # how much further back is looked when the last offsets held too few records


def bounds(config: Config, topic: str, partition: int | None = None) -> tuple[Bounds, tuple[int, ...]]:
    """Of all partitions, or of one; and the partitions that do not answer, because no copy leads or its broker is away.
    Raises TopicMissing, and KafkaUnreachable where none of those asked for answers."""
    from confluent_kafka import IsolationLevel

    number = admin.partition_counts(config, [topic])[topic]
    if partition is not None and not 0 <= partition < number:
        raise TopicMissing(
            f"no partition {topic}-{partition}",
            cause=f"'{topic}' has {number}, counted from 0",
            next_command=f"penstock topics FILE {topic}",
            facts={"missing": [f"{topic}-{partition}"]},
        )
    asked = range(number) if partition is None else [partition]
    with session(config) as opened:
        found = marks(opened, [(topic, p) for p in asked], isolation_level=IsolationLevel.READ_COMMITTED)
    return readable(topic, {p: found[topic, p] for p in asked})


def readable(topic: str, found: Mapping[int, tuple[int | None, int | None]]) -> tuple[Bounds, tuple[int, ...]]:
    """The partitions that answer, with their bounds; and the others. Raises KafkaUnreachable where there are only
    others."""
    within = {p: (low, end) for p, (low, end) in found.items() if low is not None and end is not None}
    silent = tuple(p for p in found if p not in within)
    if silent and not within:
        raise KafkaUnreachable(
            f"{', '.join(f'{topic}-{p}' for p in silent[:10])} cannot be read",
            cause="no copy leads, or the broker that leads does not answer",
            next_command=f"penstock topics FILE {topic} --all",
            facts={"partitions": list(silent)},
        )
    return within, silent


def newest(config: Config, topic: str, within: Bounds, number: int) -> list[Message]:
    """The newest `number` records by their time, oldest of them first. Offsets without a record (markers, aborted and
    compacted records) are looked past."""
    kept: dict[int, list[Message]] = {}
    left, span = {p for p, (low, end) in within.items() if end > low}, number
    while left and number > 0:
        ranges = {p: (max(within[p][0], within[p][1] - span), within[p][1]) for p in left}
        found: dict[int, list[Message]] = {p: [] for p in left}
        for message in visible(config, topic, len(within), ranges):
            found[position(message)[0]].append(message)
        kept |= {p: messages[-number:] for p, messages in found.items()}
        left = {p for p in left if len(kept[p]) < number and ranges[p][0] > within[p][0]}
        span *= _WIDER
    every = [message for messages in kept.values() for message in messages]
    # By time between partitions, by offset within one: a producer may have set times that go back.
    latest: dict[int, int] = {}
    keyed = []
    for message in every:
        partition, offset = position(message)
        latest[partition] = max(latest.get(partition, 0), message.timestamp()[1])
        keyed.append((latest[partition], partition, offset, message))
    return [message for *_, message in sorted(keyed, key=lambda each: each[:3])][-number:] if number > 0 else []


def since(config: Config, topic: str, within: Bounds, text: str) -> dict[int, int]:
    """Where to begin in each partition: `earliest`, `latest`, an offset, or a time. Raises BadArgument."""
    if text in ("earliest", "latest"):
        return {p: end if text == "latest" else low for p, (low, end) in within.items()}
    if text.isdecimal():
        offset = int(text)
        if not any(low <= offset <= end for low, end in within.values()):
            raise BadArgument(
                f"there is no offset {offset}",
                cause="; ".join(_held(topic, p, *bound) for p, bound in list(within.items())[:10]),
                next_command=f"penstock topics FILE {topic} --all",
            )
        return {p: min(max(offset, low), end) for p, (low, end) in within.items()}
    try:
        moment = milliseconds(text)
    except ValueError:
        raise BadArgument(
            f"'{text}' is no position",
            cause="expected earliest, latest, an offset, or a time such as 2026-11-01T00:00:00Z",
            next_command="penstock tail --help",
        ) from None
    found = admin.offsets_at(config, {(topic, p): moment for p in within})
    return {p: end if (at := found[topic, p]) is None else min(at, end) for p, (_, end) in within.items()}


def _held(topic: str, partition: int, low: int, end: int) -> str:
    offsets = f"{low} to {end - 1}" if end > low else "no offsets"
    return f"{topic}-{partition} holds {offsets}, the next record is {end}"


def between(config: Config, topic: str, begins: dict[int, int], within: Bounds) -> Iterator[Message]:
    """The records from given offsets up to the ends, partition by partition in their order."""
    ranges = {p: (offset, within[p][1]) for p, offset in begins.items() if offset < within[p][1]}
    return visible(config, topic, len(within), ranges) if ranges else iter(())


def following(config: Config, topic: str, begins: dict[int, int]) -> Iterator[list[Message]]:
    """Records as they come, until the caller stops; brokers that are away for a while are waited for."""
    from confluent_kafka import TopicPartition

    consumer = connection.consumer({**config, **READER, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in begins.items()])
        while True:
            messages = consumer.consume(_AT_ONCE, timeout=0.5)
            wrong = [error for message in messages if (error := message.error()) is not None and not passes(error)]
            if wrong:
                raise KafkaUnreachable(
                    f"topic {topic} stopped answering", cause=wrong[0].str(), next_command="penstock ps"
                )
            yield [message for message in messages if message.error() is None]
    finally:
        consumer.close()


def chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """A few at a time, so that they are decoded together."""
    held: list[Message] = []
    for message in messages:
        held.append(message)
        if len(held) == _AT_ONCE:
            yield held
            held = []
    if held:
        yield held
