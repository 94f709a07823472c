"""Replays on the disk: which letters each of them took, and how far it came.

A replay is a query of its own, under `<checkpoint>/replay/<name>`, in the form of Spark's checkpoint. Beside the
offsets each batch has the list of its letters, and until it is committed their bytes: the topic of dead letters may
forget them before the replay ends.

    spark/metadata      its id, what was asked for, when
    spark/offsets/N     ranges that hold the letters of batch N, with gaps
    spark/chosen/N      one line per letter: where it came from, the deaths it answers, the sinks that have it already
    spark/letters/N     the letters themselves, until batch N is committed
    spark/commits/N     batch N is done
    ledger/             an entry per batch, as for a stream
"""

from __future__ import annotations

import heapq
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from penstock.checkpoint import own_log
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import Positions, SparkLog
from penstock.deadletters.as_line import from_line, to_line
from penstock.deadletters.dead_letter import DeadLetter
from penstock.record import REPLAY, Position
from penstock.spec.model import Pipeline

Key = tuple[str, int, int, int]
"""Topic, partition, offset and time of a record: a topic that was made again has other records at the same offsets."""

LETTERS_PER_BATCH = 10_000
BYTES_PER_BATCH = 32_000_000


@dataclass(frozen=True)
class Chosen:
    """A letter on the list of a replay."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    queries: list[str]  # under which the record had died by then; a later death is another matter
    spared: list[str]  # sinks that have the record already

    @property
    def key(self) -> Key:
        return self.topic, self.partition, self.offset, self.timestamp_ms

    @property
    def position(self) -> Position:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class Replay:
    name: str
    home: Home

    @property
    def log(self) -> SparkLog:
        return SparkLog(self.home.spark)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home.spark / "metadata").read_text())
        return found

    @property
    def query(self) -> str:
        return str(self.metadata["id"])

    @property
    def wanted(self) -> dict[str, Any]:
        found: dict[str, Any] = self.metadata["wanted"]
        return found

    @property
    def batches(self) -> range:
        return range((self.log.planned() or 0) + 1)

    @property
    def left(self) -> range:
        """Batches that are not committed."""
        committed = self.log.committed()
        return range(0 if committed is None else committed + 1, self.batches.stop)

    def chosen(self, batch: int) -> list[Chosen]:
        lines = (self.home.spark / "chosen" / str(batch)).read_text(encoding="utf-8").splitlines()
        return [Chosen(**json.loads(line)) for line in lines]

    def letters(self, batch: int) -> list[DeadLetter]:
        file = self.home.spark / "letters" / str(batch)
        with file.open(encoding="utf-8") as lines:
            return [from_line(line) for line in lines]

    def entries(self) -> dict[int, Entry]:
        return {entry.batch: entry for entry in Ledger(self.home.ledger).entries()}

    def commit(self, batch: int) -> None:
        own_log.commit(self.home.spark, batch)
        (self.home.spark / "letters" / str(batch)).unlink(missing_ok=True)  # in the sinks now, or dead again


def left_out_before(entry: Entry, spared: Iterable[Sequence[str]]) -> dict[str, int]:
    """By sink: records of a batch that steps and conditions left out. `spared`, for each record that came as far: the
    sinks that have it already. The ledger counts those with the dropped, since they made no row either."""
    held = Counter(sink for sinks in spared for sink in sinks)
    found = {name: (count.dropped or 0) - held[name] for name, count in entry.sinks.items()}
    return {name: dropped for name, dropped in found.items() if dropped > 0}


def found(pipeline: Pipeline) -> list[Replay]:
    """Those that were written down, the oldest first."""
    directory = Home.of(pipeline).path / "replay"
    homes = [Home(d) for d in directory.iterdir() if (d / "spark" / "metadata").is_file()] if directory.is_dir() else []
    return sorted((Replay(h.path.name, h) for h in homes), key=lambda each: str(each.metadata["made"]))


def next_name(there: Iterable[Replay]) -> str:
    return str(max((int(each.name) for each in there if each.name.isdigit()), default=0) + 1)


def write_down(replay: Replay, wanted: dict[str, Any], letters: Sequence[tuple[Chosen, DeadLetter]]) -> None:
    """The list, fixed before anything is sent. Of one position there must be one letter only."""
    first: Positions = {}
    for chosen, _ in letters:
        where = chosen.topic, chosen.partition
        first[where] = min(chosen.offset, first.get(where, chosen.offset))
    batches = list(cut(letters))
    at, ends = dict(first), []
    for batch in batches:
        for chosen, _ in batch:
            at[chosen.topic, chosen.partition] = chosen.offset + 1
        ends.append(dict(at))
    metadata = {
        "id": f"{REPLAY}{uuid.uuid4()}",
        "wanted": wanted,
        "made": datetime.now(UTC).isoformat(timespec="microseconds"),
    }
    with own_log.written_down(replay.home.spark, metadata, first, ends) as new:
        for directory in ("chosen", "letters"):
            (new / directory).mkdir()
        for number, batch in enumerate(batches):
            with own_log.synced(new / "chosen" / str(number)) as out:
                out.writelines(json.dumps(asdict(chosen)) + "\n" for chosen, _ in batch)
            with own_log.synced(new / "letters" / str(number)) as out:
                out.writelines(to_line(letter) for _, letter in batch)


def cut(letters: Iterable[tuple[Chosen, DeadLetter]]) -> Iterator[list[tuple[Chosen, DeadLetter]]]:
    """Batches of bounded size: by offset within a partition, by time between partitions."""
    by_partition: dict[tuple[str, int], list[tuple[Chosen, DeadLetter]]] = {}
    for each in letters:
        by_partition.setdefault((each[0].topic, each[0].partition), []).append(each)
    ordered = [sorted(part, key=lambda each: each[0].offset) for part in by_partition.values()]
    batch: list[tuple[Chosen, DeadLetter]] = []
    size = 0
    for each in heapq.merge(*ordered, key=lambda each: each[0].timestamp_ms):
        more = size_of(each[1])
        if batch and (len(batch) >= LETTERS_PER_BATCH or size + more > BYTES_PER_BATCH):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += more
    if batch:
        yield batch


def size_of(letter: DeadLetter) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value or b"") + headers
