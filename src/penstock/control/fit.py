"""How long a batch of n offsets takes: `overhead + cost * n` seconds, learned from the last batches.

Medians, not means: a machine that is busy with something else makes a batch of any size slow now and then, and one such
batch must not look like a size that is slow. Where one contradicts all that was known, it is believed at once, and what
was known comes back when the next batch bears it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

_DOUBT = 2.0  # that much may be noise; two batches that differ by more are of two worlds
_NEAR, _FAR = 8, 6  # batches that are remembered: of about the size of the newest, and of others
_FADING = 0.75  # the weight of each against the next
_APART = 1.5  # sizes of two batches that tell overhead and cost apart
_NOISE = 0.1  # of the target: a smaller difference between two batches says little
_ESTABLISHED = 3  # batches: what they say is worth keeping beside a single one that contradicts some of them
_BORNE_OUT = 1.25  # times longer or shorter than expected, at the most
_LEAST_COST = 0.1  # of a batch, for its offsets, where only batches of one size are remembered

Seen = tuple[tuple[int, float], ...]  # offsets and seconds, oldest first


@dataclass(frozen=True)
class Fit:
    seen: Seen = ()
    overhead: float | None = None  # seconds; not known before batches of two sizes were seen
    cost: float = 0.0  # seconds per offset
    before: Fit | None = None  # what was known before the newest batch contradicted it

    def rests_on_one(self, target: float) -> bool:
        """Overhead and cost were told apart by one batch that was larger than the newest, or not yet: without it they
        would be unknown, or others. Had it been slow for a reason of its own, they would be wrong."""
        larger = [n for n, (offsets, _) in enumerate(self.seen) if offsets > self.seen[-1][0]]
        without = [_fitted(self.seen[:n] + self.seen[n + 1 :], None, target) for n in larger]
        return self.overhead is None or any(o is None or cost * _DOUBT < self.cost for o, cost in without)

    def seconds(self, offsets: int) -> float:
        return (self.overhead or 0.0) + self.cost * offsets

    def goal(self, target: float) -> float:
        """How long a batch should take.

        The target, unless the overhead fills more than two thirds of it. From there on the part of the offsets grows
        with the overhead instead of shrinking; where the overhead is the target or more, it is as long as the overhead.
        So about half of the time is work, however low the target is.
        """
        overhead = self.overhead or 0.0
        return max(target, overhead + min(overhead, 2 * overhead - target))


def learned(known: Fit, offsets: int, seconds: float, target: float) -> Fit:
    """After one more batch. The overhead is never more than this batch took as a whole."""
    new = (offsets, seconds)
    if known.before is not None:
        known = known.before if _borne_out(known.before, known, new) else replace(known, before=None)
    kept = [old for old in known.seen if _agree(old, new)]
    near = [old for old in kept if max(old[0], offsets) < min(old[0], offsets) * _APART]
    far = [old for old in kept if old not in near]  # overhead and cost cannot be told apart without them
    seen = (*(old for old in kept if old in near[-_NEAR:] or old in far[-_FAR:]), new)
    overhead, cost = _fitted(seen, known.overhead, target)
    before = known if len(kept) < len(known.seen) >= _ESTABLISHED else None
    return Fit(seen, overhead if overhead is None else min(overhead, seconds), cost, before)


def _borne_out(before: Fit, since: Fit, new: tuple[int, float]) -> bool:
    """Whether a batch is what was expected before the one that contradicted it, rather than what was since."""
    offsets, seconds = new

    def off(fit: Fit) -> float:
        expected = fit.seconds(offsets)
        return max(expected, seconds) / min(expected, seconds)

    return off(before) < min(off(since), _BORNE_OUT)


def _agree(one: tuple[int, float], two: tuple[int, float]) -> bool:
    """Whether both can be of the same world: there more offsets take longer, and each of them costs less."""
    (few, short), (many, long) = sorted((one, two))
    return long * _DOUBT >= short and long / many <= _DOUBT * short / few


def _fitted(seen: Seen, known: float | None, target: float) -> tuple[float | None, float]:
    """Overhead and cost that explain these batches best; the newest count most. `known`: the overhead so far, which
    stands where all batches are about the same size."""
    aged = [(_FADING ** (len(seen) - at), offsets, seconds) for at, (offsets, seconds) in enumerate(seen)]
    apart = [(one, two) for one in aged for two in aged if two[1] >= one[1] * _APART]
    if not apart:
        typical, size = _mean((age, s) for age, _, s in aged), _mean((age, n) for age, n, _ in aged)
        overhead = None if known is None else min(known, (1 - _LEAST_COST) * typical)
        return overhead, (typical - (overhead or 0.0)) / size
    # A pair says more the further apart its sizes are.
    slopes = [(v * w * (many - few), (long - short) / (many - few)) for (v, few, short), (w, many, long) in apart]
    cost = max(_median(slopes), _NOISE * target / (max(n for n, _ in seen) - min(n for n, _ in seen)))
    overhead = _median([(age, s - cost * n) for age, n, s in aged])
    return (overhead, cost) if overhead > 0 else (0.0, _median([(age * n, s / n) for age, n, s in aged]))


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    pairs = list(weighted)
    return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)


def _median(weighted: list[tuple[float, float]]) -> float:
    """The lower one of two: time is lost more easily than gained."""
    half, passed = sum(weight for weight, _ in weighted) / 2, 0.0
    for weight, value in sorted(weighted, key=lambda each: each[1]):
        passed += weight
        if passed >= half * (1 - 1e-9):
            return value
    raise AssertionError("there is no median of nothing")
