"""Replays: chosen dead letters through the same spec, once (Q5).

    1. The letters are chosen and written down with their bytes, in batches (`replays`). A crash before the last of that
       leaves nothing.
    2. Each batch goes the way of a batch of the stream: the same decode, rules, steps, sinks and dead letters, a ledger
       entry at the end. A record keeps its topic, partition, offset and time. What dies again is a dead letter of the
       replay's query.
    3. Its commit is written.

After a crash the same command goes on with the first batch that has no commit; what that batch had written already is
found by query and batch, as in the stream. A letter is on the list of one replay for each time it died: one that has
come home, or is on a list that is not finished, is not chosen again. One lock keeps two replays apart; the stream may
run meanwhile.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, TopicFact
from penstock.errors import BadArgument, LedgerMissing, TableOfAnotherQuery
from penstock.kafka import admin
from penstock.record import SINK, TRANSFORM, OffsetRange
from penstock.route.dead_letter import DeadLetter
from penstock.runtime import build, guard, letters, replays, session
from penstock.runtime.assemble import Assembly
from penstock.runtime.failure import translate
from penstock.runtime.inlet import Position
from penstock.runtime.letters import Letter, Wanted
from penstock.runtime.letters_raw import raw
from penstock.runtime.replays import Chosen, Replay
from penstock.runtime.state_limits import require_none
from penstock.runtime.supervise import prepare
from penstock.runtime.topics import TopicWatch
from penstock.runtime.watch import Watch
from penstock.spec.model import Pipeline

MOST_LETTERS, MOST_BYTES = 100_000, 256_000_000  # of one replay: its list is sorted in memory
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True)
class Choice:
    """What a replay would take. `goes_on`: it was written down before, and did not end."""

    letters: list[tuple[Chosen, DeadLetter]]
    left_out: Counter[str] = field(default_factory=Counter)  # why -> how many
    goes_on: Replay | None = None


@dataclass
class Outcome:
    """What became of the letters of a replay, over all of its batches."""

    name: str
    letters: int = 0
    passed: int = 0
    dead_again: int = 0
    dropped: int = 0
    written: dict[str, int] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        self.letters += entry.read
        self.dead_again += entry.dead
        self.passed += entry.read - entry.dead - sum(n for v in entry.views.values() for n in v.dropped.values())
        self.dropped += sum(n for view in entry.views.values() for n in view.dropped.values())
        for name, sink in entry.sinks.items():
            self.written[name] = self.written.get(name, 0) + sink.written


def choose(pipeline: Pipeline, wanted: Wanted, name: str | None = None, limit: int | None = None) -> Choice:
    """The letters a replay would take now. Raises BadArgument where a replay of that name took others."""
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
    everything = letters.gather(pipeline)
    if not wanted.ids:
        _whole(pipeline, everything)
    held = [each for each in everything if wanted.holds(each)]
    picked, left_out = _picked(pipeline, held, limit)
    left_out.update(["there is no such dead letter"] * len(set(wanted.ids) - {each.id for each in held}))
    whole = letters.whole(pipeline, {letter.key for letter in picked})
    return _with_bytes(picked, whole, set(pipeline.sinks), left_out)


def run(
    pipeline: Pipeline, wanted: Wanted, name: str | None = None, limit: int | None = None, *, watch: Watch | None = None
) -> tuple[Outcome | None, Choice]:
    """Bring the chosen letters home. No outcome: there is nothing to do."""
    watch = watch or Watch()
    with Home(build.home(pipeline).path / "replay").locked():
        choice = choose(pipeline, wanted, name, limit)
        replay = choice.goes_on
        if replay is None:
            if not choice.letters:
                return None, choice
            called = name or replays.next_name(replays.found(pipeline))
            replay = Replay(called, build.replay_home(pipeline, called))
        with replay.home.held():
            if choice.goes_on is None:
                replays.write_down(replay, wanted.given(), choice.letters)
            _run(pipeline, replay, watch)
    outcome = Outcome(replay.name)
    for entry in replay.entries().values():
        outcome.add(entry)
    return outcome, choice


def _run(pipeline: Pipeline, replay: Replay, watch: Watch) -> None:
    home = replay.home
    guard.check(home, pipeline.name, frozenset())
    assembly = assembled(pipeline, home)
    prepare(assembly, frozenset({TableOfAnotherQuery.code}))  # the stream's own rows are there, of course
    if not replay.left:
        return
    spark = session.start(pipeline, home.logs)
    assembly.transform.heard_by(watch)
    assembly.settle(spark)
    watch.started(pipeline, home)
    for number in replay.left:
        began = time.monotonic()
        assembly.spared = spared_by(replay.chosen(number))
        try:
            entry = assembly.process(raw(spark, replay.letters(number)), number)
        except Exception as error:
            raise translate(error, home.logs / session.LOG_NAME) from error
        replay.commit(number)
        watch.batch_done(entry, time.monotonic() - began)


def assembled(pipeline: Pipeline, home: Home) -> Assembly:
    """The pipeline's parts for letters: no budget, since all of them have died already, and no offset between two
    letters is lost."""
    made = build.assembly(pipeline, home)
    topics = _Addressed(made.topics.config, made.topics.source, made.topics.known)
    return replace(made, budget=None, topics=topics, flow=None)


@dataclass
class _Addressed(TopicWatch):
    """Topics that letters came from. Their records may have expired, and the topics be gone: the letters have all."""

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFact]:
        there = admin.topics(self.config)
        ids = {name: there[name].topic_id if name in there else "" for name in topics}
        return {name: TopicFact(self.source.view_of(name), id_) for name, id_ in sorted(ids.items())}

    def lost(self, _ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        return []


def _whole(pipeline: Pipeline, everything: Iterable[Letter]) -> None:
    """What a replay brought home is known from its directory alone. One that is gone has left those that died again."""
    unknown = {d.query for each in everything for d in each.deaths if d.query.startswith("replay-") and d.by == d.query}
    if unknown:
        raise LedgerMissing(
            f"the records of {len(unknown)} replays are gone",
            cause=f"letters died in {', '.join(sorted(unknown))}, of which {build.replay_home(pipeline, '')} knows "
            "nothing: which letters they brought home cannot be told, and these would be written a second time",
            next_command="restore that directory from a backup; or name each letter: penstock dlq replay FILE --id ID",
        )


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
            left_out["another record had the same offset before its topic was made again: replay once more"] += 1
        elif len(picked) >= min(limit or MOST_LETTERS, MOST_LETTERS) or (picked and size + each.size > MOST_BYTES):
            left_out["over the limit of one replay: replay once more"] += 1
        else:
            picked.append(each)
            seen.add(each.key[:3])
            size += each.size
    return picked, left_out


def _with_bytes(picked: list[Letter], whole: Iterable[DeadLetter], sinks: set[str], left_out: Counter[str]) -> Choice:
    """`whole`: of a second read of the dead letters, after the one in which they were picked."""
    bytes_of: dict[replays.Key, DeadLetter] = {}
    for each in whole:
        bytes_of.setdefault(letters.key_of(each), each)
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


def spared_by(chosen: Iterable[Chosen]) -> dict[str, set[Position]]:
    found: dict[str, set[Position]] = {}
    for each in chosen:
        for sink in each.spared:
            found.setdefault(sink, set()).add(each.position)
    return found
