"""The jobs of one group in turn, round by round; and the check without which a figure is void.

Every system is one process with one JVM for all rounds. The first round warms it up and does not count: what is
measured is the rate of a pipeline that runs, not of one that starts. Every other round goes through the jobs backwards,
so that none always has the cache, or the heat, of the same neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.arrived import Arrived, arrived
from bench.cases import DECODE, PENSTOCK, Job
from bench.order import Answer, Order, stream_read, stream_seconds
from bench.process import Worker
from bench.report import say
from bench.servers import Servers
from bench.shapes import Produced


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    records: int = 600_000  # of the largest topics; with these all cases take about twenty minutes on two idle cores
    rounds: int = 3
    batches: int = 4  # of a stream over a topic: its cap is the topic's size divided by it
    warm_up: bool = True


QUICK = Plan(records=2_000, rounds=1, batches=2, warm_up=False)  # whether everything runs, not how fast


@dataclass
class Measured:
    records: int
    seconds: list[float] = field(default_factory=list)  # of the rounds that count
    peak_mb: float = 0.0  # of the process, which other jobs of its group share


def alternate(jobs: Sequence[Job], servers: Servers, directory: Path, plan: Plan) -> dict[Job, Measured]:
    found = {job: Measured(servers.topic(job.shape).records) for job in jobs}
    workers: dict[str, Worker] = {}
    try:
        for number in range(0 if plan.warm_up else 1, plan.rounds + 1):
            for job in jobs if number % 2 == 0 else reversed(jobs):
                at = directory / job.system.replace(" ", "-")
                if job.system not in workers:
                    workers[job.system] = Worker(at)
                seconds, peak_mb = _once(job, number, workers[job.system], servers, at, plan.batches)
                found[job].peak_mb = max(found[job].peak_mb, peak_mb)
                if number:
                    found[job].seconds.append(seconds)
                rate = found[job].records / seconds
                say(f"  {'warm-up' if number == 0 else f'round {number}'}: {_name(job)} {rate:,.0f} records/s")
    finally:
        for worker in workers.values():
            worker.close()
    return found


def _once(job: Job, number: int, worker: Worker, servers: Servers, at: Path, batches: int) -> tuple[float, float]:
    produced = servers.topic(job.shape)
    out = f"{job.work}-{job.shape}-{job.system.replace(' ', '-').replace('_', '-').lower()}-{number}"
    order = Order(
        system=job.system,
        work=job.work,
        shape=job.shape,
        topic=produced.topic,
        out=out,
        directory=str(at / out),
        bootstrap=servers.bootstrap,
        registry=servers.registry,
        postgres=servers.database() if job.work.startswith("postgres") else "",
        max_offsets=-(-produced.records // batches),
    )
    servers.make_room(order)
    said, peak_mb = worker.do(order)
    if job.work == DECODE:
        _check_decoded(order, produced, said)
        assert said.seconds is not None
        seconds = said.seconds
    else:
        seconds = stream_seconds(order.checkpoint)
        _check_written(order, produced, stream_read(order.checkpoint), arrived(order))
    servers.clear(order)
    return seconds, peak_mb


def _check_decoded(order: Order, produced: Produced, said: Answer) -> None:
    if (said.rows, said.bad) != (produced.records, produced.bad):
        raise SystemExit(
            f"void: {order.out} decoded {said.rows} records, {said.bad} of them bad; "
            f"the topic holds {produced.records}, {produced.bad} of them bad"
        )


def _check_written(order: Order, produced: Produced, read: int, held: Arrived) -> None:
    """Of bad records a plain script may write some: those of which no column that it looks at was spoilt."""
    most = produced.rows + (0 if order.system == PENSTOCK else produced.bad)
    if read != produced.records or not produced.rows <= held.rows <= most:
        raise SystemExit(
            f"void: {order.out} read {read} of {produced.records} records and wrote {held.rows} rows of {produced.rows}"
        )
    if held.times != produced.times:
        raise SystemExit(f"void: {order.out} holds other rows than the newest of each key")


def _name(job: Job) -> str:
    return f"{job.shape} {job.system}" if job.work == DECODE else f"{job.work} {job.system}"
