"""Records that a step or a sink's condition fails on (a cast that does not hold, a division by zero), found by halving.

The engine says what went wrong and not where. So the batch is tried again in parts, without writing anything, until
single records are left. They become dead letters; the rest of the batch is written. The records are decoded once, for
all trials: a task that fails takes its Python worker along, and a new one costs more than the trial.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.batch.source_view import Inlet, is_one_of, source_views
from penstock.contract.verdict import stopped_by
from penstock.errors import StepFailed, chain, counted, from_worker
from penstock.record import FAILED_STEP, KAFKA, Failure, OffsetRange, Position, shortened
from penstock.transform import python
from penstock.watch import Report, unheard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Culprits = dict[str, dict[Position, Failure]]
"""By sink: the records that its steps or its condition fail on."""
_Views = dict[str, "DataFrame"]
_TELL_S = 15.0  # how long a search says nothing
MOST = 100  # records of one batch; where more fail, the step is wrong and not the records
# Of data, of `raise_error`, of a key that a map has twice. Other errors are no record's fault.
_ABOUT_A_VALUE = re.compile(r"SQLSTATE: (?:22|P0|23505)")
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]*\] ")
_NOISE = re.compile(r' SQLSTATE: \w+| To return NULL instead, use .*| If necessary set "?spark\.\S+ to .*', re.DOTALL)


def searching(batch: int, ranges: Iterable[OffsetRange]) -> str:
    """To be told before a search: it takes as long as many small batches, and says nothing meanwhile."""
    among = counted(sum(map(len, ranges)), "offset")
    return f"batch {batch}: a step or a condition fails on some record; looking for which, among {among}"


def whole(error: BaseException | None) -> str:
    """What an error and its causes say, one after the other."""
    return "\n".join(map(str, chain(error)))


def speaks_of_a_value(error: BaseException) -> bool:
    """SQL's data exceptions, whose states begin with 22, and what functions of Python steps raise. The engine wraps
    them, in Java's exceptions too. Not what Penstock itself raised, whatever value it quotes."""
    return _about_a_value(error) is not None


def _about_a_value(error: BaseException) -> str | None:
    """What is wrong with the value, in one line."""
    said = f"{error}\n{error.__cause__}"
    if from_worker(said) or stopped_by(said):
        return None
    state = _ABOUT_A_VALUE.search(said)
    if state is None:
        return python.blame(said)
    # The value that is quoted may have any text in it, also lines that look like an error's. It comes behind the class
    # of the error; errors around this one say their own state before it.
    end = state.start()
    begins = [found.start() for found in _CLASS.finditer(said, 0, end)]
    own = (a for a, b in pairwise([*begins, end]) if "SQLSTATE: " not in said[a:b])
    start = next(own, said.rfind("\n", 0, end) + 1)
    return _NOISE.sub("", " ".join(said[start:end].split()))


@contextmanager
def decoded_once(inlets: Iterable[Inlet], raw: DataFrame) -> Iterator[_Views]:
    """The source views of a batch, to be read many times."""
    from pyspark import StorageLevel

    kept = {view: rows.persist(StorageLevel.MEMORY_AND_DISK) for view, rows in source_views(inlets, raw).items()}
    try:
        yield kept
    finally:
        for rows in kept.values():
            rows.unpersist()


def culprits(
    sources: _Views,
    ranges: tuple[OffsetRange, ...],
    rows: Callable[[_Views], DataFrame],
    view: str,
    held: Collection[Position] = (),
    report: Report = unheard,
) -> dict[Position, Failure]:
    """The records that `rows`, the view made of all of them, fails on. Raises StepFailed where they are too many.

    `sources`: see `decoded_once`. `held`: records that the sink has already and is not handed again. They must not die
    for it, or a replay would write them there a second time.
    """
    if held:
        sources = {name: without(some, held) for name, some in sources.items()}
    found: dict[Position, Failure] = {}
    sound, of, told = 0, sum(map(len, ranges)), time.monotonic()

    def tried(part: list[OffsetRange]) -> str | None:
        nonlocal sound, told
        if time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            report(f"still looking: {sound:,} of {of:,} offsets are sound, {len(found)} are not")
        said = _raised(rows(_within(sources, part)))
        sound += sum(map(len, part)) if said is None else 0
        return said

    _search([r for r in ranges if len(r)], tried, found)
    if len(found) > MOST:
        raise StepFailed(
            f"the steps up to '{view}' fail on more than {counted(MOST, 'record')} of a batch",
            cause=next(iter(found.values())).reason,
            next_command="the step is wrong, and not the records: correct it, or let it cope with such values "
            "(try_divide, try_cast), then: penstock run FILE; single records would become dead letters",
            facts={"view": view, "limit": MOST},
        )
    return found


def without(rows: DataFrame, positions: Iterable[Position]) -> DataFrame:
    """The rows that do not come from these records."""
    from pyspark.sql import functions as F

    at = F.col(KAFKA)
    return rows.where(~is_one_of(positions, at["topic"], at["partition"], at["offset"]))


def _search(
    ranges: list[OffsetRange],
    tried: Callable[[list[OffsetRange]], str | None],
    found: dict[Position, Failure],
    known: str | None = None,
) -> None:
    """`known`: what was said of more records than these, the others of which are sound. Then these need no trial."""
    if not ranges or len(found) > MOST:
        return
    said = known or tried(ranges)
    if said is None:
        return
    if sum(map(len, ranges)) == 1:
        (one,) = ranges
        found[one.topic, one.partition, one.start] = Failure(FAILED_STEP, shortened(said))
        return
    left, right = _halves(ranges)
    before = len(found)
    _search(left, tried, found)
    _search(right, tried, found, said if len(found) == before else None)


def _halves(ranges: list[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
    left, right, room = [], [], sum(map(len, ranges)) // 2
    for each in ranges:
        cut = each.start + min(len(each), room)
        room -= cut - each.start
        left += [OffsetRange(each.topic, each.partition, each.start, cut)] if cut > each.start else []
        right += [OffsetRange(each.topic, each.partition, cut, each.end)] if cut < each.end else []
    return left, right


def _within(sources: Mapping[str, DataFrame], ranges: list[OffsetRange]) -> _Views:
    from pyspark.sql import functions as F

    at = F.col(KAFKA)
    here = [
        (at["topic"] == r.topic) & (at["partition"] == r.partition) & (at["offset"] >= r.start) & (at["offset"] < r.end)
        for r in ranges
    ]
    return {name: rows.where(reduce(lambda a, b: a | b, here)) for name, rows in sources.items()}


def _raised(rows: DataFrame) -> str | None:
    """What the engine says about a value when it makes these rows; None when it makes them."""
    try:
        rows.write.format("noop").mode("overwrite").save()
    except Exception as error:
        said = _about_a_value(error)
        if said is None:
            raise
        return said
    return None
