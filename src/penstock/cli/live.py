"""How `penstock run` shows itself: a live panel on a terminal, plain lines elsewhere, JSON lines with `--json`."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.errors import PenstockError
from penstock.observe.progress import Progress
from penstock.runtime.watch import Watch

if TYPE_CHECKING:
    from penstock.checkpoint.home import Home
    from penstock.checkpoint.ledger import Entry
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
        self.began = time.monotonic()
        self._over = threading.Event()

    def started(self, pipeline: Pipeline, home: Home) -> None:
        self.began, self.home = time.monotonic(), home
        threading.Thread(target=self._look_at_ends, args=(pipeline,), daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _look_at_ends(self, pipeline: Pipeline) -> None:
        """Ask Kafka for the ends now and then.

        A failure is the run's business; but Spark waits for minutes before it says that Kafka is away, and a person
        who looks on should know at once.
        """
        from penstock.kafka import connection
        from penstock.source.start import marks_of
        from penstock.source.subscription import subscribe

        config, away = connection.client_config(pipeline), False
        while not self._over.wait(_ENDS_EVERY_S if self.progress.ends else 0):
            try:
                topics = subscribe(config, pipeline.source).topics
                marks = marks_of(config, pipeline.source, topics)
                self.progress.ends_are({where: high for where, (_, high) in marks.items()})
                if away:
                    self.warn("Kafka answers again")
                away = False
            except PenstockError as error:
                if not away:
                    self.warn(f"Kafka does not answer, waiting: {error.cause}")
                away = True
                self._over.wait(_ENDS_EVERY_S)

    def summary(self) -> dict[str, Any]:
        p = self.progress
        return {
            "batches": p.batches,
            "read": p.read,
            "written": p.written,
            "dead_letters": p.dead,
            "dropped": p.dropped,
            "seconds": round(time.monotonic() - self.began, 1),
        }


class Lines(Display):
    def started(self, pipeline: Pipeline, home: Home) -> None:
        super().started(pipeline, home)
        output.note(f"pipeline {pipeline.name}: running, checkpoint {self.home.path}")

    def batch_done(self, entry: Entry, seconds: float) -> None:
        self.progress.batch_done(entry, seconds)
        p = self.progress
        written = ", ".join(f"{name} {sink.written:,}" for name, sink in entry.sinks.items())
        output.note(
            f"batch {entry.batch}: read {entry.read:,}, {written}, dead letters {entry.dead:,} "
            f"in {seconds:.1f} s; lag {_number(p.lag)}, {_number(p.rate)}/s, {output.span(p.seconds_left)} left"
        )

    def decided(self, decision: Decision) -> None:
        if decision.changed:
            output.note(f"rate: {decision.before:,} -> {decision.cap:,} offsets a batch: {decision.said}")
        elif decision.reason == "advice":
            output.note(f"rate: {decision.said}")

    def retrying(self, error: PenstockError, wait_s: float) -> None:
        output.note(f"warning[{error.code}]: {error.what} ({error.cause}); trying again in {wait_s:g} s")

    def warn(self, text: str) -> None:
        output.note(f"warning: {text}")


class JsonLines(Display):
    def started(self, pipeline: Pipeline, home: Home) -> None:
        super().started(pipeline, home)
        self._say("started", pipeline=pipeline.name, checkpoint=str(self.home.path))

    def batch_done(self, entry: Entry, seconds: float) -> None:
        self.progress.batch_done(entry, seconds)
        self._say("batch", entry=asdict(entry), seconds=round(seconds, 3), lag=self.progress.lag)

    def decided(self, decision: Decision) -> None:
        self._say("rate", **asdict(decision))

    def retrying(self, error: PenstockError, wait_s: float) -> None:
        self._say("retrying", error=error.as_dict(), wait_s=wait_s)

    def warn(self, text: str) -> None:
        self._say("warning", text=text)

    @staticmethod
    def _say(event: str, **facts: Any) -> None:
        output.say_line({"event": event, **facts})


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
        self._last = f"batch {entry.batch}: {entry.read:,} records in {seconds:.1f} s"

    def close(self) -> None:
        super().close()
        self._live.stop()

    def _draw(self) -> Any:
        from rich.panel import Panel as Box
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        p = self.progress
        rows = Table.grid(padding=(0, 2))
        total = p.lag + p.read if p.lag is not None else None
        rows.add_row("progress", ProgressBar(total=total or 1, completed=p.read if total else 0, width=40))
        rows.add_row("read", f"{p.read:,} records in {p.batches} batches, {_number(p.rate)}/s")
        for name, count in p.written.items():
            rows.add_row(f"→ {name}", f"{count:,}")
        rows.add_row("dead letters", f"{p.dead:,}", style="red" if p.dead else "")
        rows.add_row("dropped", f"{p.dropped:,}")
        rows.add_row("lag", f"{_number(p.lag)} offsets, {output.span(p.seconds_left)} left")
        rows.add_row("last", self._last or "starting")
        return Box(rows, title=f"penstock run {self._name}", title_align="left", expand=False)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
