"""How much the next batch may read: measurements in, a decision and its reason out.

A batch of n offsets takes about `overhead + cost * n` seconds (`control.fit`). `decide` learns both numbers from the
batches as they come and moves the cap to where that sum is the target. In order:

    1. A replayed batch decides nothing: its size was fixed by an earlier run.
    2. Without a target the cap is fixed. The guard below then only advises.
    3. The engine is short of memory: half of what the batch had, whatever else holds; from there up by a tenth a batch.
    4. An empty batch, or one that is shorter than the target because no more was there, decides nothing. Raising the
       cap then would be winding up: nothing has shown that more would fit.
    5. The first batch after a start also warms the engine up. It never lowers the cap, and nothing is learned from it.
    6. Where the overhead alone takes most of the target, smaller batches would hardly be shorter, only more: the
       goal then is longer than the target (`Fit.goal`).
    7. What a batch of this size should take, by all that was measured, is within 15 % of the goal: the cap stays.
       It also stays where the batch itself does not bear out what is expected, or was too long by less than half and
       the one before it was not; with a goal above the target also the other way round: noise is not followed.
    8. Otherwise the cap goes to what should take the goal, at most four times up and sixteen times down at once.
    9. The guard around it, a rule of thumb: a batch below 5 s at least doubles the cap, one above 2 min at least halves
       it. For targets outside of 10 s to 1 min it widens to half and twice the target.
   10. A change that is not worth it is none. Where the query has to be started again for it, half is the least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from penstock.control.fit import Fit, learned
from penstock.errors import counted

SHORT_S, LONG_S = 5.0, 120.0  # the guard of step 9
_BAND, _WIDE_BAND = 0.15, 0.25  # of the goal; the wide one where that is not the target
_SPIKE = 1.5  # times the goal; a batch below may be noise, and has to be confirmed by another one
_STEP_UP, _STEP_DOWN = 4.0, 16.0
_TINY = 8.0  # times smaller than the cap: how long a full batch would take cannot be told from such a one
_SUSPECT = 500.0  # offsets a second: where it is less, the time is more likely there at any size
_OTHER_SIZE = 1.75  # times smaller: enough to tell overhead and cost apart
_BOLD, _BOLD_BELOW = 2.0, 0.7  # times the goal that a step up from below this may lead to, should there be no overhead
_FULL = 0.85  # of the heap in use right after a full collection
_RECOVERY = 1.1  # per batch, after memory was short
_WORTHWHILE = 1.03  # times larger or smaller; less is no change
_FILLED = "target-below-overhead"


@dataclass(frozen=True)
class Policy:
    start: int  # the first cap; the only one where there is no target
    target: float | None = None  # seconds
    floor: int = 1
    ceiling: int | None = None
    worth: float = _WORTHWHILE  # times larger or smaller: the least change of the cap

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
    first: bool = False  # since the query was started, also when it was started again

    @property
    def full(self) -> bool:
        """The cap was the limit, so more was waiting. Spark rounds each partition's share of the cap down."""
        return self.offsets >= self.cap - self.partitions


@dataclass(frozen=True)
class State:
    """What is known after the batches so far. `State.at_start` begins a run."""

    cap: int
    batches: int = 0
    fit: Fit = field(default_factory=Fit)
    leaning: int = 0  # 1: the last batch took too long; -1: one of its size is expected to take too short
    halved: bool = False  # by the guard, though the overhead was above the target: once is enough
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
    wanted: int  # the cap that should hold; another one than `cap` until, or unless, the query is started again
    since: int  # the first batch for which `cap` holds
    expected: float | None = None  # seconds that a batch of so many offsets should take, by all that was measured
    overhead: float | None = None  # seconds of it that are there at any size
    goal: float | None = None  # seconds that are aimed at: the target, or more where the overhead fills it

    @property
    def changed(self) -> bool:
        return self.cap != self.before


