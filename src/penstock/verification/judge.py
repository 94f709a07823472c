"""The judge of a sink that is proven by offset: what all ledgers together say of each offset, against what is there.

    1. No offset is there more often than batches may have written it (duplicate); none that no batch read (invented),
       and none that died in every batch that read it (both).
    2. Of each batch as many records are there as its ledger says, and the same ones: fingerprints are sums, and add up
       like the counts. Batches that share an offset are judged together, since nobody can tell whose copy is whose.
    3. Where 2 does not hold, the records that are missing are named.

One ledger is no special case: its batches share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from penstock.batch import fingerprint
from penstock.errors import PenstockError, counted, first_line
from penstock.record import OffsetRange
from penstock.verification.offsets import NOTHING, By, Offsets, named
from penstock.verification.report import Finding, Partition, Report

Recount = Callable[[list[OffsetRange]], By]
"""Which records of these ranges the steps give to the sink. Raises PenstockError where the engine cannot tell."""


@dataclass(frozen=True)
class Part:
    """What one batch of a ledger may have brought into the sink."""

    batch: int | None  # None: it is not finished
    writer: str  # empty: the ledger that is judged
    may: By  # sorted, each once; where nobody knows any more, whatever the sink holds
    written: int | None = None  # None: nobody knows how many of them it wrote
    fingerprint: int | None = None
    ranges: Sequence[OffsetRange] = ()  # where Kafka can be read again


@dataclass
class _There:
    """What the sink holds of a partition."""

    offsets: Offsets  # each once
    times: Offsets
    due: Offsets = field(init=False)  # how often at most, by batches that say how much they wrote
    spare: Offsets = field(init=False)  # and by others
    part: Offsets = field(init=False)  # one of the former

    def __post_init__(self) -> None:
        self.due, self.spare = np.zeros_like(self.times), np.zeros_like(self.times)
        self.part = np.full_like(self.times, -1)

    @property
    def counting(self) -> Offsets:
        """How often each is there, without what is too many."""
        return np.minimum(self.times, self.due)

    def places(self, wanted: Offsets) -> tuple[Offsets, Offsets]:
        """Which of these, sorted, are there; and where."""
        at = np.searchsorted(self.offsets, wanted)
        which = np.flatnonzero(at < len(self.offsets))
        which = which[self.offsets[at[which]] == wanted[which]]
        return which, at[which]


@dataclass
class _Group:
    """Batches that share offsets, directly or through others; most often one alone."""

    parts: list[Part] = field(default_factory=list)
    held: int = 0
    fingerprint: int = 0

    @property
    def said(self) -> int:
        return sum(part.written or 0 for part in self.parts)

    @property
    def batch(self) -> int | None:
        return self.parts[0].batch if len(self.parts) == 1 and not self.parts[0].writer else None

    def __str__(self) -> str:
        return " and ".join(_batches(*each) for each in groupby(self.parts, lambda part: part.writer))


def judge(sink: str, held: By, parts: Sequence[Part], dead: By, records: By, recount: Recount, report: Report) -> None:
    """`held`: with repetitions. `dead`: for this sink, in any batch. `records`: Kafka's."""
    there = {where: _There(*np.unique(offsets, return_counts=True)) for where, offsets in sorted(held.items())}
    leaders = _claim(there, parts)
    report.unproven += [
        f"sink '{sink}': records that an unfinished batch of {part.writer or 'the same ledger'} may have written too"
        for part in parts
        if part.batch is None
        and any((there[w].due[there[w].places(o)[1]] > 0).any() for w, o in part.may.items() if w in there)
    ]
    for where, found in there.items():
        _too_many(sink, where, found, dead.get(where, NOTHING), report)
    for group in _groups(there, parts, leaders):
        wrong = _differs(sink, group)
        if wrong:
            report.findings.append(wrong)
            _name(sink, group, there, records, recount, report)


