"""How `penstock run` shows itself: a live panel on a terminal, plain lines elsewhere, JSON lines with `--json`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.errors import PenstockError, counted
from penstock.observe.books import apart, shares
from penstock.observe.events import Event
from penstock.observe.listeners import Recorder, by_sink
from penstock.observe.progress import Progress
from penstock.watch import TableNews, Watch

if TYPE_CHECKING:
    from penstock.checkpoint.home import Home
    from penstock.checkpoint.ledger import Entry
    from penstock.checkpoint.log import Positions
    from penstock.control.rate import Decision
    from penstock.spec.model import Pipeline

_ENDS_EVERY_S = 2.0


def watch(as_json: bool) -> Display:
    if as_json:
        return JsonLines()
    return Panel() if sys.stderr.isatty() else Lines()


class Display(Watch):
    """Keeps the numbers; the kinds below only say them."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.running = False  # before that it starts
        self.began = time.monotonic()
        self._over = threading.Event()
        self._looking: threading.Thread | None = None
        self._range: int | None = None  # offsets, of a run that reads just those
        self._held: set[str] | None = None  # new topics that are not read; None: nobody has looked yet

    def bounded(self, begins: Positions, ends: Positions) -> None:
        self.progress.positions = dict(begins)
        self.progress.ends_are(ends)
        self._range = self.progress.lag

    def started(self, pipeline: Pipeline, home: Home) -> None:
        self.began, self.home, self.running = time.monotonic(), home, True
        if self._range is None:
            self._looking = threading.Thread(target=self._look_at_ends, args=(pipeline,), daemon=True)
            self._looking.start()

    def close(self) -> None:
        self._over.set()
        if self._looking is not None:
            self._looking.join(timeout=_ENDS_EVERY_S)  # its client would otherwise be torn down by the exit, in use

    @property
    def _left(self) -> str:
        """How far it is from the end: of what is in Kafka, or of its range."""
        p = self.progress
        rate, left = f"{_number(p.rate)}/s", output.span(p.seconds_left)
        if self._range is None:
            return f"lag {_number(p.lag)}, {rate}, {left} left"
        return f"{_number(p.lag)} of {counted(self._range, 'offset')} to go, {rate}, {left} left"

    def _look_at_ends(self, pipeline: Pipeline) -> None:
        """Ask Kafka for the ends now and then.

        A failure is the run's business; but Spark waits for minutes before it says that Kafka is away, and a person
        who looks on should know at once.
        """
        from penstock.checkpoint.ledger import Ledger
        from penstock.kafka import connection
        from penstock.source.start import marks_of
        from penstock.source.subscription import subscribe

        config, away = connection.client_config(pipeline), False
        last = Ledger(self.home.ledger).last()
        read = set(last.topics if last else ())
        while not self._over.wait(_ENDS_EVERY_S if self.progress.ends else 0):
            try:
                read |= {topic for topic, _ in list(self.progress.positions)}  # which a batch may add to meanwhile
                found = subscribe(config, pipeline.source, read)
                self._tell_of(found.held)
                read |= found.topics.keys()
                marks = marks_of(config, pipeline.source, found.topics)
                self.progress.ends_are({where: high for where, (_, high) in marks.items()})
                if away:
                    self.warn("Kafka answers again")
                away = False
            except PenstockError as error:
                if not away:
                    self.warn(f"Kafka does not answer, waiting: {error.cause}")
                away = True
                self._over.wait(_ENDS_EVERY_S)

    def _tell_of(self, held: Collection[str]) -> None:
        """Topics that are held back; of those that were there when the run began its start has told."""
        from penstock.lifecycle.stream import held_back

        new = sorted(set(held) - self._held) if self._held is not None else []
        if new:
            self.warn(held_back(new))
        self._held = set(held)

    def summary(self) -> dict[str, Any]:
        p = self.progress
        return {
            "batches": p.batches,
            "read": p.read,
            **by_sink(p.sinks),
            "dead_letters": p.dead,
            "dropped": p.dropped,
            "seconds": round(time.monotonic() - self.began, 1),
        }


