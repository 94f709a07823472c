"""The names that Spark gives to what a spec says: options of its Kafka source and sink, methods of its stream writer.

Whoever knows Spark writes them, and not always where the key stands here. `explain` looks unknown keys up in this one
table, `lint` the settings of Spark, and `reference` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.spec.mistake import Path, near, nearest

_READ = "source.topics.<topic>"
_SINK = "sinks.<sink>"
_TABLE = "references.<table>"
_PARTITIONED = tuple(f"{_SINK}.{kind}.partition_by" for kind in ("delta", "parquet", "iceberg"))
_EVOLVES = tuple(f"{_SINK}.{kind}.evolve: add-columns" for kind in ("delta", "parquet", "iceberg"))
_EMITS = ("transform[].window.emit", "transform[].state.emit")
_SERVERS = "kafka.bootstrap"

KEYS: dict[str, tuple[str, ...]] = {
    "kafka.bootstrap.servers": (_SERVERS,),
    "bootstrap.servers": (_SERVERS,),
    "subscribe": ("source.topics",),
    "subscribePattern": ("source.pattern",),
    "assign": (f"{_READ}.partitions",),
    "startingOffsets": ("source.start",),
    "startingTimestamp": ("source.start.timestamp",),
    "startingOffsetsByTimestamp": ("source.start.timestamp",),
    "startingOffsetsByTimestampStrategy": ("source.start.no_such_record",),
    "auto.offset.reset": ("source.start",),
    "failOnDataLoss": ("source.on_data_loss",),
    "minPartitions": ("source.min_partitions",),
    "maxRecordsPerPartition": ("source.max_records_per_partition",),
    "maxOffsetsPerTrigger": ("rate.max_offsets",),
    "minOffsetsPerTrigger": ("rate.min_offsets",),
    "maxTriggerDelay": ("rate.max_delay",),
    "includeHeaders": (f"{_READ}.kafka_columns: [headers]", f"{_SINK}.kafka.headers"),
    "key.deserializer": (f"{_READ}.key",),
    "value.deserializer": (f"{_READ}.value",),
    "key.serializer": (f"{_SINK}.kafka.key",),
    "value.serializer": (f"{_SINK}.kafka.value",),
    "topic": ("source.topics", f"{_SINK}.kafka.topic", "dead_letters.kafka.topic", f"{_TABLE}.kafka.topic"),
    "path": (
        f"{_SINK}.delta.path",
        f"{_SINK}.parquet.path",
        "dead_letters.delta.path",
        f"{_TABLE}.delta.path",
        f"{_TABLE}.file.path",
    ),
    "checkpointLocation": ("checkpoint",),
    "spark.sql.streaming.checkpointLocation": ("checkpoint",),
    "queryName": ("name",),
    "outputMode": _EMITS,
    "partitionBy": _PARTITIONED,
    "mergeSchema": _EVOLVES,
    "toTable": (f"{_SINK}.iceberg.table",),
    "numRows": (f"{_SINK}.console.rows",),
    "trigger": ("trigger",),
    "processingTime": ("trigger.every",),
    "availableNow": ("trigger: available-now",),
    "once": ("trigger: available-now",),
    "continuous": ("trigger: real-time",),
    "realTime": ("trigger.real_time",),
}
"""Name in Spark -> where the spec says it, and what it says there if that is always the same."""

_OFFSETS = "the checkpoint holds the offsets, and no consumer group does; `observe.mirror` copies them into one"
_END = "a spec has no end position; `penstock run FILE --from POSITION --to POSITION` sends a range, beside the stream"
_CLIENT = "settings of Kafka's clients cannot be given"
_CODE = "Penstock writes the batches; code of your own is a step, `transform[].python` or `transform[].state`"
_FETCH = "Spark's own default always holds"

NO_KEY: dict[str, str] = {
    "endingOffsets": _END,
    "endingTimestamp": _END,
    "endingOffsetsByTimestamp": _END,
    "groupIdPrefix": _OFFSETS,
    "group.id": _OFFSETS,
    "kafka.group.id": _OFFSETS,
    "enable.auto.commit": _OFFSETS,
    "kafkaConsumer.pollTimeoutMs": "without it Spark takes `spark.network.timeout`, which can stand in `spark.conf`",
    "fetchOffset.numRetries": _FETCH,
    "fetchOffset.retryIntervalMs": _FETCH,
    "interceptor.classes": _CLIENT,
    "clusterBy": "tables are partitioned: `partition_by`",
    "foreach": _CODE,
    "foreachBatch": _CODE,
}
"""Name in Spark -> why there is no key for it."""


def meant(key: str, path: Path, allowed: Iterable[str]) -> str | None:
    """What to write instead of an option of Spark's that stands at `path`; None where it is none of them. A plain word,
    such as `topic`, is sooner one of the keys that are allowed there."""
    name = _named(key)
    if name in NO_KEY:
        return f"'{name}' of Spark has no key here: {NO_KEY[name]}"
    if name is None:
        of_client = key.startswith("kafka.") or (path[:-1] == ("kafka",) and "." in key)
        return f"'{key}' has no key here: {_CLIENT}" if of_client else None
    plain_word = name.islower() and "." not in name
    return (near(key, allowed) if plain_word else None) or f"did you mean {' or '.join(_nearest(name, path))}?"


def is_option(key: str) -> bool:
    return key.lower() in {name.lower() for name in (*KEYS, *NO_KEY)}


def meant_within(options: Any, path: Path) -> str | None:
    """The same for what stands below an unknown key, such as `options`, at `path`."""
    named = [name for key in options if (name := _named(key)) in KEYS] if isinstance(options, dict) else []
    said = (f"{' or '.join(_nearest(name, path))} ({name})" for name in named if name)
    return f"did you mean {', '.join(said)}?" if named else None


def word(text: str, path: Path) -> str | None:
    """What to write instead of a name of Spark's that is the value at `path`."""
    targets = [target.partition(": ") for target in KEYS.get(_named(text) or "", ())]
    return next((f"did you mean '{value}'?" for key, _, value in targets if value and steps(key) == path), None)


