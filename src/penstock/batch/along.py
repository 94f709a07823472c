"""Dead letters in the transaction of their input partition, where SQL lies between decode and a Kafka sink.

A record that dies leaves the plan before the first step: the worker that sends never sees it. But by partition decode,
steps and sending are one task, on one machine, so its two workers can share a file (`LetterFile`):

    1. The worker that decodes writes the letters of what dies into a file of the task, and ends it with its rows.
    2. The worker that sends gets its last row after that. It sends the letters of the file behind the rows.
    3. Rows that it cannot encode, and records that a step is known to fail on, it reads from Kafka again.
    4. Rows, letters and the partition's offset are committed together, or not at all.

A task that is run again has another number, and so another file. (Without SQL between, one worker does all of it:
`one_pass`.)
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch.fused.letters import Posted, letters, not_plain
from penstock.batch.fused.way import native_judge
from penstock.batch.fused.worker import Judge
from penstock.batch.output import Outlet
from penstock.batch.source_view import Inlet
from penstock.decode.worker import RAW_KEY, RAW_VALUE, DecodeBatches
from penstock.errors import SinkFailed, counted
from penstock.kafka.consume import headers_of, position, visible
from penstock.kafka.transaction import Place
from penstock.record import KAFKA, ON_REQUEST, ORIGIN, Batch, Failure, Position
from penstock.sinks.contract import Written
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.kafka.worker import Letter
from penstock.spec.model import Pipeline
from penstock.transform.steps import Transform

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame

T = TypeVar("T")
_AT_ONCE = 1000  # records that are read again: all that a sink refuses may be too many
_FETCHED = tuple(f"{KAFKA}_{name}" for name in (*ORIGIN, *ON_REQUEST))
_TYPES = {
    f"{KAFKA}_partition": pa.int32(),
    f"{KAFKA}_offset": pa.int64(),
    f"{KAFKA}_timestamp": pa.timestamp("us", tz="UTC"),
    f"{KAFKA}_timestamp_type": pa.int32(),
    f"{KAFKA}_headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    f"{KAFKA}_topic": pa.string(),
}


@dataclass(frozen=True)
class LetterFile:
    """A file between two workers of one task: the input partition, then letters, a list at a time. In a directory that
    Spark removes when the executor ends."""

    query: str
    batch: int

    @contextmanager
    def writing(self) -> Iterator[Callable[[Place | list[Letter]], None]]:
        file = self._file()
        file.parent.mkdir(parents=True, exist_ok=True)
        for other in file.parent.parent.iterdir():
            if int(other.name) < self.batch:  # of tasks that failed before anybody took what they left
                shutil.rmtree(other, ignore_errors=True)
        with file.open("wb") as out:
            yield lambda what: pickle.dump(what, out, protocol=5)

    def reading(self) -> Iterator[Any]:
        try:
            with self._file().open("rb") as found, suppress(EOFError):
                while True:
                    yield pickle.load(found)
        except FileNotFoundError:
            raise _elsewhere() from None

    def done(self) -> None:
        self._file().unlink(missing_ok=True)

    def _file(self) -> Path:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None  # in a worker
        directory = os.environ.get("SPARK_LOCAL_DIRS", gettempdir()).split(",")[0]
        return Path(directory) / "penstock-letters" / self.query / str(self.batch) / str(task.taskAttemptId())


@dataclass(frozen=True)
class KeepLetters:
    """In the worker that decodes: its rows as they are, and the letters of what dies into the file. Pickles."""

    decode: DecodeBatches
    kept: tuple[str, ...]  # columns that go on
    judge: Judge
    deadly: frozenset[str]
    letters: Posted
    to: LetterFile

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadly, told = pa.array(list(self.deadly), pa.string()), False
        with self.to.writing() as put:
            for batch in self.decode(batches):
                if batch.num_rows and not told:
                    where = self.letters.origins.places(batch.slice(0, 1))[0]
                    put((where["topic"], where["partition"]))
                    told = True
                verdict = self.judge(batch)
                if verdict is not None and pc.any(died := pc.is_in(verdict, deadly)).as_py():
                    put(self.letters.died(batch.filter(died), verdict.filter(died)))
                yield batch.select(list(self.kept))


@dataclass(frozen=True)
class KeptLetters:
    """In the worker that sends (`sinks.kafka.worker.Behind`). Pickles."""

    config: dict[str, str]
    decode: DecodeBatches  # for records that are read again
    letters_of: Posted
    of: LetterFile
    sink: str
    failing: Mapping[Position, Failure]  # records that a step fails on

    def place(self) -> Place | None:
        found: Place | None = next(self.of.reading(), None)
        return found

    def letters(self, place: Place, refused: list[dict[str, Any]]) -> Iterator[list[Letter]]:
        yield from self._died(place)
        for rows, why_not in self._fetched(place, {each["offset"]: each for each in refused}):
            yield self.letters_of.refused(rows, self.sink, why_not)
        for rows, failures in self._fetched(place, self._failing(place)):
            yield self.letters_of.failed(rows, self.sink, failures)
        self.of.done()

    def count(self, place: Place, refused: list[dict[str, Any]]) -> int:
        died = sum(map(len, self._died(place)))
        self.of.done()
        return died + len(refused) + len(self._failing(place))

    def _died(self, place: Place) -> Iterator[list[Letter]]:
        said = self.of.reading()
        if next(said, place) != place:
            raise _elsewhere()
        yield from said

    def _failing(self, place: Place) -> dict[int, Failure]:
        return {at[2]: why for at, why in self.failing.items() if at[:2] == place}

    def _fetched(self, place: Place, wanted: Mapping[int, T]) -> Iterator[tuple[pa.RecordBatch, list[T]]]:
        """Records of one partition as decode gives them, with what is known of each by its offset; many at a time."""
        if not wanted:
            return
        topic, partition = place
        found: dict[int, Message] = {}
        left = len(wanted)
        for message in visible(self.config, topic, 0, {partition: (min(wanted), max(wanted) + 1)}):
            offset = position(message)[1]
            if offset in wanted:
                found[offset] = message
            if len(found) == _AT_ONCE or (found and len(found) == left):
                left -= len(found)
                yield next(iter(self.decode([_raw(topic, found.values())]))), [wanted[each] for each in found]
                found = {}
        if left:
            raise SinkFailed(
                f"{counted(left, 'dead record')} of {topic}-{partition} {'is' if left == 1 else 'are'} gone from Kafka",
                cause="they expired, or the topic was made again, while their batch was written",
                next_command="penstock lag FILE shows what is left; nothing more of that partition was sent",
            )


def _elsewhere() -> SinkFailed:
    return SinkFailed(
        "records were decoded in another task than the one that sends them",
        cause="a step moves rows between tasks, or keeps them",
        next_command="set `guarantee: exactly-once-by-batch`",
    )


def _raw(topic: str, messages: Iterable[Message]) -> pa.RecordBatch:
    """What Spark's source would have handed to decode."""
    columns: dict[str, list[Any]] = {name: [] for name in (RAW_VALUE, RAW_KEY, *_FETCHED) if name != f"{KAFKA}_value"}
    for message in messages:
        partition, offset = position(message)
        kind, milliseconds = message.timestamp()
        row = {
            RAW_VALUE: message.value(),
            RAW_KEY: message.key(),
            f"{KAFKA}_topic": topic,
            f"{KAFKA}_partition": partition,
            f"{KAFKA}_offset": offset,
            f"{KAFKA}_timestamp": milliseconds * 1000,
            f"{KAFKA}_timestamp_type": kind - 1,  # the client counts from 1, Kafka and Spark from 0
            f"{KAFKA}_key": message.key(),
            f"{KAFKA}_headers": [{"key": key, "value": value} for key, value in headers_of(message)],
        }
        for name, values in columns.items():
            values.append(row[name])
    return pa.RecordBatch.from_arrays(
        [pa.array(values, _TYPES.get(name, pa.binary())) for name, values in columns.items()], names=list(columns)
    )


