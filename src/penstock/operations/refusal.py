"""Which seeks are refused, and what to do instead: after one, state, sinks and dead letters must agree with the log.

| the seek goes | over | sinks | |
|---|---|---|---|
| forward | anything | any | yes: the ledger says what was skipped |
| back | offsets that no batch has read | any | yes |
| back | records that were read | all of them upserts with `order_by`; no dead letters among them | yes |
| back | records that were read | any other | no: they would be there twice |
| to a topic that was made again | records of the new one | any | yes, forward or not: no batch has read any of them |
| anywhere | | the query keeps state | no |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.checkpoint.audit import HOLES
from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import Positions
from penstock.errors import BadArgument, PenstockError, SeekRefused, counted
from penstock.record import OffsetRange
from penstock.spec.model import Pipeline
from penstock.spec.sinks import Sink
from penstock.verification.offsets import joined

_BACKFILL = "send the range through the same spec beside the stream: penstock run FILE --from POSITION --to POSITION"
_FORK = "begin a pipeline with sinks of its own at an earlier place: penstock checkpoint fork FILE OTHER.yaml"
NEW_TABLE = "read everything into new tables: another `checkpoint:`, other sinks, and `start:` at the position"


@dataclass(frozen=True)
class Move:
    topic: str
    partition: int
    at: int
    to: int
    again: int = 0  # offsets that it goes back over and that a batch has read

    @property
    def skipped(self) -> int:
        return max(0, self.to - self.at)

    @property
    def back(self) -> int:
        return max(0, self.at - self.to)

    @property
    def unread(self) -> int:
        """Offsets that it goes back over and that no batch has read, such as those of a skip that is taken back."""
        return self.back - self.again

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.topic, self.partition, min(self.at, self.to), max(self.at, self.to))


def moved(at: Positions, to: Positions, entries: Sequence[Entry]) -> list[Move]:
    """The move of every partition; those that `to` does not name stay where they are."""
    read, unknown = joined(r for entry in entries for r in entry.ranges), _incomplete(entries)
    moves = []
    for where in sorted(at):
        begin, end = to.get(where, at[where]), at[where]
        spans = [(begin, end)] if unknown else read.get(where, [])
        again = sum(max(0, min(end, last) - max(begin, first)) for first, last in spans)
        moves.append(Move(*where, end, begin, again))
    return moves


def _incomplete(entries: Iterable[Entry]) -> bool:
    """Batches that the ledger lacks, or that it tells of in damaged lines, may have read anything."""
    return any(HOLES & set(entry.accepted) for entry in entries)


def refusal(
    pipeline: Pipeline, moves: Sequence[Move], entries: Sequence[Entry], *, stateful: bool, renews: bool = False
) -> PenstockError | None:
    """Why checkpoint, state, sinks and dead letters would not agree after the seek; None: they would. `renews`: it goes
    on with a topic that was made again, of which no offset was read yet."""
    if not renews and all(move.at == move.to for move in moves):
        return BadArgument("the next batch begins there already", next_command="penstock checkpoint show FILE")
    if stateful:
        return _refused(
            "the query keeps state, and a seek would leave it as it is",
            "what it counted or joined so far belongs to the offsets so far: after a seek windows, joins and keys "
            "would miss records or have them twice",
            [NEW_TABLE],
        )
    back = [move for move in moves if move.back]
    unknown = _incomplete(entries)
    reads = [entry for entry in entries if unknown or any(_overlap(r, m.range) for r in entry.ranges for m in back)]
    if not back or not reads:
        return None  # forward, or over what was never read
    number = sum(move.back for move in back)
    for name, sink in pipeline.sinks.items():
        why = _twice(sink)
        if why:
            alternatives = [_BACKFILL, _FORK, NEW_TABLE]
            return _refused(
                f"sink '{name}' would hold records twice", f"{why} ({counted(number, 'offset')} back)", alternatives
            )
    dead = sum(entry.dead for entry in reads)
    if dead:
        return _refused(
            f"{counted(dead, 'dead letter')} would be written a second time",
            "batches that would be read again have dead letters, which are known by their batch",
            [_BACKFILL, NEW_TABLE],
        )
    return None


def _twice(sink: Sink) -> str | None:
    """Why a sink cannot take records a second time under another batch; None: it can."""
    if sink.console or sink.memory:
        return None  # they hold nothing that lasts
    if sink.kafka:
        if sink.kafka.guarantee == "at-least-once":
            return "Spark's own Kafka sink sends whatever it gets"
        return "a topic keeps every record; by partition the group's offsets would leave them out, by batch send them"
    table = sink.delta or sink.parquet or sink.iceberg or sink.postgres
    upsert = getattr(table, "upsert", None)
    if upsert is None:
        return "it appends, and knows what it has by the batch, which would be another one"
    if upsert.order_by is None:
        return "its upsert has no `order_by`: older records would replace newer rows"
    return None


def _overlap(a: OffsetRange, b: OffsetRange) -> bool:
    return (a.topic, a.partition) == (b.topic, b.partition) and max(a.start, b.start) < min(a.end, b.end)


def _refused(what: str, cause: str, alternatives: list[str]) -> SeekRefused:
    return SeekRefused(what, cause=cause, next_command="; or ".join(alternatives), facts={"alternatives": alternatives})