class Lines(Display):
    _too_low = False  # the target, and it was said

    def starting(self, doing: str) -> None:
        output.note(doing)

    def started(self, pipeline: Pipeline, home: Home) -> None:
        super().started(pipeline, home)
        output.note(f"pipeline {pipeline.name}: running, checkpoint {self.home.path}")

    def batch_done(self, entry: Entry, seconds: float) -> None:
        if not self.progress.batch_done(entry, seconds):
            output.note(f"batch {entry.batch}: run again, it was complete already")
            return
        written = ", ".join(f"{name} {sink.written:,}" for name, sink in entry.sinks.items())
        dropped = f", dropped {entry.dropped:,}" if entry.dropped else ""
        rest = "".join(f", {part}" for part in apart(shares(entry)))
        output.note(
            f"batch {entry.batch}: read {entry.read:,}, {written}, dead letters {entry.dead:,}{dropped}{rest}"
            f" in {seconds:.1f} s; {self._left}"
        )

    def decided(self, decision: Decision) -> None:
        said = decision.said
        if decision.changed:
            output.note(f"rate: {decision.before:,} -> {counted(decision.cap, 'offset')} a batch: {said}")
        elif decision.wanted != decision.cap and decision.reason != "not-worth-a-restart":
            wanted = f"{counted(decision.wanted, 'offset')} a batch wanted instead of {decision.cap:,}"
            output.note(f"rate: {wanted}: {said}; the query is started again")
        elif decision.reason == "advice":
            output.note(f"rate: {said}")
        if decision.reason == "target-below-overhead" and not self._too_low:
            self._too_low = True  # said once
            output.note(f"rate: the target is below what a batch of any size takes: raise `rate.target_batch` ({said})")

    def retrying(self, error: PenstockError, wait_s: float) -> None:
        output.note(f"warning[{error.code}]: {error.what} ({error.cause}); trying again in {wait_s:g} s")

    def warn(self, text: str) -> None:
        output.note(f"warning: {text}")

    def waiting(self, text: str) -> None:
        output.note(text)


class JsonLines(Display):
    """The events of the event log as they happen. How the run ended is said by the command."""

    def __init__(self) -> None:
        super().__init__()
        self._events = Recorder(say, self._more)

    def started(self, pipeline: Pipeline, home: Home) -> None:
        super().started(pipeline, home)
        self._events.started(pipeline, home)

    def batch_done(self, entry: Entry, seconds: float) -> None:
        self.progress.batch_done(entry, seconds)
        self._events.batch_done(entry, seconds)

    def decided(self, decision: Decision) -> None:
        self._events.decided(decision)

    def retrying(self, error: PenstockError, wait_s: float) -> None:
        self._events.retrying(error, wait_s)

    def table_read(self, news: TableNews) -> None:
        self._events.table_read(news)

    def warn(self, text: str) -> None:
        self._events.warn(text)

    def _more(self, entry: Entry) -> dict[str, Any]:
        return {"lag" if self._range is None else "left": self.progress.lag, "entry": asdict(entry)}


def totals(p: Progress, seconds: float) -> str:
    """A run in one line."""
    written = ", ".join(f"{share.written:,} to {name}" for name, share in p.sinks.items()) or "none written"
    records, batches = counted(p.read, "record"), counted(p.batches, "batch", "batches")
    parts = (written, counted(p.dead, "dead letter"), f"{p.dropped:,} dropped", *apart(p.sinks))
    return f"{records} in {batches} ({seconds} s): {', '.join(parts)}"


def say(event: str, **facts: Any) -> None:
    output.say_line(Event(datetime.now(UTC), event, facts).as_dict())


class Panel(Lines):
    """A panel that is redrawn in place; warnings scroll above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._name = ""
        self._last = ""
        self._live = Live(console=Console(stderr=True), get_renderable=self._draw, refresh_per_second=4)

    def started(self, pipeline: Pipeline, home: Home) -> None:
        Display.started(self, pipeline, home)
        self._name = pipeline.name
        self._live.start()

    def batch_done(self, entry: Entry, seconds: float) -> None:
        self.progress.batch_done(entry, seconds)
        self._last = f"batch {entry.batch}: {counted(entry.read, 'record')} in {seconds:.1f} s"

    def close(self) -> None:
        super().close()
        self._live.stop()

    def _draw(self) -> Any:
        from rich.panel import Panel as Box
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        p = self.progress
        rows = Table.grid(padding=(0, 2))
        total = self._range if self._range is not None or p.lag is None else p.lag + p.read
        done = total - p.lag if total and p.lag is not None else 0
        rows.add_row("progress", ProgressBar(total=total or 1, completed=done, width=40))
        rows.add_row(
            "read", f"{counted(p.read, 'record')} in {counted(p.batches, 'batch', 'batches')}, {_number(p.rate)}/s"
        )
        for name, share in p.sinks.items():
            rows.add_row(f"→ {name}", f"{share.written:,}")
        rows.add_row("dead letters", f"{p.dead:,}", style="red" if p.dead else "")
        rows.add_row("dropped", f"{p.dropped:,}")
        for part in apart(p.sinks):
            number, _, what = part.partition(" ")
            rows.add_row(what, number)
        behind = "? offsets" if p.lag is None else counted(p.lag, "offset")
        left = f"{behind}, {output.span(p.seconds_left)} left"
        rows.add_row("lag" if self._range is None else "to go", left)
        rows.add_row("last", self._last or "starting")
        return Box(rows, title=f"penstock run {self._name}", title_align="left", expand=False)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