def decide(state: State, batch: Measurement, policy: Policy) -> tuple[State, Decision]:
    """The cap from the next batch on. Called after each batch, in their order."""
    number, seconds, was = batch.batch, round(batch.seconds, 3), state.cap
    stay = Decision(number, was, was, "", "", seconds, batch.offsets, wanted=was, since=number + 1)
    if batch.replay:
        return state, replace(stay, reason="replay", said="a replayed batch has the size it was planned with")
    if policy.target is None:
        return _advised(state, batch, policy, replace(stay, reason="fixed", said="no target: the cap is fixed"))
    lid = state.lid * _RECOVERY if state.lid is not None else None
    now = replace(state, batches=state.batches + 1, lid=lid if lid and lid < _top(policy) else None)
    if batch.memory is not None and batch.memory >= _FULL:
        cap = min(was, _within(policy, batch, min(was, batch.offsets) / 2))
        said = f"{batch.memory:.0%} of the heap is in use after a full collection"
        return replace(now, cap=cap, lid=float(cap)), replace(stay, cap=cap, wanted=cap, reason="memory", said=said)
    tiny = batch.offsets * _TINY < batch.cap
    if batch.offsets == 0 or (not batch.full and (tiny or batch.seconds <= policy.target * (1 + _BAND))):
        return now, replace(stay, reason="no-input", said="the input was the limit, not the cap")
    first = batch.first or state.batches == 0
    fit = learned(Fit() if first else now.fit, batch.offsets, batch.seconds, policy.target)
    aim = _aimed(fit, batch, policy, state, first)
    overhead, goal = None if fit.overhead is None else round(fit.overhead, 3), round(fit.goal(policy.target), 3)
    stay = replace(stay, said=aim.said, expected=round(aim.expected, 3), overhead=overhead, goal=goal)
    if first and batch.seconds > policy.target:
        return now, replace(stay, reason="warm-up", said=f"{batch.seconds:.1f} s, with what a start costs once")
    stay = replace(stay, reason=aim.reason)
    if not first:
        filled = (fit.overhead or 0.0) >= policy.target
        halved = filled and (state.halved or aim.reason == "far-above-target")
        now = replace(now, fit=fit, leaning=aim.leaning, halved=halved)
    offsets = aim.offsets
    if not first and fit.rests_on_one(policy.target) and not state.tried and (trial := _trial(aim, batch, policy)):
        now, stay, offsets = replace(now, tried=True), replace(stay, reason="trial"), trial
    if offsets is None:
        return now, stay
    cap = _within(policy, batch, offsets if now.lid is None else min(offsets, now.lid))
    return _weighed(now, replace(stay, wanted=cap), policy)


def _trial(aim: _Aim, batch: Measurement, policy: Policy) -> float | None:
    """The smallest batch allowed takes too long, or so few offsets take the target: perhaps the size is not what makes
    it long. One try with a larger batch tells."""
    if aim.reason == "above-target" and aim.offsets and _within(policy, batch, aim.offsets) == batch.cap:
        return batch.cap * 2.0
    few = aim.reason == "on-target" and batch.full and batch.offsets < _SUSPECT * batch.seconds
    return batch.offsets * _STEP_UP if few else None


def _weighed(now: State, stay: Decision, policy: Policy) -> tuple[State, Decision]:
    """Step 10."""
    change = max(stay.wanted, stay.cap) / min(stay.wanted, stay.cap)
    if change <= _WORTHWHILE:
        said = f"{stay.said}; no other cap is allowed, or would change it"
        reason = stay.reason if stay.reason == _FILLED else "at-limit"
        return now, replace(stay, wanted=stay.cap, reason=reason, said=said)
    if change < policy.worth:
        said = f"{stay.said}; {stay.wanted:,} would be better, but is not worth a restart"
        return now, replace(stay, reason="not-worth-a-restart", said=said)
    return replace(now, cap=stay.wanted), replace(stay, cap=stay.wanted)


@dataclass(frozen=True)
class _Aim:
    offsets: float | None  # of the next batch; None: as before
    reason: str
    said: str
    expected: float  # seconds
    leaning: int  # as in State