def meant_places(key: str) -> Iterator[Path]:
    """The keys that an option of Spark's was to be, and those above them."""
    for target in KEYS.get(_named(key) or "", ()):
        place = steps(target)
        named = next((i for i, step in enumerate(place) if _is_name(step)), len(place))
        yield from (place[: i + 1] for i in range(named))


def steps(target: str) -> Path:
    """A target of the table as a path; a name that the spec gives stays as it is, and a list is entered at 0."""
    found: list[str | int] = []
    for step in target.partition(": ")[0].split("."):
        found += [step.removesuffix("[]"), 0] if step.endswith("[]") else [step]
    return tuple(found)


def _named(key: str) -> str | None:
    """Spark does not tell upper from lower case; others write its names with underscores, or mistype them."""
    known = {_plain(name): name for name in (*KEYS, *NO_KEY)}
    plain = _plain(key)
    found = known.get(plain) or known.get(plain.removeprefix("kafka."))
    close = nearest(plain, known, cutoff=0.9) if found is None and len(plain) > len("subscribe") else None
    return found or (known[close] if close else None)


def _plain(key: str) -> str:
    return re.sub("[_-]", "", key).lower()


def _nearest(name: str, path: Path) -> list[str]:
    """The targets that have most in common with the place where the name stands."""
    shared = {target: _shared(steps(target), path) for target in KEYS[name]}
    most = max(shared.values())
    return [f"'{_shown(target, path)}'" + _where(target, path) for target, length in shared.items() if length == most]


def _shared(place: Path, path: Path) -> int:
    """How many steps both have in common, but for the last one of each."""
    pairs = list(zip(place[:-1], path[:-1], strict=False))
    return next((i for i, (step, written) in enumerate(pairs) if not _same(step, written)), len(pairs))


def _shown(target: str, path: Path) -> str:
    """A key beside the one that is written needs no path."""
    place = steps(target)
    key, colon, value = target.partition(": ")
    return f"{place[-1]}{colon}{value}" if _is_beside(place, path) else key + colon + value


def _where(target: str, path: Path) -> str:
    place = steps(target)
    return "" if len(place) > 1 or len(path) == 1 or place == path[:1] != path else " at the top of the spec"


def _is_beside(place: Path, path: Path) -> bool:
    return len(place) == len(path) == _shared(place, path) + 1


def _same(step: str | int, written: str | int) -> bool:
    return step == written or _is_name(step) or (isinstance(step, int) and isinstance(written, int))


def _is_name(step: str | int) -> bool:
    return isinstance(step, int) or step.startswith("<")


def rows() -> Iterable[tuple[str, str]]:
    """For the reference page."""
    for name, targets in KEYS.items():
        yield name, ", ".join(f"`{target}`" for target in targets)
    yield from NO_KEY.items()
