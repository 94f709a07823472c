"""What the ledger says of dead letters, for `doctor`; and the letters themselves why, where there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from penstock.checkpoint.ledger import Entry
from penstock.deadletters.browse import Letter, gather
from penstock.deadletters.reason import pattern
from penstock.doctor import dead_letters as rule
from penstock.doctor.facts import Dying
from penstock.observe.measure_lag import if_answered
from penstock.spec.model import Pipeline

LOOKED_BACK = 300  # batches
_LATELY, _RECORDS = 3, 1_000  # so many batches, and more of them until they have so many records
_NAMED = 3  # reasons
_LONG = 200  # characters of a reason


def dying(pipeline: Pipeline, entries: Sequence[Entry]) -> Dying | None:
    """`entries`: the newest, oldest first. Letters are read only where the ledger counts too many. What a replay has
    brought home is dead no more."""
    found, lately = counts(entries)
    if found is None or not (rule.high(found) or rule.risen(found)):
        return found
    letters = if_answered(lambda: gather(pipeline))
    return found if letters is None else with_letters(found, {(each.query, each.batch) for each in lately}, letters)


def counts(entries: Sequence[Entry]) -> tuple[Dying | None, list[Entry]]:
    """And the batches that are the newest ones."""
    with_records = [entry for entry in entries if entry.read]
    lately: list[Entry] = []
    for entry in reversed(with_records):
        if len(lately) >= _LATELY and sum(each.read for each in lately) >= _RECORDS:
            break
        lately.append(entry)
    if not lately:
        return None, []
    before = with_records[: -len(lately)]
    found = Dying(
        batches=len(lately),
        read=sum(entry.read for entry in lately),
        dead=sum(entry.dead for entry in lately),
        batches_before=len(before),
        read_before=sum(entry.read for entry in before),
        dead_before=sum(entry.dead for entry in before),
    )
    return found, lately


def with_letters(found: Dying, batches: set[tuple[str, int]], letters: Sequence[Letter]) -> Dying:
    why: Counter[tuple[str, str, str]] = Counter()
    sample: dict[tuple[str, str, str], str] = {}
    home = 0
    for letter in letters:
        death = next((each for each in letter.deaths if (each.query, each.batch) in batches), None)
        if death is None:
            continue
        if letter.state == "replayed":
            home += 1
            continue
        group = death.stage, death.error_class, pattern(death.reason)
        why[group] += 1
        reason = " ".join(death.reason.split())
        place = f"{letter.topic}-{letter.partition} offset {letter.offset}"
        sample.setdefault(group, f"{death.stage}, {death.error_class}: {place}: {reason[:_LONG]}")
    reasons = [(sample[group], number) for group, number in why.most_common(_NAMED)]
    return replace(found, dead=found.dead - home, reasons=reasons)
