"""How much the next batch may read: measurements in, a decision and its reason out.

A batch of n offsets takes about `overhead + cost * n` seconds. `decide` learns both numbers from the batches as they
come and moves the cap to where that sum is the target. In order:

    1. A replayed batch decides nothing: its size was fixed by an earlier run.
    2. Without a target the cap is fixed. The guard below then only advises.
    3. The engine is short of memory: half of what the batch had, whatever else holds; from there up by a tenth a batch.
    4. An empty batch, or one that is shorter than the target because no more was there, decides nothing. Raising the
       cap then would be winding up: nothing has shown that more would fit.
    5. The first batch after a start also warms the engine up. That counts against it only beyond an allowance.
    6. Within 15 % of the target the cap stays: noise is not followed.
    7. Otherwise the cap goes to what should take the target, at most four times up and eight times down at once.
    8. The guard around it, a rule of thumb: a batch below 5 s at least doubles the cap, one above 2 min at least halves
       it. For targets outside of 10 s to 1 min it widens to half and twice the target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

SHORT_S, LONG_S = 5.0, 120.0  # the guard of step 8
_BAND = 0.15  # of the target
_STEP_UP, _STEP_DOWN = 4.0, 8.0
_WARM_UP_S = 10.0  # classes, compiled code, connections, first look at tables
_DOUBT = 2.0  # that much may be noise; two batches that differ by more are of two worlds
_REMEMBERED, _FADING = 8, 0.6  # batches, and the weight of each against the next
_APART = 1.5  # sizes of two batches that tell overhead and cost apart
_NOISE = 0.1  # of the target: a smaller difference between two batches says little
_LEAST_WORK = 0.25  # of the target, for the work itself: where the overhead fills it, batches may take longer
_FULL = 0.85  # of the heap in use right after a full collection
_RECOVERY = 1.1  # per batch, after memory was short
_WORTHWHILE = 0.03  # a smaller change is none


@dataclass(frozen=True)
class Policy:
    start: int  # the first cap; the only one where there is no target
    target: float | None = None  # seconds
    floor: int = 1
    ceiling: int | None = None

    @property
    def guard(self) -> tuple[float, float]:
        target = self.target or 30.0
        return min(SHORT_S, target / 2), max(LONG_S, target * 2)


@dataclass(frozen=True)
class Measurement:
    """One finished batch."""

    batch: int
    seconds: float
    offsets: int
    cap: int  # that held when the batch was planned
    partitions: int = 1
    replay: bool = False
    memory: float | None = None  # share of the heap in use after a full collection; None: none since the last batch

    @property
    def full(self) -> bool:
        """The cap was the limit, so more was waiting. Spark rounds each partition's share of the cap down."""
        return self.offsets >= self.cap - self.partitions


@dataclass(frozen=True)
class State:
    """What is known after the batches so far. `State.at_start` begins a run."""

    cap: int
    batches: int = 0
    overhead: float = 0.0  # seconds
    cost: float | None = None  # seconds per offset
    seen: tuple[tuple[int, float], ...] = ()  # offsets and seconds of the last batches that taught something
    lid: float | None = None  # the cap stays below since memory was short
    tried: bool = False  # a larger batch, where the smallest one allowed took too long
    advised: str | None = None  # what was advised last, so that it is said once

    @classmethod
    def at_start(cls, policy: Policy) -> State:
        return cls(policy.start)


@dataclass(frozen=True)
class Decision:
    """What was decided after a batch, and why. `reason` is a stable word, `said` is for people."""

    batch: int
    before: int
    cap: int
    reason: str
    said: str
    seconds: float
    offsets: int

    @property
    def changed(self) -> bool:
        return self.cap != self.before


def decide(state: State, batch: Measurement, policy: Policy) -> tuple[State, Decision]:
    """The cap from the next batch on. Called after each batch, in their order."""
    stay = Decision(batch.batch, state.cap, state.cap, "", "", round(batch.seconds, 3), batch.offsets)
    if batch.replay:
        return state, replace(stay, reason="replay", said="a replayed batch has the size it was planned with")
    if policy.target is None:
        return _advised(state, batch, policy, replace(stay, reason="fixed", said="no target: the cap is fixed"))
    lid = state.lid * _RECOVERY if state.lid is not None else None
    now = replace(state, batches=state.batches + 1, lid=lid if lid and lid < _top(policy) else None)
    if batch.memory is not None and batch.memory >= _FULL:
        cap = min(state.cap, _within(policy, batch, min(state.cap, batch.offsets) / 2))
        said = f"{batch.memory:.0%} of the heap is in use after a full collection"
        return replace(now, cap=cap, lid=float(cap)), replace(stay, cap=cap, reason="memory", said=said)
    target, seconds = policy.target, batch.seconds
    if state.batches == 0 and seconds > target:
        seconds = max(target, seconds - _WARM_UP_S)
        if seconds == target:
            said = f"{batch.seconds:.1f} s, with what a start costs once"
            return now, replace(stay, reason="warm-up", said=said)
    tiny = batch.offsets * _STEP_DOWN < state.cap  # how long a full one would take cannot be told from it
    if batch.offsets == 0 or (not batch.full and (tiny or seconds <= target * (1 + _BAND))):
        return now, replace(stay, reason="no-input", said="the input was the limit, not the cap")
    now = _learned(now, batch.offsets, seconds, target)
    aim, reason, said = _aimed(now, batch, seconds, policy)
    cap = _within(policy, batch, aim if now.lid is None else min(aim, now.lid))
    if reason == "above-target" and cap == state.cap and not state.tried:
        # The smallest batch allowed takes too long: perhaps the size is not what makes it long. One try tells.
        now, cap, reason = replace(now, tried=True), _within(policy, batch, cap * 2), "trial"
    if reason != "on-target" and abs(cap - state.cap) <= _WORTHWHILE * state.cap:
        reason, said = "at-limit", f"{said}; no other cap is allowed, or would change it"
    if reason in ("on-target", "at-limit"):
        return now, replace(stay, reason=reason, said=said)
    return replace(now, cap=cap), replace(stay, cap=cap, reason=reason, said=said)


