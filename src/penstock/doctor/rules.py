"""From facts to findings: what is wrong with a pipeline, why, and what to do. Arithmetic only; `doctor.gather` asks.

A rule is a function from Facts to the findings of one cause. It must name its cause when it is there, and stay silent
when something else is: a slow sink makes batches long too, but a cap that is too high is another cause. Most have a
test that brings their cause about on real servers: docs/doctor.md says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, median

from penstock.doctor import dead_letters, event_time, stopped
from penstock.doctor.facts import SEVERITIES, Facts, Finding, Ran
from penstock.spec.duration import span

_SHORT_S, _LONG_S = 5.0, 120.0  # the rule of thumb for batches
_FULL = 0.9  # of the cap
_SLOWER = 3.0  # times
_FEW_BATCHES = 3
_FEW_ROWS, _PRICE_S = 100, 5.0  # so few rows in less than that tell what a batch costs, and nothing of the sink
_SMALL_FILE = 16 << 20
_MANY_FILES = 200
_GROWING = 6  # batches in each of which state grew
_SOON, _SOON_S = 0.5, 6 * 3600.0  # of the retention gone; or so long before the first loss


Rule = Callable[[Facts], Iterator[Finding]]


def examine(facts: Facts) -> list[Finding]:
    """Worst first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _recent(facts: Facts) -> list[Ran]:
    return [ran for ran in facts.batches[-_FEW_BATCHES:] if ran.offsets]


def _full(facts: Facts) -> list[Ran]:
    """The last batches, where each of them read as much as it may: the cap, not the input, was the limit."""
    recent = _recent(facts)
    if len(recent) < _FEW_BATCHES or not all(ran.offsets >= _FULL * (ran.cap or facts.cap) for ran in recent):
        return []
    return recent


def loss_forecast(facts: Facts) -> Iterator[Finding]:
    """When retention overtakes the position, at the rate of now (O4). Of a pipeline that never ran there is none:
    what expires before its first run was never its to read."""
    if facts.rest == "never-ran":
        return
    first = None
    for each in facts.lag.partitions:
        kept = facts.retention_s.get(each.topic)
        if kept is None or each.behind_s is None or (each.topic, each.partition) in facts.lag.expired:
            continue
        # For each second that passes the oldest record that waits gets one older, but for what is read meanwhile.
        share = each.lag / facts.lag.total if facts.lag.total else 0.0
        read = (facts.lag.capacity or 0.0) * share if facts.running else 0.0
        arriving = each.arriving or 0.0
        slope = 1.0 if not arriving else max(0.0, 1.0 - read / arriving)
        if facts.running and read >= arriving:
            continue
        left = (kept - each.behind_s) / slope if slope else None
        if left is not None and (first is None or left < first[0]):
            first = left, each, kept
    if first is None:
        return
    left, each, kept = first
    if each.behind_s is None or (each.behind_s < _SOON * kept and left > _SOON_S):
        return
    yield Finding(
        "retention-overtakes",
        "critical" if left < _SOON_S else "warning",
        f"first loss in {span(left)}",
        (
            f"the next record of {each.topic}-{each.partition} is {span(each.behind_s)} old",
            f"Kafka keeps records of {each.topic} for {span(kept)}",
            "nothing reads them" if not facts.running else "they are read more slowly than they come",
        ),
        "penstock run FILE" if not facts.running else "raise `retention.ms` of the topic until the lag is gone",
        {"seconds": left, "topic": each.topic, "partition": each.partition},
    )


def registry_down(facts: Facts) -> Iterator[Finding]:
    if facts.registry:
        yield Finding(
            "registry-down",
            "warning",
            "the schema registry does not answer",
            (facts.registry, "records whose schema is known go on; others wait"),
            "start the registry, or correct `registry.url`",
        )


