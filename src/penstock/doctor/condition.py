"""The condition of what a pipeline rests on, for `doctor`: its checkpoint, its next batch, how the last run ended, the
partitions of its topics. Read from outside, without the lock, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.damage import Damage
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.doctor.facts import Damaged, Failed, Rest, Stuck
from penstock.errors import (
    BatchTooLarge,
    CheckpointForeign,
    CheckpointMissing,
    DeadLetterBudget,
    KafkaUnreachable,
    LedgerDamaged,
    LedgerMissing,
    OffsetsVanished,
    PenstockError,
    RegistryUnreachable,
    SinkBusy,
    TopicRecreated,
)
from penstock.kafka.topics import Topic
from penstock.lifecycle import preconditions
from penstock.lifecycle.realtime import same_mode
from penstock.observe.events import EventLog
from penstock.source.position import if_sound, lasting_damage, steady
from penstock.spec.model import Pipeline

_REPAIR = "penstock checkpoint repair FILE, which says what it can make again; with --apply it does"
# Troubles that are looked at here: if another finding does not name them they are over, and so is what helped then.
_LOOKED_AT = {
    error.code
    for error in (
        *(BatchTooLarge, CheckpointForeign, CheckpointMissing, LedgerDamaged, LedgerMissing),
        *(OffsetsVanished, TopicRecreated, KafkaUnreachable, RegistryUnreachable, SinkBusy),
    )
}
_REFUSALS = (BatchTooLarge.code, DeadLetterBudget.code)  # what the batch would do is known, and nothing of it ran


def damage(pipeline: Pipeline, home: Home) -> Damaged | None:
    """What `checkpoint show` lists, and what would keep a run from starting."""
    return judged(lasting_damage(home), _refusal(pipeline, home))


def judged(wrong: Iterable[Damage], refusal: PenstockError | None) -> Damaged | None:
    """`wrong`: files; `refusal`: why a run would not start with them."""
    found = list(wrong)
    if not found and refusal is None:
        return None
    said = [f"{each.file} {each.what}" for each in found]
    fix = _REPAIR if found else ""
    if refusal is not None:
        said.append(f"a run would not start: {refusal.what}")
        # Where everything can be made again, what else the refusal offers would lose something.
        if any(each.content is None for each in found):
            fix += f"; where it cannot: {refusal.next_command}"
    return Damaged(
        tuple(said), fix or (refusal.next_command if refusal else None) or _REPAIR, stops=refusal is not None
    )


def _refusal(pipeline: Pipeline, home: Home) -> PenstockError | None:
    try:
        steady(home, lambda: preconditions.check(home, pipeline.name, frozenset()))
    except LedgerMissing as error:
        return None if if_sound(lambda: same_mode.mendable(home)) else error
    except (CheckpointForeign, CheckpointMissing, LedgerDamaged) as error:
        return error
    return None


def stuck(home: Home, events: EventLog, now: float, *, runs: bool) -> Stuck | None:
    """The batch that is fixed and not committed. Raises CheckpointForeign."""
    log = SparkLog(home.spark)
    batch = log.pending()
    since = log.planned_at(batch) if batch is not None else None
    if batch is None or since is None:
        return None
    ended = events.last(["retrying", "failed"], 100)
    codes = [event.facts["code"] for event in ended if event.time.timestamp() >= since]
    deaths, too_large = (0, None) if runs else _deaths(home)
    return Stuck(batch, now - since, tuple(code for code in codes if code not in _REFUSALS), deaths, too_large)


def _deaths(home: Home) -> tuple[int, str | None]:
    """How often a driver died of the batch, and what to do once a start is refused because of it."""
    attempts = Attempts(home)
    try:
        attempts.check(frozenset())
    except BatchTooLarge as error:
        return attempts.deaths, error.next_command
    return attempts.deaths, None


def failed(events: EventLog, planned: float | None) -> Failed | None:
    """How the last run ended, unless something happened since: another start, or what people did about it. `planned`:
    when the offsets of the next batch were fixed."""
    newest = events.last(["started", "batch", "ended", "failed", "seek", "split", "restore", "repair"], 1)
    if not newest or newest[0].kind != "failed":
        return None
    if planned is not None and newest[0].time.timestamp() < planned:
        return None
    said = newest[0].facts
    advice = None if said["code"] in _LOOKED_AT else said.get("next")
    return Failed(said["code"], said["what"], said.get("cause"), advice)


def rest(pipeline: Pipeline, events: EventLog, *, begun: bool, planned: bool) -> Rest | None:
    """Why nothing has to run it. `begun`: it has positions; `planned`: a batch is not committed. Without an event log
    (`observe`) a run with `available-now` that left no batch behind has ended well, as far as anybody can say."""
    available_now = pipeline.trigger == "available-now"
    newest = events.last(["started", "batch", "ended", "failed"], 1)
    if not newest:
        return "never-ran" if not begun else "caught-up" if available_now and not planned else None
    # Older versions did not write down whether it had caught up.
    ended = newest[0].kind == "ended" and newest[0].facts.get("caught_up", available_now)
    return "caught-up" if ended and not planned else None


def states(looked: Iterable[Topic]) -> dict[str, list[str]]:
    """The partitions with which something is wrong, by what it is."""
    found: dict[str, list[str]] = {}
    for topic in looked:
        for each in topic.partitions:
            if state := topic.state(each):
                found.setdefault(state, []).append(f"{topic.name}-{each.number}")
    return found


def retention(looked: Iterable[Topic]) -> dict[str, float]:
    """Seconds after which Kafka deletes records, of topics whose records expire by age. Compacted ones do not."""
    found = {}
    for topic in looked:
        kept = int(topic.config.get("retention.ms", "-1"))
        if "delete" in topic.config.get("cleanup.policy", "delete") and kept > 0:
            found[topic.name] = kept / 1000
    return found
