"""The short way into Kafka: records are encoded by the worker that decoded them (`batch.fused`). By partition that
worker sends them too; by batch it hands them on to the one task that sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import failpoint
from penstock.record import Batch
from penstock.sinks.contract import Written
from penstock.sinks.files.writer import Judged
from penstock.sinks.kafka.encoding import Encode, Picked
from penstock.sinks.kafka.packets import SendPackets, closed
from penstock.sinks.kafka.worker import Letters, Parcel, SendPartition, packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.sinks.kafka.exactly_once import KafkaSink


@dataclass(frozen=True)
class PackJudged:
    """In the worker: what passed as records, and what died as letters, if `letters` says how. Pickles."""

    encode: Encode
    picked: Picked
    letters: Letters | None
    sink: str

    def __call__(self, part: Judged, origins: Any) -> Parcel:
        parcel, failed = packed(self.encode, self.picked(part.good, origins))
        if self.letters is not None:
            if part.dead is not None and part.verdicts is not None:
                parcel.letters += self.letters.died(part.dead, part.verdicts)
            if parcel.refused:
                parcel.letters += self.letters.refused(part.good.filter(failed), self.sink, parcel.refused)
        return parcel


@dataclass(frozen=True)
class SendJudged:
    """By partition: sent by the same worker."""

    pack: PackJudged
    send: SendPartition

    def __call__(self, parts: Iterator[Judged], origins: Any) -> dict[str, Any] | None:
        return _said(self.send.sent(self.pack(part, origins) for part in parts))


@dataclass(frozen=True)
class HandOnJudged:
    """By batch: made by every worker, sent by one task."""

    pack: PackJudged
    send: SendPackets

    def packets(self, parts: Iterator[Judged], origins: Any) -> Iterator[bytes]:
        for part in parts:
            yield from closed(self.pack(part, origins))

    def take(self, packets: Iterator[Any]) -> dict[str, Any]:
        return _said(self.send.sent(packets)) or {}


def _said(found: Iterator[Any]) -> dict[str, Any] | None:
    row = next(found, None)
    return None if row is None else row.to_pylist()[0]


@dataclass
class OnePassKafka:
    """In the driver."""

    sink: KafkaSink
    picked: Picked
    letters: Callable[[Batch], Letters] | None  # dead letters are sent along, where they go to Kafka too

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def does(self) -> str:
        return "send" if self._by_partition else "encode, for one task to send,"

    @property
    def posts(self) -> str:
        if self.letters is None:
            return ""
        return "their input partition" if self._by_partition else "their batch"

    @property
    def publishes(self) -> bool:
        return False  # whoever sends commits, before `end`

    def begin(self, batch: Batch, rows: DataFrame, *, replay: bool) -> SendJudged | HandOnJudged:
        self.sink.begin(batch, replay=replay, posts=bool(self.posts))
        crash = failpoint.crash(batch.id, rows)
        encode, letters = self.sink.encoding.encode_picked, self.letters(batch) if self.letters else None
        pack = PackJudged(encode, self.picked, letters, self.name)
        if self._by_partition:
            return SendJudged(pack, SendPartition(self.sink.works(batch, crash), encode))
        return HandOnJudged(pack, SendPackets(self.sink.batch_work(batch, crash)))

    def end(self, batch: Batch, outcomes: list[dict[str, Any]], _handed: int) -> Written:
        return self.sink.ended(batch, outcomes)

    def discard(self, _outcomes: list[dict[str, Any]]) -> None:
        """What workers have committed stays."""

    @property
    def _by_partition(self) -> bool:
        return self.sink.mode == "exactly-once-by-partition"