def slow_sink(facts: Facts) -> Iterator[Finding]:
    """A sink that takes several times as long per row as it did before, in warm batches that are not much smaller: each
    has a price of its own, whatever it holds."""
    for name in sorted({name for ran in facts.batches for name in ran.sinks}):
        took = [ran.sinks[name] for ran in facts.batches if name in ran.sinks and not ran.cold]
        if not took:
            continue
        usual = median(rows for rows, _ in took)
        alike = [(rows, seconds) for rows, seconds in took if rows and 2 * rows >= usual and seconds > 0]
        rates, lately = [rows / seconds for rows, seconds in alike], alike[-_FEW_BATCHES:]
        before = sorted(rates[:-_FEW_BATCHES])
        if len(before) < _FEW_BATCHES:
            continue
        now, then = median(rates[-_FEW_BATCHES:]), before[len(before) * 3 // 4]  # the first batches are slow by nature
        price = max(rows for rows, _ in lately) < _FEW_ROWS and max(seconds for _, seconds in lately) < _PRICE_S
        if then > _SLOWER * now and not price:
            yield Finding(
                "slow-sink",
                "warning",
                f"sink '{name}' has become slow",
                (
                    f"it takes {now:,.0f} rows/s in the last {_FEW_BATCHES} warm batches",
                    f"in good ones before them it took {then:,.0f}",
                ),
                f"look at what sink '{name}' writes to: its locks, its disk, its network",
                {"sink": name, "now": now, "before": then},
            )


def cap_too_low(facts: Facts) -> Iterator[Finding]:
    full = _full(facts)
    if facts.adaptive or not full or not facts.lag.total:
        return
    took = median(ran.seconds for ran in full)
    if took < _SHORT_S and facts.lag.total > facts.cap:
        yield Finding(
            "cap-too-low",
            "warning",
            f"batches are full at {facts.cap:,} offsets and take only {took:.1f} s",
            (f"{facts.lag.total:,} offsets wait", f"the last {len(full)} batches read as much as they may"),
            "raise `rate.max_offsets`, or give `rate.target_batch` and let it move by itself",
        )


def cap_too_high(facts: Facts) -> Iterator[Finding]:
    full = _full(facts)
    if facts.adaptive or not full or any(slow_sink(facts)):
        return
    took = median(ran.seconds for ran in full)
    if took > _LONG_S:
        yield Finding(
            "cap-too-high",
            "warning",
            f"batches are full at {facts.cap:,} offsets and take {took:,.0f} s",
            (f"the last {len(full)} batches took more than {_LONG_S:.0f} s",),
            "lower `rate.max_offsets`, or give `rate.target_batch` and let it move by itself",
        )


def target_too_short(facts: Facts) -> Iterator[Finding]:
    """Smaller batches would not be shorter, only more: the target cannot be met at any size. Where nothing runs and
    nothing waits there is no batch that could be too long."""
    overhead = facts.overhead_s
    if facts.target_s is None or overhead is None or overhead <= facts.target_s:
        return
    if not facts.running and not facts.lag.total:
        return
    yield Finding(
        "target-below-overhead",
        "warning",
        f"`rate.target_batch` is {facts.target_s:g} s, and a batch takes about {overhead:.1f} s whatever its size",
        ("as rate control has learned from batches of several sizes",),
        f"raise `rate.target_batch`, to {2 * overhead:.0f} s or more",
        {"target_s": facts.target_s, "overhead_s": overhead},
    )


def input_above_capacity(facts: Facts) -> Iterator[Finding]:
    lag, recent = facts.lag, _recent(facts)
    if not facts.running or lag.capacity is None or not lag.arriving or lag.arriving <= lag.capacity:
        return
    if any(cap_too_low(facts)) or any(slow_sink(facts)) or not lag.total or not recent:
        return
    yield Finding(
        "input-above-capacity",
        "critical",
        "more arrives than can be read",
        (f"{lag.arriving:,.0f} offsets/s arrive, {lag.capacity:,.0f} are read", f"{lag.total:,} offsets wait"),
        "give it more cores (`spark.master`, `source.min_partitions`), or split the pipeline",
    )


def hot_partition(facts: Facts) -> Iterator[Finding]:
    for topic, partition in facts.lag.hot:
        [each] = [p for p in facts.lag.partitions if (p.topic, p.partition) == (topic, partition)]
        others = [p for p in facts.lag.partitions if p is not each and p.known]
        waits, gets = mean(p.lag for p in others), mean(p.arriving or 0.0 for p in others)
        yield Finding(
            "hot-partition",
            "warning",
            f"{topic}-{partition} gets or holds far more than the others",
            (
                *_against_others(each.arriving or 0.0, gets, "offsets/s arrive"),
                *_against_others(each.lag, waits, "offsets wait"),
            ),
            "spread the keys of the producer; until then `source.min_partitions` reads it with several tasks",
            {"topic": topic, "partition": partition},
        )


def _against_others(in_it: float, in_others: float, what: str) -> Iterator[str]:
    usual = f"on average {in_others:,.0f} in each of the others" if round(in_others) else "none in the others"
    if round(in_it):
        yield f"{in_it:,.0f} {what} in it, {usual}"


def small_files(facts: Facts) -> Iterator[Finding]:
    for name, files in facts.files.items():
        if files.count >= _MANY_FILES and files.bytes / files.count < _SMALL_FILE:
            yield Finding(
                "small-files",
                "warning",
                f"sink '{name}' has {files.count:,} files of {files.bytes / files.count / 1024:,.0f} KB on average",
                (f"{files.bytes / (1 << 20):,.0f} MB in {files.count:,} files",),
                "write larger batches (`rate`, `trigger`), and let `optimize` of the sink put files together",
                {"sink": name, "files": files.count},
            )


def state_growth(facts: Facts) -> Iterator[Finding]:
    """State that only ever grows: the watermark stands still, or has passed what the step keeps and frees nothing.

    At the beginning state grows by nature, until the watermark has come as far as a row is kept.
    """
    for view in sorted({view for ran in facts.batches for view in ran.state}):
        held = [ran.state[view] for ran in facts.batches if ran.offsets and view in ran.state][-_GROWING:]
        grew = all(after.rows > before.rows for before, after in pairwise(held))
        if len(held) < _GROWING or not grew or held[-1].rows < 2 * held[0].rows:
            continue
        known = [each.watermark_s for each in held if each.watermark_s]  # 0 before there is one
        moved, keeps = known[-1] - known[0] if known else 0.0, facts.keeps_s.get(view)
        if keeps is not None and 0 < moved <= keeps:
            continue
        if keeps is None:
            why = "nothing in the step makes it forget a key"
        elif moved:
            why = f"event time went on by {span(moved)}; a row should stay for {span(keeps)}"
        else:
            why = "the watermark stands still: event times do not go on, or one side of a join brings nothing"
        yield Finding(
            "state-growth",
            "warning",
            f"the state of '{view}' only grows: {held[-1].rows:,} rows",
            (f"it had {held[0].rows:,} rows {len(held)} batches ago, and more after each since", why),
            "look at the event times of the records (`time` of the step), and at how long it keeps them (`late_after`, "
            "`within`, timers; a class of your own: what it clears)",
            {"view": view, "rows": held[-1].rows, "watermark_moved_s": moved},
        )


def falling_behind(facts: Facts) -> Iterator[Finding]:
    """Verdicts that no other rule explains."""
    bad = {place: said for place, said in facts.verdicts.items() if said in ("STALL", "REWIND")}
    for (topic, partition), said in bad.items():
        told = "does not move although something waits" if said == "STALL" else "went back"
        yield Finding(
            f"partition-{said.lower()}",
            "critical",
            f"{topic}-{partition} {told}",
            (f"verdict {said} over the last commits",),
            "penstock checkpoint show FILE",
            {"topic": topic, "partition": partition},
        )


RULES: tuple[Rule, ...] = (
    stopped.damaged,
    stopped.recreated,
    stopped.start_not_there,
    stopped.went_back,
    stopped.lost,
    stopped.spent_budget,
    stopped.stuck_batch,
    stopped.partitions,  # before the advice to run: a partition without a leader is not read
    stopped.not_running,
    stopped.never_ran,
    stopped.between_runs,
    stopped.silent,
    loss_forecast,
    falling_behind,
    input_above_capacity,
    slow_sink,
    registry_down,
    hot_partition,
    cap_too_low,
    cap_too_high,
    target_too_short,
    small_files,
    state_growth,
    dead_letters.dead_letters,
    event_time.ahead,
    event_time.late,
    event_time.behind,
)
