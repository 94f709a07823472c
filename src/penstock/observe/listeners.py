"""What looks on while a pipeline runs: the event log, the mirror of its offsets in Kafka, metrics.

An onlooker hears what the run tells its Watch. It can neither change the run nor stop it: what goes wrong with one is
said once, as a warning. What takes time, asking Kafka, is done by a thread beside the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from penstock.batch.failure import unexpected
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import Positions, SparkLog
from penstock.control.rate import Decision
from penstock.errors import PenstockError, first_line
from penstock.kafka import admin
from penstock.kafka.connection import Config, client_config
from penstock.kafka.mirror import Mirror
from penstock.observe.books import Share, shares
from penstock.observe.events import EventLog
from penstock.record import ends_of
from penstock.spec.model import Pipeline
from penstock.watch import TableNews, Watch

if TYPE_CHECKING:
    from penstock.observe.metrics import Meters

_COMMIT_LOOK_S = 0.05
_LAG_EVERY_S = 10.0


class Everyone(Watch):
    """Tells the caller's watch and every onlooker."""

    def __init__(self, first: Watch, others: list[Watch]) -> None:
        self._first, self._others, self._lock = first, list(others), threading.Lock()

    def joined_by(self, other: Watch) -> None:
        self._others.append(other)

    @override
    def starting(self, doing: str) -> None:
        self._first.starting(doing)

    def started(self, pipeline: Pipeline, home: Home) -> None:
        self._first.started(pipeline, home)
        self._tell(lambda each: each.started(pipeline, home))

    def batch_done(self, entry: Entry, seconds: float) -> None:
        self._first.batch_done(entry, seconds)
        self._tell(lambda each: each.batch_done(entry, seconds))

    def decided(self, decision: Decision) -> None:
        self._first.decided(decision)
        self._tell(lambda each: each.decided(decision))

    def retrying(self, error: PenstockError, wait_s: float) -> None:
        self._first.retrying(error, wait_s)
        self._tell(lambda each: each.retrying(error, wait_s))

    def table_read(self, news: TableNews) -> None:
        self._first.table_read(news)
        self._tell(lambda each: each.table_read(news))

    def warn(self, text: str) -> None:
        self._first.warn(text)
        self._tell(lambda each: each.warn(text))

    @override
    def waiting(self, text: str) -> None:
        self._first.waiting(text)

    def ended(self, error: PenstockError | None, *, caught_up: bool = False) -> None:
        self._first.ended(error, caught_up=caught_up)
        self._tell(lambda each: each.ended(error, caught_up=caught_up))

    def _tell(self, say: Callable[[Watch], None]) -> None:
        for each in tuple(self._others):
            try:
                say(each)
            except Exception as error:  # a full disk must not end a pipeline that does not need it
                with self._lock:  # the run and the thread beside it may both have met the same failure
                    if each not in self._others:
                        continue
                    self._others.remove(each)
                self._first.warn(f"{type(each).__name__} is off until the next start: {first_line(error)}")


@dataclass
class Recorder(Watch):
    """Makes events of what a run tells: for the event log, and for `run --json`."""

    say: Callable[..., None]  # takes the kind, and facts by name
    more: Callable[[Entry], dict[str, Any]] = lambda _: {}  # facts of a batch that only this onlooker has
    _caps: list[tuple[int, int | None]] = field(default_factory=list, init=False)  # from which batch on, and the cap

    def started(self, pipeline: Pipeline, home: Home) -> None:
        planned = SparkLog(home.spark).planned()  # by an earlier run, whose cap is not known
        self._caps = [(0, None), (0 if planned is None else planned + 1, pipeline.rate.max_offsets)]
        self.say("started", pipeline=pipeline.name, checkpoint=str(home.path))

    def batch_done(self, entry: Entry, seconds: float) -> None:
        cap = next((cap for since, cap in reversed(self._caps) if since <= entry.batch), None)
        self.say("batch", **batch_facts(entry, seconds), cap=cap, **self.more(entry))

    def decided(self, decision: Decision) -> None:
        if decision.changed:  # of those before only the last is still needed: one batch may be planned with it
            self._caps = [*self._caps[-1:], (decision.since, decision.cap)]
        self.say("rate", **asdict(decision))

    def retrying(self, error: PenstockError, wait_s: float) -> None:
        self.say("retrying", code=error.code, what=error.what, cause=error.cause, wait_s=wait_s)

    def table_read(self, news: TableNews) -> None:
        error = news.error and {"code": news.error.code, "what": news.error.what, "cause": news.error.cause}
        taken = datetime.fromtimestamp(news.taken, UTC).isoformat(timespec="milliseconds")
        self.say("reference", name=news.name, rows=news.rows, taken=taken, error=error)

    def warn(self, text: str) -> None:
        self.say("warning", text=text)

    def ended(self, error: PenstockError | None, *, caught_up: bool = False) -> None:
        if error is None:
            self.say("ended", caught_up=caught_up)
        else:
            self.say("failed", code=error.code, what=error.what, cause=error.cause, next=error.next_command)


def batch_facts(entry: Entry, seconds: float) -> dict[str, Any]:
    """What an event says of a batch. Not its offsets: the ledger has those."""
    return {
        "batch": entry.batch,
        "seconds": round(seconds, 3),
        "offsets": sum(map(len, entry.ranges)),
        "read": entry.read,
        **by_sink(shares(entry)),
        "dead_letters": entry.dead,
        "dropped": entry.dropped,
        "lost": sum(map(len, entry.lost)),
        "doubtful": entry.in_doubt,
    }


