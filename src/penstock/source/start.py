"""The start position as offsets. Asked for once, before the first batch; afterwards the checkpoint owns the offsets."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.log import Positions, SparkLog, as_json
from penstock.errors import StartNotThere
from penstock.kafka import admin
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import Config
from penstock.spec.source import Source
from penstock.spec.start import EARLIEST, LATEST, StartAt

_MARKER = {"earliest": EARLIEST, "latest": LATEST}


def starting_offsets(config: Config, source: Source, topics: Mapping[str, TopicFacts], log: SparkLog) -> str:
    """What Spark's `startingOffsets` takes: a word, or JSON that names every partition there is. Called once it is
    known that Kafka holds them."""
    if not isinstance(source.start, StartAt):
        return source.start
    if log.next_positions() is not None:
        return "earliest"  # Spark goes on where the checkpoint says, and does not look at it
    return as_json(resolve(config, source.start, partitions_of(source, topics)))


def marks_of(
    config: Config, source: Source, topics: Mapping[str, TopicFacts]
) -> dict[tuple[str, int], tuple[int, int]]:
    """First and next offset of every partition that is read and there."""
    marks = admin.watermarks(config, {name: facts.partitions for name, facts in topics.items()})
    return {where: marks[where] for where in partitions_of(source, topics) if where in marks}


def partitions_of(source: Source, topics: Mapping[str, TopicFacts]) -> list[tuple[str, int]]:
    found = []
    for name, facts in topics.items():
        chosen = source.topics[name].partitions if name in source.topics else None
        found += [(name, p) for p in (chosen if chosen is not None else range(facts.partitions))]
    return found


def resolve(config: Config, start: StartAt, partitions: list[tuple[str, int]]) -> Positions:
    """A position for every partition; -2 and -1 stand for the first offset and the end."""
    strange = sorted(start.places() - set(partitions))
    if strange:
        raise StartNotThere(
            "a position is given for " + ", ".join(f"{t}-{p}" for t, p in strange[:10]) + ", which is not read",
            cause="read are " + (", ".join(f"{t}-{p}" for t, p in partitions[:20]) or "no partitions"),
            next_command="correct the partition",
        )
    otherwise = _MARKER[start.others]
    if start.offsets is not None:
        given = start.offsets
        return {(t, p): given.get(t, {}).get(p, otherwise) for t, p in partitions}
    asked = {where: time for where in partitions if (time := _time(start, *where)) is not None}
    found = admin.offsets_at(config, asked)
    absent = [where for where, offset in found.items() if offset is None]
    if absent and start.no_such_record == "fail":
        raise StartNotThere(
            "no record is as new as `start` asks for in " + ", ".join(f"{t}-{p}" for t, p in absent[:10]),
            cause="every record there is older than the time given",
            next_command="choose an earlier time, or `no_such_record: latest` to begin at the end of such partitions",
            facts={"partitions": [f"{t}-{p}" for t, p in absent]},
        )
    positions = {where: LATEST if offset is None else offset for where, offset in found.items()}
    return {where: positions.get(where, otherwise) for where in partitions}


def _time(start: StartAt, topic: str, partition: int) -> int | None:
    if not isinstance(start.timestamp, dict):
        return start.timestamp
    of_topic = start.timestamp.get(topic)
    return of_topic.get(partition) if isinstance(of_topic, dict) else of_topic