def _claim(there: dict[Partition, _There], parts: Sequence[Part]) -> Offsets:
    """Notes which parts may have brought what is there; which parts belong together, by one of them."""
    leader = list(range(len(parts)))

    def of(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for i, part in enumerate(parts):
        for where in part.may.keys() & there.keys():
            found = there[where]
            _, at = found.places(part.may[where])
            if part.written is None:
                found.spare[at] += 1
                continue
            for other in np.unique(found.part[at]):
                if other >= 0:
                    leader[of(i)] = of(int(other))
            found.due[at] += 1
            found.part[at] = i
    return np.array([of(i) for i in range(len(parts))], dtype=np.int64)


def _too_many(sink: str, where: Partition, found: _There, dead: Offsets, report: Report) -> None:
    over, unread = found.times > found.due + found.spare, found.due + found.spare == 0
    died = unread & np.isin(found.offsets, dead)
    for kind, which, text in (
        ("invented", unread & ~died, f"in sink '{sink}' that no batch has read"),
        ("both", died, f"in sink '{sink}' and among the dead letters"),
    ):
        if which.any():
            offsets = found.offsets[which]
            said = f"{counted(len(offsets), 'record')} {text}"
            report.findings.append(Finding(kind, said, None, *where, named(offsets)))
    _more(sink, where, found.offsets[over & ~unread], report)


def _groups(there: dict[Partition, _There], parts: Sequence[Part], leaders: Offsets) -> Iterable[_Group]:
    groups: dict[int, _Group] = {}
    for leader, part in zip(leaders.tolist(), parts, strict=True):
        if part.written is not None:
            groups.setdefault(leader, _Group()).parts.append(part)
    for where, found in there.items():
        counting, at = found.counting, np.flatnonzero(found.due)
        at = at[np.argsort(leaders[found.part[at]], kind="stable")]
        of, first = np.unique(leaders[found.part[at]], return_index=True)
        for leader, some in zip(of.tolist(), np.split(at, first[1:]), strict=False):
            copies = np.repeat(found.offsets[some], counting[some])
            groups[leader].held += len(copies)
            groups[leader].fingerprint += fingerprint.of_offsets(*where, copies)
    return groups.values()


def _differs(sink: str, group: _Group) -> Finding | None:
    whose = "" if group.batch is not None else f"{group}: "
    text = f"{whose}sink '{sink}' holds {counted(group.held, 'record')}"
    if group.held != group.said:
        says = "ledger says" if len(group.parts) == 1 else "ledgers say"
        return Finding("sink-differs", f"{text}, the {says} {group.said:,}", group.batch)
    marks = [part.fingerprint for part in group.parts if part.fingerprint is not None]
    if len(marks) == len(group.parts) and sum(marks) != group.fingerprint:
        return Finding("sink-differs", f"{text}, but not those that were written to it", group.batch)
    return None


def _name(
    sink: str, group: _Group, there: dict[Partition, _There], records: By, recount: Recount, report: Report
) -> None:
    """Which records are missing. Where batches dropped some, only the steps can say which ones should be there, and
    they may have changed since: where they do not come to what was written, they are not believed."""
    places = sorted({where for part in group.parts for where in part.may})
    due = {where: _summed(part.may.get(where, NOTHING) for part in group.parts) for where in places}
    if _total(due) > group.said:
        try:
            wanted = recount([r for part in group.parts for r in part.ranges])
        except PenstockError as error:  # the batch is wrong all the same; only its records cannot be named
            report.findings.append(_not_named(group, first_line(error.cause)))
            return
        for where, (offsets, times) in due.items():
            known = np.isin(offsets, records.get(where, NOTHING))
            times[known & ~np.isin(offsets, wanted.get(where, NOTHING))] = 0
    exact = _total(due) == group.said
    lost: list[tuple[str, Partition, Offsets]] = []
    for where, (offsets, times) in due.items():
        has = np.zeros_like(times)
        if where in there:
            which, at = there[where].places(offsets)
            has[which] = there[where].counting[at]
        lost.append((f"neither in sink '{sink}' nor dead nor dropped", where, offsets[(has == 0) & (times > 0)]))
        if exact:
            lost.append((f"in sink '{sink}' less often than written", where, offsets[(has > 0) & (has < times)]))
            _more(sink, where, offsets[has > times], report)
    if not exact and sum(len(offsets) for _, _, offsets in lost) > max(0, group.said - group.held):
        report.findings.append(_not_named(group, "the steps do not come to what the ledger says was written"))
        return
    for text, where, offsets in lost:
        if len(offsets):
            said = f"{counted(len(offsets), 'record')} {'is' if len(offsets) == 1 else 'are'} lost: {text}"
            report.findings.append(Finding("lost", said, group.batch, *where, named(offsets)))


def _more(sink: str, where: Partition, offsets: Offsets, report: Report) -> None:
    if len(offsets):
        text = f"{counted(len(offsets), 'record')} in sink '{sink}' more often than written"
        report.findings.append(Finding("duplicate", text, None, *where, named(offsets)))


def _not_named(group: _Group, why: str) -> Finding:
    whose = "" if group.batch is not None else f"{group}: "
    return Finding("not-named", f"{whose}which records are lost cannot be told: {why}", group.batch)


def _summed(every: Iterable[Offsets]) -> tuple[Offsets, Offsets]:
    """Each offset once, and how many have it."""
    offsets, times = np.unique(np.concatenate(list(every)), return_counts=True)
    return offsets, times


def _total(due: Mapping[Partition, tuple[Offsets, Offsets]]) -> int:
    return sum(int(times.sum()) for _, times in due.values())


def _batches(writer: str, parts: Iterable[Part]) -> str:
    numbers = [part.batch for part in parts]
    text = f"batch {numbers[0]}" if len(numbers) == 1 else f"batches {', '.join(map(str, numbers))}"
    return f"{text} of {writer}" if writer else text
