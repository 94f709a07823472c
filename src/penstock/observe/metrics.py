"""Metrics of a running pipeline for Prometheus. Names are stable: docs/observe.md lists them.

Every metric has the label `pipeline`. Counters count since the process began, as Prometheus expects of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from penstock.checkpoint.ledger import Entry
from penstock.errors import BadArgument
from penstock.observe.books import shares

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)


class Meters:
    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline

        def counter(name: str, told: str, *labels: str) -> Counter:
            return Counter(f"penstock_{name}", told, ("pipeline", *labels), registry=self.registry)

        def gauge(name: str, told: str, *labels: str) -> Gauge:
            return Gauge(f"penstock_{name}", told, ("pipeline", *labels), registry=self.registry)

        self._batches = counter("batches", "Batches that ended.")
        self._read = counter("records_read", "Records read, by source view.", "view")
        self._written = counter("records_written", "Rows written, by sink.", "sink")
        self._superseded = counter("rows_superseded", "Rows in whose place a newer one of their key stands.", "sink")
        self._left_out = counter("records_left_out", "Records that steps or a `where` left out, by sink.", "sink")
        self._dead = counter("dead_letters", "Dead letters, by source view.", "view")
        self._died = counter(
            "rule_dead_letters", "Dead letters of broken rules, by source view and rule.", "view", "rule"
        )
        self._dropped = counter("records_dropped", "Records dropped, by source view and rule.", "view", "rule")
        self._lost = counter("offsets_lost", "Offsets that expired unread.")
        self._doubtful = counter("records_doubtful", "Records that are lost at most, of those that expired while read.")
        self._retries = counter("retries", "Times the query was started again, by error code.", "code")
        self._warnings = counter("warnings", "Warnings.")
        self._seconds = Histogram(
            "penstock_batch_seconds", "Time a batch took.", ("pipeline",), buckets=_SECONDS, registry=self.registry
        )
        self._late = counter("records_late", "Records that came too late for a stateful step, by its view.", "view")
        self._duplicates = counter("records_duplicate", "Records dropped as duplicates, by view.", "view")
        self._cut = counter("rows_dropped_by_watermark", "Rows the engine dropped as late, by view.", "view")
        self._state_rows = gauge("state_rows", "Rows in the state of a step, by its view.", "view")
        self._state_bytes = gauge("state_bytes", "Memory that the state of a step takes, by its view.", "view")
        self._watermark = gauge("watermark_delay_seconds", "Time between the watermark and now.")
        self._cap = gauge("rate_max_offsets", "Most offsets of the next batch that is planned: the cap in force.")
        self._position = gauge("position", "Next offset to be read.", "topic", "partition")
        self._lag = gauge("lag_offsets", "Offsets between the position and the end.", "topic", "partition")
        self._table_rows = gauge("reference_rows", "Rows of a reference table.", "reference")
        self._table_taken = gauge("reference_timestamp_seconds", "When a reference table was read.", "reference")
        self._table_failures = counter("reference_failures", "Times a reference could not be read.", "reference")
        self._finished = gauge("last_batch_timestamp_seconds", "When the last batch ended.")

    def batch_done(self, entry: Entry, seconds: float, finished: float) -> None:
        name = self._pipeline
        self._batches.labels(name).inc()
        self._seconds.labels(name).observe(seconds)
        self._finished.labels(name).set(finished)
        for view, count in entry.views.items():
            self._read.labels(name, view).inc(count.read)
            self._dead.labels(name, view).inc(count.dead + count.rejected)
            for rule, died in count.died.items():
                self._died.labels(name, view, rule).inc(died)
            for rule, dropped in count.dropped.items():
                self._dropped.labels(name, view, rule).inc(dropped)
        for sink, share in shares(entry).items():
            self._written.labels(name, sink).inc(share.written)
            self._superseded.labels(name, sink).inc(share.superseded)
            self._left_out.labels(name, sink).inc(share.left_out)
        self._lost.labels(name).inc(sum(len(r) for r in entry.lost))
        self._doubtful.labels(name).inc(entry.in_doubt)
        for view, step in entry.stateful.items():
            self._late.labels(name, view).inc(step.late)
            self._duplicates.labels(name, view).inc(step.duplicates or 0)
            self._cut.labels(name, view).inc(step.cut or 0)
            if step.held is not None and step.bytes is not None:
                self._state_rows.labels(name, view).set(step.held)
                self._state_bytes.labels(name, view).set(step.bytes)
            if step.watermark:
                self._watermark.labels(name).set(finished - step.watermark / 1000)
        for r in entry.ranges:
            self._position.labels(name, r.topic, str(r.partition)).set(r.end)

    def table_read(self, table: str, rows: int, taken: float, *, failed: bool) -> None:
        """`rows` and `taken`: of what is used from now on, also when it could not be read again."""
        self._table_rows.labels(self._pipeline, table).set(rows)
        self._table_taken.labels(self._pipeline, table).set(taken)
        self._table_failures.labels(self._pipeline, table).inc(int(failed))

    def lag_is(self, lag: Mapping[tuple[str, int], int]) -> None:
        for (topic, partition), offsets in lag.items():
            self._lag.labels(self._pipeline, topic, str(partition)).set(offsets)

    def cap_is(self, offsets: int) -> None:
        self._cap.labels(self._pipeline).set(offsets)

    def retried(self, code: str) -> None:
        self._retries.labels(self._pipeline, code).inc()

    def warned(self) -> None:
        self._warnings.labels(self._pipeline).inc()

    def serve(self, host: str, port: int) -> WSGIServer:
        try:
            server, _ = start_http_server(port, host, registry=self.registry)
        except OSError as error:
            raise BadArgument(
                f"metrics cannot be served on {host}:{port}",
                cause=error.strerror or str(error),
                next_command="choose another `observe.metrics.port`",
            ) from None
        return server