def _aimed(now: State, batch: Measurement, seconds: float, policy: Policy) -> tuple[float, str, str]:
    """Steps 6 to 8: how many offsets the next batch should have, the reason, and the same for people."""
    assert policy.target is not None and now.cost is not None
    target, (short, long) = policy.target, policy.guard
    said = f"{batch.seconds:.1f} s, target {target:g} s"
    goal, filled = target, now.overhead > target * (1 - _LEAST_WORK)
    if filled:  # smaller batches would not be shorter, only more
        goal = now.overhead + target * _LEAST_WORK
        said += f", of which {now.overhead:.1f} s are there at any size"
    expected = now.overhead + now.cost * batch.offsets
    # Near the target a step up is small, whatever the overhead seems to be: noise makes it look larger than it is.
    up = 2.0 if filled else min(_STEP_UP, max(1.0, (target / expected) ** 3))
    aim = min(max((goal - now.overhead) / now.cost, batch.offsets / _STEP_DOWN), batch.offsets * up)
    if not batch.full:
        aim = min(aim, now.cap)
    if seconds > long:
        return min(aim, batch.offsets / 2), "far-above-target", said
    if expected < short:  # and full, or it would have decided nothing
        return max(aim, batch.offsets * 2), "far-below-target", said
    if abs(expected - goal) <= _BAND * (goal - now.overhead if filled else target):
        return aim, "on-target", said
    return aim, "above-target" if expected > goal else "below-target", said


def _learned(state: State, offsets: int, seconds: float, target: float) -> State:
    """Overhead and cost after one more batch. The first one after a start, with its warm-up, is compared with none."""
    new = (offsets, seconds)
    seen = (*(old for old in state.seen if _agree(old, new)), new)[-_REMEMBERED:]
    overhead, cost = _fitted(seen, min(state.overhead, 0.9 * seconds), target)
    return replace(state, overhead=overhead, cost=cost, seen=seen if state.batches > 1 else ())


def _agree(one: tuple[int, float], two: tuple[int, float]) -> bool:
    """Whether both can be of the same world: there more offsets take longer, and each of them costs less."""
    (few, short), (many, long) = sorted((one, two))
    return long * _DOUBT >= short and long / many <= _DOUBT * short / few


def _fitted(seen: tuple[tuple[int, float], ...], known: float, target: float) -> tuple[float, float]:
    """Overhead and cost that explain these batches best; the newest count most. `known`: the overhead so far, which
    stands where all batches are about the same size."""
    weights = [_FADING ** (len(seen) - at) / offsets for at, (offsets, _) in enumerate(seen)]
    whole = sum(weights)
    offsets = sum(w * n for w, (n, _) in zip(weights, seen, strict=True)) / whole
    seconds = sum(w * s for w, (_, s) in zip(weights, seen, strict=True)) / whole
    few, many = min(n for n, _ in seen), max(n for n, _ in seen)
    if many < few * _APART:
        overhead = min(known, 0.9 * min(s for _, s in seen))
        return overhead, (seconds - overhead) / offsets
    spread = sum(w * (n - offsets) ** 2 for w, (n, _) in zip(weights, seen, strict=True))
    slope = sum(w * (n - offsets) * (s - seconds) for w, (n, s) in zip(weights, seen, strict=True)) / spread
    cost = max(slope, _NOISE * target / (many - few))
    overhead = seconds - cost * offsets
    return (overhead, cost) if overhead > 0 else (0.0, seconds / offsets)


def _top(policy: Policy) -> float:
    return policy.ceiling if policy.ceiling is not None else 1e12


def _within(policy: Policy, batch: Measurement, cap: float) -> int:
    """Below one offset per partition Spark reads more than the cap says."""
    lowest = max(policy.floor, batch.partitions)
    return math.ceil(min(max(cap, lowest), max(_top(policy), lowest)))  # one more where one is all there is


def _advised(state: State, batch: Measurement, policy: Policy, fixed: Decision) -> tuple[State, Decision]:
    """Step 2: what the guard would do, said once until it would do something else."""
    short, long = policy.guard
    took = f"a batch of {batch.offsets:,} offsets took {batch.seconds:.1f} s"
    said = None
    if batch.seconds > long:
        said = f"{took}: halve `rate.max_offsets`, or set `rate.target_batch`"
    elif batch.seconds < short and batch.full:
        said = f"{took} and more was waiting: double `rate.max_offsets`, or set `rate.target_batch`"
    reason = "advice" if said else "fixed"
    side = None if said is None else "halve" if batch.seconds > long else "double"
    if said is None or side == state.advised:
        return replace(state, advised=side or state.advised), fixed
    return replace(state, advised=side), replace(fixed, reason=reason, said=said)