@dataclass(frozen=True)
class Along:
    """A pipeline that qualifies: its one inlet and its one sink."""

    inlet: Inlet
    sink: KafkaSink
    judge: Judge
    letters: Callable[[Batch], Posted]

    def judged(self, raw: DataFrame, batch: Batch) -> DataFrame:
        deadly, posted, to = frozenset(self.inlet.contract.deadly), self.letters(batch), _file_of(batch)
        return self.inlet.judged(
            raw, wrapped=lambda decode, kept: KeepLetters(decode, kept, self.judge, deadly, posted, to)
        )

    def write(self, batch: Batch, rows: DataFrame, failing: Mapping[Position, Failure], *, replay: bool) -> Written:
        decode = replace(self.inlet.decode.worker(with_raw=True), passed_on=_FETCHED)
        behind = KeptLetters(
            self.sink.config, decode, self.letters(batch), _file_of(batch), self.sink.name, dict(failing)
        )
        return self.sink.write(batch, rows, replay=replay, behind=behind)


def _file_of(batch: Batch) -> LetterFile:
    return LetterFile(batch.query, batch.id)


def along(
    pipeline: Pipeline, transform: Transform, inlets: list[Inlet], outlets: list[Outlet], *, kept: str
) -> Along | str | None:
    """How dead letters go along with the rows, or why they cannot; None where there is nothing to go along with. Asked
    when sinks know what they get. `kept`: why the rows
    of a batch are kept (`settling.uncountable`)."""
    sinks = [outlet.sink for outlet in outlets if isinstance(outlet.sink, KafkaSink)]
    by_partition = [sink for sink in sinks if sink.mode == "exactly-once-by-partition"]
    if pipeline.dead_letters.kafka is None or not by_partition:
        return None
    if len(outlets) != 1 or len(inlets) != 1:
        return "there are several sinks or several source views"
    (inlet,), (sink,) = inlets, by_partition
    if kept:
        return kept
    if pipeline.dead_letters.allowed:
        return "with a budget they are counted before anything is sent"
    if transform.buries:
        return f"step '{transform.buries[0]}' makes dead letters"
    own = next((step.view for step in transform.steps if step.python), None)
    if own:
        return f"step '{own}' is a function, which may keep rows"
    judge = native_judge(pipeline, inlet)
    if isinstance(judge, str):
        return judge
    if rule := not_plain(inlet):
        return f"rule '{rule}' speaks of a field whose value only the engine can put into words"
    posted = letters(pipeline, inlet)
    assert posted is not None
    return Along(inlet, sink, judge, posted)
