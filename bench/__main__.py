"""`python -m bench [--records N] [--rounds N] [--case NAME]... [--quick]`: run the cases, print tables, write JSON.

What is in `bench.json`: a list of rows with case, system, records_per_s, peak_mb and ratio, and besides these what the
ratio is against, how many records a round has and how many rounds the median is of. The rows of `real-time-latency`
have p50_ms and p99_ms, and its ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import latency, plot
from bench.alternate import QUICK, Plan, alternate
from bench.cases import CASES, Case, grouped, jobs
from bench.report import Row, rows, say, table
from bench.servers import Servers

BUILD = Path(__file__).parent.parent / "build"


def main() -> None:
    options = argparse.ArgumentParser(prog="bench", description="Measure Penstock against what users would write.")
    options.add_argument(
        "--records",
        type=int,
        help=f"records of the largest topics, the others in proportion (default {Plan.records:,})",
    )
    options.add_argument("--rounds", type=int, help=f"rounds that count, after one to warm up (default {Plan.rounds})")
    options.add_argument(
        "--case", action="append", choices=[*CASES, latency.CASE], metavar="NAME", help="only this; can repeat"
    )
    options.add_argument("--quick", action="store_true", help="few records, one round, not warm: does it all run?")
    options.add_argument("--list", action="store_true", help="name the cases and end")
    asked = options.parse_args()
    if asked.list:
        for case in CASES.values():
            say(case.name if case.available else f"{case.name} (waits for {case.needs})")
        say(latency.CASE)
        return
    plan = QUICK if asked.quick else Plan()
    plan = replace(plan, records=asked.records or plan.records, rounds=asked.rounds or plan.rounds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that servers and workers are ended
    # A quick run must not overwrite the figures of a real one.
    name = "bench-quick" if asked.quick else "bench"
    chosen = [each for each in asked.case or [] if each != latency.CASE]
    results = run(_chosen(chosen), BUILD / name, plan) if chosen or not asked.case else []
    if not asked.case or latency.CASE in asked.case:
        results += run_latency(BUILD / f"{name}-latency", asked.quick)
    (BUILD / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n")


def run(cases: Sequence[Case], directory: Path, plan: Plan) -> list[Row]:
    results: list[Row] = []
    tables: list[str] = []
    with Servers(directory, plan.records) as servers:
        for group, members in grouped(cases).items():
            say(f"{group}: {', '.join(case.name for case in members)}")
            found = alternate(jobs(members), servers, directory / group.replace(" ", "-"), plan)
            made = [row for case in members for row in rows(case, found)]
            results += made
            tables.append(table(group, made))
    say("\n" + "\n\n".join(tables))
    return results


def run_latency(directory: Path, quick: bool) -> list[Row]:
    """Beside the others: it measures how long a record takes, not how many there are in a second."""
    with Servers(directory, 0) as servers:
        found, series = latency.rows(servers.bootstrap, directory, latency.QUICK if quick else latency.Load())
    named = {"real-time": series[latency.REAL_TIME], "micro-batches": series[latency.BATCHES]}
    picture = plot.latencies("Kafka to Kafka, 1,000 records/s: share that has arrived after", named)
    to = BUILD if quick else BUILD.parent / "docs"
    (to / "real-time-latency.svg").write_text(picture)
    say("\n" + latency.table(found))
    return found


def _chosen(names: Sequence[str] | None) -> list[Case]:
    """Those asked for, or all that the spec has the sinks for."""
    if names:
        chosen = [CASES[name] for name in dict.fromkeys(names)]
        if missing := [f"{case.name} ({case.needs})" for case in chosen if not case.available]:
            raise SystemExit(f"the spec has no such sink yet: {', '.join(missing)}")
        return chosen
    for case in CASES.values():
        if not case.available:
            say(f"left out: {case.name}, because the spec has no {case.needs}")
    return [case for case in CASES.values() if case.available]


if __name__ == "__main__":
    main()
