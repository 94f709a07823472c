"""Which dead letters a replay takes, in which order, and why others are left out.

A letter is on the list of one replay for each time it died: one that has come home, or is on a list that is not
finished, is not chosen again. Where there is a limit, letters take turns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.checkpoint.home import Home
from penstock.deadletters import browse, replays
from penstock.deadletters.browse import Letter, Wanted
from penstock.deadletters.dead_letter import DeadLetter
from penstock.deadletters.replays import Chosen, Replay
from penstock.errors import BadArgument, LedgerMissing, counted
from penstock.record import REPLAY, SINK, TRANSFORM, Position
from penstock.spec.model import Pipeline
from penstock.transform.state_limits import require_none

MOST_LETTERS, MOST_BYTES = 100_000, 256_000_000  # of one replay: its list is sorted in memory
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True)
class Choice:
    """What a replay would take. `goes_on`: it was written down before, and did not end."""

    letters: list[tuple[Chosen, DeadLetter]]
    left_out: Counter[str] = field(default_factory=Counter)  # why -> how many
    goes_on: Replay | None = None


def choose(pipeline: Pipeline, wanted: Wanted, name: str | None = None, limit: int | None = None) -> Choice:
    """The letters a replay would take now. Raises BadArgument where a replay of that name took others, and for an id
    that no letter has: a slip in one of them must not look as if all had been taken."""
    require_none(pipeline, "a replay")
    there = replays.found(pipeline)
    same = next((each for each in there if each.name == name), None)
    if name is not None and not _NAME.fullmatch(name):
        raise BadArgument(
            f"'{name}' is no name of a replay", cause="expected lower case letters, digits, - and _", next_command=None
        )
    if same is not None and wanted.given() and wanted.given() != same.wanted:
        raise BadArgument(
            f"there is a replay '{name}' of other letters",
            cause=f"it was asked for {same.wanted or 'all letters'}",
            next_command=f"penstock dlq replay FILE --as {name} --apply, to go on with it; or give another name",
        )
    unfinished = (each for each in there if each.left and each.wanted == wanted.given())
    goes_on = same or (next(unfinished, None) if name is None else None)
    if goes_on is not None:
        rest = [pair for n in goes_on.left for pair in zip(goes_on.chosen(n), goes_on.letters(n), strict=True)]
        return Choice(rest, goes_on=goes_on)
    everything = browse.gather(pipeline)
    if not wanted.ids:
        _whole(pipeline, everything)
    if strange := sorted(set(wanted.ids) - {each.id for each in everything}):
        raise browse.unknown(strange)
    held = [each for each in everything if wanted.holds(each)]
    picked, left_out = _picked(pipeline, _in_turn(held, [each.name for each in there]), limit)
    left_out.update(["no letter to take by the other options"] * len(set(wanted.ids) - {each.id for each in held}))
    whole = browse.whole(pipeline, {letter.key for letter in picked})
    return _with_bytes(picked, whole, set(pipeline.sinks), left_out)


def _whole(pipeline: Pipeline, everything: Iterable[Letter]) -> None:
    """What a replay brought home is known from its directory alone. One that is gone has left those that died again."""
    unknown = {d.query for each in everything for d in each.deaths if d.query.startswith(REPLAY) and d.by == d.query}
    if unknown:
        raise LedgerMissing(
            f"the records of {counted(len(unknown), 'replay')} are gone",
            cause=f"letters died in {', '.join(sorted(unknown))}, of which {Home.of(pipeline).replay('')} knows "
            "nothing: which letters they brought home cannot be told, and these would be written a second time",
            next_command="restore that directory from a backup; or name each letter: penstock dlq replay FILE --id ID",
        )


def _in_turn(wanted: Iterable[Letter], names: Sequence[str]) -> list[Letter]:
    """First those that no replay has taken, then those whose last replay is the longest ago (`names`: oldest first).
    So letters that die again and again do not keep a limited replay from the others."""
    turn = {name: number for number, name in enumerate(names)}
    return sorted(wanted, key=lambda each: turn.get(each.replays[-1], 0) if each.replays else -1)


def _picked(pipeline: Pipeline, wanted: list[Letter], limit: int | None) -> tuple[list[Letter], Counter[str]]:
    """Those that can be replayed, and why the others cannot."""
    picked: list[Letter] = []
    left_out: Counter[str] = Counter()
    seen: set[Position] = set()
    size = 0
    for each in wanted:
        if why := _not_now(pipeline, each):
            left_out[why] += 1
        elif each.key[:3] in seen:
            left_out[
                "another record had the same offset before its topic was made again: the same command takes it next"
            ] += 1
        elif len(picked) >= min(limit or MOST_LETTERS, MOST_LETTERS) or (picked and size + each.size > MOST_BYTES):
            left_out["over the limit of one replay: the same command takes them next"] += 1
        else:
            picked.append(each)
            seen.add(each.key[:3])
            size += each.size
    return picked, left_out


def _with_bytes(picked: list[Letter], whole: Iterable[DeadLetter], sinks: set[str], left_out: Counter[str]) -> Choice:
    """`whole`: of a second read of the dead letters, after the one in which they were picked."""
    bytes_of: dict[replays.Key, DeadLetter] = {}
    for each in whole:
        bytes_of.setdefault(browse.key_of(each), each)
    there = [each for each in picked if each.key in bytes_of]
    gone = len(picked) - len(there)
    return Choice(
        [(_chosen(each, sinks), bytes_of[each.key]) for each in there],
        left_out + Counter({"the letter has expired just now": gone}),
    )


def _not_now(pipeline: Pipeline, letter: Letter) -> str | None:
    if letter.state == "replayed":
        return "a replay has brought them home already"
    if letter.state == "replaying":
        name = letter.replays[-1]
        return f"on the list of replay {name}, which is not finished: penstock dlq replay FILE --as {name} --apply"
    if pipeline.source.topics and letter.topic not in pipeline.source.topics:
        return f"topic '{letter.topic}' is no longer read"
    unknown = any(death.stage in (SINK, TRANSFORM) and death.sinks is None for death in letter.unanswered)
    if unknown and len(pipeline.sinks) > 1:
        return "written by an older version, which did not say which sinks have the record"
    gone = {name for death in letter.unanswered for name in (death.sinks or "").split(",") if name} - {*pipeline.sinks}
    if gone:
        return f"meant for what is no longer a sink of the spec: {', '.join(sorted(gone))}"
    return None


def _chosen(letter: Letter, sinks: set[str]) -> Chosen:
    without: set[str] = set()
    for death in letter.unanswered:
        without |= sinks if death.sinks is None else set(death.sinks.split(","))
    return Chosen(*letter.key, sorted({death.query for death in letter.deaths}), sorted(sinks - without))
