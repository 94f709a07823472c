"""A small sink that keeps the contract, and the ways to break it: the negative controls of the conformance suite.

`FileSink` is that of docs/sinks.md, and rejects rows too: a batch is one Parquet file, made beside the others and
linked to its name, which is refused where the name is taken.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from penstock.errors import SinkBusy, TableDiffers, TableOfAnotherQuery
from penstock.record import KAFKA, OUT_OF_RANGE, Batch, Failure, Known
from penstock.sinks.contract import Incoming, Rejected, Written, read_through
from penstock.testing.conformance import Traits

_WHY = Failure(OUT_OF_RANGE, "n is negative")


@dataclass(frozen=True)
class FileSink:
    """Files named <pipeline>.<query>.<batch>.parquet. Rows whose `n` is negative are rejected."""

    name: str
    path: Path
    guarantee: str = "exactly-once: a batch is one file, linked to a name that can be taken once"

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        held = [(query, number) for pipeline, query, number in self._batches() if pipeline == batch.pipeline]
        ours = [number for query, number in held if query == batch.query]
        if known.written is not None and known.written not in ours:
            raise TableDiffers(f"sink '{self.name}' has lost batch {known.written}")
        if held and not ours and TableOfAnotherQuery.code not in accepted:
            raise TableOfAnotherQuery(f"sink '{self.name}' was written under another checkpoint")

    def suits(self, incoming: Incoming) -> None: ...

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        place = self.path / f"{batch.pipeline}.{batch.query}.{batch.id}.parquet"
        if replay and place.exists():
            read_through(rows)
        else:
            self._publish(rows.toArrow(), place)
        return self._written(place)

    def _publish(self, rows: pa.Table, place: Path) -> None:
        bad = pc.fill_null(pc.less(rows["n"], 0), False) if "n" in rows.column_names else pa.array([False] * len(rows))
        refused = [_at(row[KAFKA]) for row in rows.filter(bad).to_pylist()]
        kept = rows.filter(pc.invert(bad)).replace_schema_metadata({"rejected": json.dumps(refused)})
        made = place.with_name(f".{uuid.uuid4().hex}")
        pq.write_table(kept, made)
        try:
            os.link(made, place)  # unlike a rename, refused where the name is taken
        except FileExistsError:
            raise SinkBusy(f"sink '{self.name}': somebody else has just written {place.name}") from None
        finally:
            made.unlink()

    def _written(self, place: Path) -> Written:
        found = pq.read_metadata(place)
        refused = json.loads(found.metadata[b"rejected"])
        return Written(
            found.num_rows,
            rejected=tuple(Rejected(topic, partition, offset, _WHY) for topic, partition, offset in refused),
        )

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        if column != KAFKA:
            return None
        found: dict[tuple[str, int], list[int]] = {}
        for file in sorted(self.path.glob("[!.]*.parquet")):
            for row in pq.read_table(file, columns=[KAFKA]).to_pylist():
                topic, partition, offset = _at(row[KAFKA])
                found.setdefault((topic, partition), []).append(offset)
        return found

    def holds(self, batch: Batch) -> bool:
        return (self.path / f"{batch.pipeline}.{batch.query}.{batch.id}.parquet").exists()

    def rows_by_batch(self, query: str) -> dict[int, int] | None:
        return {
            number: pq.read_metadata(self.path / f"{pipeline}.{its}.{number}.parquet").num_rows
            for pipeline, its, number in self._batches()
            if its == query
        }

    def _batches(self) -> Iterator[tuple[str, str, int]]:
        for file in self.path.glob("[!.]*.parquet"):
            pipeline, query, number, _ = file.name.split(".")
            yield pipeline, query, int(number)


def _at(origin: Mapping[str, Any]) -> tuple[str, int, int]:
    return origin["topic"], origin["partition"], origin["offset"]


@dataclass(frozen=True)
class Files:
    """The subject: any of the sinks of this file over one directory."""

    path: Path
    kind: type[FileSink] = FileSink
    traits: Traits = field(default_factory=lambda: Traits(refuses={"n": -1}))

    def sink(self) -> FileSink:
        return self.kind("files", self.path)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        files = sorted(self.path.glob("[!.]*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    def as_read(self, value: Any) -> Any:
        return value


class NotIdempotent(FileSink):
    """Writes a batch again under another name: what an append does that looks at nothing."""

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        place = self.path / f"{batch.pipeline}.{batch.query}.{batch.id}.parquet"
        while place.exists():
            place = place.with_name(f"{batch.pipeline}.{batch.query}.{time.monotonic_ns()}.parquet")
        self._publish(rows.toArrow(), place)
        return self._written(place)


class CommitsFirst(FileSink):
    """Marks the batch as done, then writes it: a crash between the two loses it."""

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        mark = self.path / f".{batch.query}.{batch.id}.done"
        place = self.path / f"{batch.pipeline}.{batch.query}.{batch.id}.parquet"
        if replay and mark.exists():
            return Written(rows.count())
        mark.touch()
        self._publish(rows.toArrow(), place)
        return self._written(place)


class WritesInParts(FileSink):
    """Every row is there in the end, and for a while only some are."""

    def _publish(self, rows: pa.Table, place: Path) -> None:
        half = len(rows) // 2
        part = place.with_name(place.name.replace(".parquet", ".part.parquet"))
        super()._publish(rows.slice(0, half), part)
        time.sleep(0.2)
        super()._publish(rows, place)
        part.unlink()


class ForgetsRejected(FileSink):
    """Leaves out what it cannot take, and does not say so."""

    def _written(self, place: Path) -> Written:
        return replace(super()._written(place), rejected=())


class CountsWhatItForgot(FileSink):
    """The same, with a count that looks right."""

    def _written(self, place: Path) -> Written:
        done = super()._written(place)
        return Written(done.all)


class LiesAboutCounts(FileSink):
    def _written(self, place: Path) -> Written:
        return Written(super()._written(place).rows + 1)


class ReadsTwice(FileSink):
    """Counts the rows, then writes them: another read of Kafka, which may give others."""

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        rows.count()
        rows.foreach(lambda _: None)
        return super().write(batch, rows, replay=replay)


class DoesNotRead(FileSink):
    """Returns at once where the batch is there already: nobody has counted what the replay is made of."""

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        place = self.path / f"{batch.pipeline}.{batch.query}.{batch.id}.parquet"
        return self._written(place) if replay and place.exists() else super().write(batch, rows, replay=replay)


class ForgetsTheQuery(FileSink):
    """Knows a batch by its number only."""

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        super().prepare(replace(batch, query="any"), known, accepted)

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        return super().write(replace(batch, query="any"), rows, replay=replay)


class TrustsThePlace(FileSink):
    """Starts whatever the ledger says."""

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        super().prepare(batch, Known(), accepted)


class LooksThenWrites(TrustsThePlace):
    """Asks whether the batch is there, and relies on the answer a moment later: a race."""

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        mark = self.path / f".{batch.query}.{batch.id}.done"
        if replay and mark.exists():
            read_through(rows)
            return self._written(Path(mark.read_text()))
        place = self.path / f"{batch.pipeline}.{batch.query}.{time.monotonic_ns()}.parquet"
        self._publish(rows.toArrow(), place)
        mark.write_text(str(place))
        return self._written(place)


class CutsTime(FileSink):
    """Keeps milliseconds, as many formats do."""

    def _publish(self, rows: pa.Table, place: Path) -> None:
        for i, column in enumerate(rows.schema):
            if pa.types.is_timestamp(column.type):
                cut = rows[column.name].cast(pa.timestamp("ms", column.type.tz), safe=False)
                rows = rows.set_column(i, column.name, cut)
        super()._publish(rows, place)


@dataclass(frozen=True)
class PromisesNothing(FileSink):
    guarantee: str = "fast and reliable"


# Which check catches it, and by which demand.
BROKEN: dict[type[FileSink], tuple[str, str]] = {
    NotIdempotent: ("replay", "no row is there twice"),
    CommitsFirst: ("crash-during-write", "nothing is lost"),
    WritesInParts: ("large-batch", "a reader sees all of a batch or nothing of it"),
    ForgetsRejected: ("rejected-row", "accounts for every row"),
    CountsWhatItForgot: ("rejected-row", "so that it becomes a dead letter"),
    LiesAboutCounts: ("first-write", "accounts for every row"),
    ReadsTwice: ("first-write", "exactly once"),
    DoesNotRead: ("replay", "exactly once"),
    ForgetsTheQuery: ("another-query", "refuses a new checkpoint"),
    TrustsThePlace: ("lost-batches", "where a batch of the ledger is missing"),
    LooksThenWrites: ("two-attempts-at-once", "no row twice"),
    CutsTime: ("every-type", "column a_timestamp of row 1 is"),
    PromisesNothing: ("guarantee", "begins with 'exactly-once' or 'at-least-once'"),
}
