"""Rules of `doctor` about a pipeline that does not go on: nothing runs it, or something in Kafka or in its own files
keeps it from committing the next batch.

One trouble has one cause: what refuses a start is named, and not that nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from penstock.doctor.facts import Facts, Finding, Severity
from penstock.errors import ANEW, WITHOUT_THEM, DeadLetterBudget, counted
from penstock.observe.lag import PartitionLag

_STUCK = 10.0  # times as long as batches took before
_STUCK_AT_LEAST_S = 60.0
_STUCK_FIRST_S = 900.0  # where there is no batch to compare with
_FAILURES = 2
_NAMED = 10

BUDGET = DeadLetterBudget.code
_RUN = "penstock run FILE"
_NOBODY = "no process holds the lock of its checkpoint"
_LOOK = "penstock topics FILE --all says which brokers hold them; start those that are away"
# State of partitions -> severity, what is wrong with them, the fix.
_PARTITIONS: dict[str, tuple[Severity, str, str]] = {
    "offline": ("critical", "no copy leads: they can be neither read nor written", _LOOK),
    "read-only": ("critical", "too few copies are in sync: writes with acks=all are refused", _LOOK),
    "silent": ("warning", "their leader does not answer: it may have just died", "penstock topics FILE in ten seconds"),
    "under-replicated": ("warning", "copies are behind or away: the next broker that goes may stop them", _LOOK),
}
_BLOCKING = ("offline", "read-only", "silent")  # states in which a batch that needs the partition fails


def damaged(facts: Facts) -> Iterator[Finding]:
    if facts.damage:
        yield Finding(
            "checkpoint-damaged",
            "critical" if facts.damage.stops else "warning",
            "files of the checkpoint are missing, changed or of something else",
            facts.damage.said[:_NAMED],
            facts.damage.fix,
        )


def recreated(facts: Facts) -> Iterator[Finding]:
    for each in facts.recreated:
        what = f"topic '{each.topic}' was deleted and created again"
        yield Finding("topic-recreated", "critical", what, (each.cause,), each.fix, {"topic": each.topic})


def start_not_there(facts: Facts) -> Iterator[Finding]:
    """`start` names offsets that Kafka does not hold. What has expired is skipped where the spec says so."""
    wrong = _not_there(facts)
    if wrong:
        yield Finding(
            "start-not-there",
            "critical",
            "`start` names offsets that are not in Kafka",
            tuple(
                f"{each.topic}-{each.partition}: offset {each.position:,} is wanted, "
                f"Kafka holds {each.first:,} to {each.end or 0:,}"
                for each in wrong[:_NAMED]
            ),
            "correct `start`; -2 is the first offset there is, -1 the end",
            {"partitions": [f"{each.topic}-{each.partition}" for each in wrong]},
        )


def _not_there(facts: Facts) -> list[PartitionLag]:
    if facts.begun:
        return []
    return [each for each in facts.lag.partitions if each.beyond or (each.expired and not facts.goes_on)]


def went_back(facts: Facts) -> Iterator[Finding]:
    back = _back(facts)
    if back:
        yield Finding(
            "offsets-went-back",
            "critical",
            "offsets went backwards: Kafka has lost records that were read",
            (
                *(
                    f"{each.topic}-{each.partition} was read up to offset {each.position:,}, and ends at {each.end:,}"
                    for each in back[:_NAMED]
                ),
                "a broker that lacked them became the leader, or its disk was lost",
            ),
            ANEW,
            {"partitions": {f"{each.topic}-{each.partition}": each.beyond for each in back}},
        )


def _back(facts: Facts) -> list[PartitionLag]:
    """Not while it runs: Kafka is asked before the checkpoint, so a batch may have been committed in between. A run
    stops by itself once it meets them."""
    return [each for each in facts.lag.partitions if each.beyond] if facts.begun and not facts.running else []


def lost(facts: Facts) -> Iterator[Finding]:
    gone = [each for each in facts.lag.partitions if each.expired]
    if gone and not _not_there(facts):
        more = (f"and {len(gone) - _NAMED:,} more partitions",) * (len(gone) > _NAMED)
        total = sum(each.expired for each in gone)
        yield Finding(
            "offsets-expired",
            "critical",
            f"{counted(total, 'offset')} expired unread",
            (*map(_expired, gone[:_NAMED]), *more),
            "penstock run FILE: it goes on without them, and the ledger says which they were"
            if facts.goes_on
            else WITHOUT_THEM,
            {"offsets": total, "partitions": {f"{each.topic}-{each.partition}": each.expired for each in gone}},
        )


def _expired(each: PartitionLag) -> str:
    return (
        f"{each.topic}-{each.partition} goes on at {each.position:,}, Kafka holds nothing before {each.first:,}: "
        f"{each.expired:,} of {counted(each.lag, 'waiting offset')} gone"
    )


def spent_budget(facts: Facts) -> Iterator[Finding]:
    """The last run stopped because too many records of a batch would die, and that batch is still the next one."""
    failed = facts.failed
    if facts.running or not facts.stuck or not failed or failed.code != BUDGET or _refused(facts):
        return
    yield Finding(
        "dead-letter-budget",
        "critical",
        f"the dead-letter budget is spent: {failed.what}",
        (*(failed.cause or f"batch {facts.stuck.batch} is not written").splitlines(), _NOBODY),
        failed.advice
        or f"fix the spec or the producer, then: penstock run FILE; or: penstock run FILE --accept {BUDGET}",
        {"batch": facts.stuck.batch},
    )


def stuck_batch(facts: Facts) -> Iterator[Finding]:
    stuck = facts.stuck
    if stuck is None or _refused(facts) or any(spent_budget(facts)):
        return
    usual = median(ran.seconds for ran in facts.batches) if facts.batches else 0.0
    failing = len(stuck.failures) >= _FAILURES
    deadly = not facts.running and stuck.too_large is not None
    longest = max(_STUCK_AT_LEAST_S, _STUCK * usual) if facts.batches else _STUCK_FIRST_S
    # Nobody waits for a batch that nobody runs, however long ago it was planned.
    slow = facts.running and stuck.since_s > longest
    if not deadly and (_blocked(facts) or not (failing or slow)):
        return
    before = f"; batches before it took {usual:,.1f} s" if facts.batches else ""
    evidence = [f"its offsets were fixed {stuck.since_s:,.0f} s ago{before}"]
    if stuck.failures:
        times = counted(len(stuck.failures), "time")
        evidence.append(f"it ended with {', '.join(dict.fromkeys(stuck.failures))}, {times}")
    if deadly:
        evidence.append(f"the driver died {counted(stuck.deaths, 'time')} while it ran it, and a start is refused now")
    if not facts.running:
        evidence.append(_NOBODY)
    stop = "if it does not end, stop the run, " if facts.running else ""
    again = f"penstock events FILE --last 20; {stop}then penstock run FILE: it runs again, with the same offsets"
    advice = stuck.too_large if deadly else facts.failed.advice if facts.failed and not facts.running else None
    yield Finding(
        "stuck-batch",
        "critical",
        f"batch {stuck.batch} was planned and does not get committed",
        tuple(evidence),
        advice or again,
        {"batch": stuck.batch},
    )


def silent(facts: Facts) -> Iterator[Finding]:
    """Nothing was committed for longer than the last commits took together, and no other rule says why. That may be one
    long batch, or `min_offsets` that have not come together: a note, until the batch is stuck."""
    names = [f"{topic}-{partition}" for (topic, partition), said in sorted(facts.verdicts.items()) if said == "STOP"]
    if not facts.running or not names or _refused(facts) or _blocked(facts) or facts.registry:
        return
    if any(stuck_batch(facts)):
        return
    batch = facts.stuck
    yield Finding(
        "partition-stop",
        "note",
        "nothing was committed for longer than the last commits took together, and records wait",
        (
            f"verdict STOP: {_listed(names)}",
            f"batch {batch.batch} was planned {batch.since_s:,.0f} s ago" if batch else "no batch is planned",
        ),
        "penstock events FILE --last 20",
        {"partitions": names},
    )


def never_ran(facts: Facts) -> Iterator[Finding]:
    if facts.rest == "never-ran" and not _refused(facts):
        yield Finding("never-ran", "note", "it has not run yet", (_wait(facts),), _RUN)


def between_runs(facts: Facts) -> Iterator[Finding]:
    if facts.rest == "caught-up" and facts.lag.total and not _refused(facts):
        what = "the last run caught up and exited; new records have arrived since"
        yield Finding("between-runs", "note", what, (_wait(facts),), f"{_RUN}, when the next run is due")


def _wait(facts: Facts) -> str:
    total = facts.lag.total
    return f"{'at least ' * bool(facts.lag.unknown)}{counted(total, 'offset')} wait{'s' * (total == 1)}"


def not_running(facts: Facts) -> Iterator[Finding]:
    if facts.running or facts.rest or not facts.lag.total or _refused(facts):
        return
    if any(spent_budget(facts)) or any(stuck_batch(facts)):
        return
    evidence = [_wait(facts), _NOBODY]
    if facts.failed:
        evidence.append(f"the last run ended with {facts.failed.code}: {facts.failed.what}")
    if facts.stuck:
        evidence.append(f"batch {facts.stuck.batch} was cut off; it runs again, with the same offsets")
    yield Finding(
        "not-running",
        "critical",
        "nothing runs this pipeline, and records wait",
        tuple(evidence),
        _again(facts.failed.advice if facts.failed else None),
    )


def _again(advice: str | None) -> str:
    if advice is None or _RUN in advice:
        return advice or _RUN
    return f"{advice}; then: {_RUN}"


def partitions(facts: Facts) -> Iterator[Finding]:
    """Of the topics that are read and written."""
    for state, (severity, what, fix) in _PARTITIONS.items():
        names = facts.states.get(state, ())
        if names:
            count = f"{len(names):,} partition{'s' * (len(names) != 1)} {'is' if len(names) == 1 else 'are'} {state}"
            yield Finding(
                f"partition-{state}", severity, f"{count}: {what}", (_listed(names),), fix, {"partitions": [*names]}
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED:,} more" * (len(names) > _NAMED)


def _blocked(facts: Facts) -> bool:
    """A partition keeps the next batch waiting, which `partitions` says."""
    return any(map(facts.states.get, _BLOCKING))


def _refused(facts: Facts) -> bool:
    """A start would be refused, or no batch gets past it, and another rule says why."""
    return bool(
        facts.lag.expired
        or _not_there(facts)
        or _back(facts)
        or facts.recreated
        or (facts.damage and facts.damage.stops)
    )