def _aimed(fit: Fit, batch: Measurement, policy: Policy, state: State, first: bool) -> _Aim:
    """Steps 6 to 9. `state`: before this batch."""
    assert policy.target is not None
    seconds, target, (short, long), overhead = batch.seconds, policy.target, policy.guard, fit.overhead or 0.0
    goal, expected = fit.goal(target), fit.seconds(batch.offsets)
    usual = "" if abs(expected - seconds) < 0.05 * seconds else f" where {expected:.1f} s are expected"
    said = f"{seconds:.1f} s{usual}, target {target:g} s"
    if goal > target:
        said += f"; {overhead:.1f} s are there at any size, so {goal:.1f} s are aimed at"
    band = goal * (_BAND if goal == target else _WIDE_BAND)
    low, high = goal - min(band, (goal - overhead) / 2), goal + band  # at least half of the time for the offsets
    leaning, offsets = 1 if seconds > high else -int(expected < low), _sized(fit, batch, goal, first)
    if seconds > long and not (state.halved and overhead >= target):
        return _Aim(min(offsets, batch.offsets / 2), "far-above-target", said, expected, leaning)
    if expected < short:  # and full, or it would have decided nothing
        return _Aim(max(offsets, batch.offsets * 2), "far-below-target", said, expected, leaning)
    if low <= expected <= high:
        reason = "on-target"
    elif expected < goal:
        near = goal > target and expected * _SPIKE > goal and state.leaning != -1
        reason = "unconfirmed" if near or leaning == 1 else "below-target"
    else:
        near = seconds <= _SPIKE * goal and state.leaning != 1
        reason = "unconfirmed" if near or seconds <= goal else "above-target"
    stays = reason in ("on-target", "unconfirmed")
    return _Aim(None if stays else offsets, _FILLED if overhead >= target else reason, said, expected, leaning)


def _sized(fit: Fit, batch: Measurement, goal: float, first: bool) -> float:
    """Step 8: how many offsets should take the goal."""
    overhead, most = fit.overhead or 0.0, goal / batch.seconds * _BOLD
    aim = max((goal - overhead) / fit.cost, batch.offsets / _STEP_DOWN)
    if fit.overhead is None and not first:  # a batch of a size far enough from this one will tell it
        larger = max(aim, batch.offsets * most) if batch.seconds < goal * _BOLD_BELOW else aim
        aim = larger if batch.seconds < goal else min(aim, batch.offsets / _OTHER_SIZE)
    # Near the goal a step up is small, whatever the overhead seems to be: noise makes it look larger than it is.
    aim = min(aim, batch.offsets * max(1.0, min(_STEP_UP, (goal / fit.seconds(batch.offsets)) ** 3, most)))
    return aim if batch.full else min(aim, batch.cap)


def _top(policy: Policy) -> float:
    return policy.ceiling if policy.ceiling is not None else 1e12


def _within(policy: Policy, batch: Measurement, cap: float) -> int:
    """Below one offset per partition Spark reads more than the cap says."""
    lowest = max(policy.floor, batch.partitions)
    return math.ceil(min(max(cap, lowest), max(_top(policy), lowest)))  # one more where one is all there is


def _advised(state: State, batch: Measurement, policy: Policy, fixed: Decision) -> tuple[State, Decision]:
    """Step 2: what the guard would do, said once until it would do something else. The time of a first batch is that of
    a start, whatever its size: it says nothing. One of less than half the cap would be as long with half of it."""
    if batch.first:
        return state, fixed
    short, long = policy.guard
    took = f"a batch of {counted(batch.offsets, 'offset')} took {batch.seconds:.1f} s"
    if batch.seconds > long and batch.offsets * 2 > batch.cap:
        side, said = "halve", f"{took}: halve `rate.max_offsets`, or set `rate.target_batch`"
    elif batch.seconds < short and batch.full:
        side, said = "double", f"{took} and more was waiting: double `rate.max_offsets`, or set `rate.target_batch`"
    else:
        return state, fixed
    if side == state.advised:
        return state, fixed
    return replace(state, advised=side), replace(fixed, reason="advice", said=said)