def by_sink(counts: Mapping[str, Share]) -> dict[str, dict[str, int]]:
    """What events say of sinks."""
    return {
        what: {name: getattr(share, what) for name, share in counts.items()}
        for what in ("written", "superseded", "left_out")
    }


@dataclass
class Measuring(Watch):
    """Keeps the metrics up to date."""

    meters: Meters

    @override
    def started(self, pipeline: Pipeline, home: Home) -> None:
        self.meters.cap_is(pipeline.rate.max_offsets)

    def batch_done(self, entry: Entry, seconds: float) -> None:
        self.meters.batch_done(entry, seconds, time.time())

    def decided(self, decision: Decision) -> None:
        self.meters.cap_is(decision.cap)

    @override
    def retrying(self, error: PenstockError, wait_s: float) -> None:
        self.meters.retried(error.code)

    def table_read(self, news: TableNews) -> None:
        self.meters.table_read(news.name, news.rows, news.taken, failed=news.error is not None)

    @override
    def warn(self, text: str) -> None:
        self.meters.warned()


@dataclass
class Following(Watch):
    """A thread that asks Kafka: shows committed positions in the group, and measures the lag for the metrics."""

    config: Config
    log: SparkLog
    mirror: Mirror | None
    meters: Meters | None
    warned: Callable[[str], None]
    _done: tuple[int, Positions] | None = field(default=None, init=False)  # the last batch, and where it ended
    _news: threading.Event = field(default_factory=threading.Event, init=False)
    _over: bool = field(default=False, init=False)
    _failing: set[str] = field(default_factory=set, init=False)  # what went wrong, and was said

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="penstock-following", daemon=True)
        self._thread.start()

    @override
    def batch_done(self, entry: Entry, seconds: float) -> None:
        self._done = entry.batch, ends_of(entry.ranges)
        self._news.set()

    def close(self) -> None:
        self._over = True
        self._news.set()
        self._thread.join(timeout=10)
        if self.mirror and not self._thread.is_alive():  # a client must not be closed while it is used
            self.mirror.close()

    def _run(self) -> None:
        measured, shown = 0.0, -1
        while True:
            self._news.wait(_LAG_EVERY_S)
            self._news.clear()
            over, done = self._over, self._done
            if done and self.mirror and done[0] > shown and self._committed(done[0]):
                shown = done[0] if self._tried(self.mirror.show, done[1]) else shown
            if done and self.meters and not over and time.monotonic() - measured > _LAG_EVERY_S:
                measured = time.monotonic()
                self._tried(self._measure_lag, done[1])
            if over:
                return

    def _committed(self, batch: int) -> bool:
        """Wait until Spark has committed the batch, for as long as the run goes on and no newer one has ended."""
        while True:
            committed = self.log.committed()
            if committed is not None and committed >= batch:
                return True
            if self._over or (self._done and self._done[0] != batch):
                return False
            time.sleep(_COMMIT_LOOK_S)

    def _measure_lag(self, positions: Positions) -> None:
        assert self.meters is not None
        counts = {topic: 1 + max(p for t, p in positions if t == topic) for topic, _ in positions}
        marks = admin.watermarks(self.config, counts)
        self.meters.lag_is({where: max(0, marks[where][1] - at) for where, at in positions.items() if where in marks})

    def _tried(self, act: Callable[[Positions], None], positions: Positions) -> bool:
        what = act.__name__
        try:
            act(positions)
        except Exception as error:
            if what not in self._failing:
                said = f"{error.what} ({error.cause})" if isinstance(error, PenstockError) else first_line(error)
                self.warned(f"{said}; tried again with the next batch")
            self._failing.add(what)
            return False
        self._failing.discard(what)
        return True


@contextmanager
def looked_on(pipeline: Pipeline, home: Home, watch: Watch, caught_up: Callable[[], bool]) -> Iterator[Watch]:
    """A watch that tells `watch` and everything the spec's `observe` asks for, also how the run ended. `caught_up`:
    asked at the end whether the run was to read what there was, and has."""
    asked = pipeline.observe
    others: list[Watch] = [Recorder(EventLog(home.events).append)] if asked.events else []
    meters, server, following = None, None, None
    if asked.metrics:
        from penstock.observe.metrics import Meters

        meters = Meters(pipeline.name)
        server = meters.serve(asked.metrics.host, asked.metrics.port)
        others.append(Measuring(meters))
    everyone = Everyone(watch, others)
    if asked.mirror or meters:
        config = client_config(pipeline)
        mirror = Mirror(config, pipeline.name) if asked.mirror else None
        following = Following(config, SparkLog(home.spark), mirror, meters, everyone.warn)
        everyone.joined_by(following)
    try:
        yield everyone
    except PenstockError as error:
        everyone.ended(error)
        raise
    except Exception as error:
        known = unexpected(error, Disks.of(pipeline, home))
        if known is None:
            raise
        everyone.ended(known)
        raise known from error
    else:
        everyone.ended(None, caught_up=caught_up())
    finally:
        if following:
            following.close()
        if server:
            server.shutdown()
            server.server_close()
