"""What writes to the sinks of a pipeline, for `verify`: the stream, its backfills and its replays. Each has a ledger of
its own, and a sink is held against all of them together: nobody can tell whose copy of a record is whose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import SparkLog
from penstock.deadletters import replays
from penstock.deadletters.replays import Chosen
from penstock.record import OffsetRange, Position
from penstock.spec.model import Pipeline
from penstock.verification import ledger as ledger_proof

STREAM = "the stream"

Letters = Mapping[Position, Chosen]


@dataclass(frozen=True)
class Writer:
    name: str
    entries: Sequence[Entry]
    unfinished: Sequence[OffsetRange] = ()  # planned beyond the ledger: may be in the sinks, or not yet
    letters: Mapping[int, Letters] | None = None  # of a replay: what each batch took; its ranges have gaps between them


def name_of(backfill: str | None) -> str:
    return STREAM if backfill is None else f"backfill {backfill}"


def homes(pipeline: Pipeline) -> dict[str, Home]:
    """Of every ledger, by the name of its writer."""
    backfills = {name_of(name): Home.of(pipeline).backfill(name) for name in Home.of(pipeline).backfills()}
    return {STREAM: Home.of(pipeline), **backfills, **{_of(r): r.home for r in replays.found(pipeline)}}


def found(pipeline: Pipeline, entries: Mapping[str, Sequence[Entry]]) -> list[Writer]:
    """`entries`: as the ledgers said before the sinks were read. Call this afterwards: what was planned by then is
    unfinished, also where a backfill or a replay has begun meanwhile."""
    made = []
    taken = {_of(replay): replay for replay in replays.found(pipeline)}
    for name, home in homes(pipeline).items():
        done = entries.get(name, ())
        if replay := taken.get(name):
            letters = {n: {each.position: each for each in replay.chosen(n)} for n in replay.batches}
            left = letters.keys() - {entry.batch for entry in done}
            unfinished = [OffsetRange(t, p, o, o + 1) for n in left for t, p, o in letters[n]]
            made.append(Writer(name, done, unfinished, letters))
        else:
            made.append(Writer(name, done, ledger_proof.in_flight(SparkLog(home.spark), done)))
    return made


def _of(replay: replays.Replay) -> str:
    return f"replay {replay.name}"
