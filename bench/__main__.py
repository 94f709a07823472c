"""`python -m bench [--records N] [--case NAME]...`: run the cases, print the table, write build/bench.json."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from fractions import Fraction
from pathlib import Path

from bench.measure import Measured, measure
from bench.records import produce, variants
from penstock.kafka import admin, connection, load
from penstock.kafka.payments import Recipe
from penstock.kafka.schema_registry import RegistrySettings, SchemaRegistry
from penstock.local.broker import Cluster
from penstock.local.registry import LocalRegistry
from penstock.runtime import jars
from penstock.spec.model import TopicSettings

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
MAX_OFFSETS = 500_000
CASES = {"json-to-delta": Fraction(0), "json-to-delta-poison": Fraction(1, 1000)}
# Decode alone, and what each is held against: Spark's own function, or another case of ours.
DECODE = {
    "json-decode": "from_json",
    "json-decode-bad-10": "json-decode",
    "avro-decode": "from_avro",
    "avro-decode-bad-10": "avro-decode",
    "avro-decode-20-ids": "avro-decode",
    "protobuf-decode": "avro-decode",
    "protobuf-decode-bad-10": "protobuf-decode",
}
DECODED = 1_000_000

SPEC = """\
penstock: 1
name: payments
kafka: {{bootstrap: "{bootstrap}"}}
source:
  topics:
    {topic}: {{view: payments, value: {{format: json, schema: schemas/payment.yaml}}}}
contract:
  payments:
    - {{name: positive, rule: "amount > 0", otherwise: dead-letter}}
transform:
  - {{view: settled, sql: "select *, to_date(event_time) as day from payments where status <> 'VOID'"}}
sinks:
  lake: {{from: settled, delta: {{path: lake, partition_by: [day]}}}}
rate: {{max_offsets: {max_offsets}}}
checkpoint: checkpoint
"""


def main() -> None:
    options = argparse.ArgumentParser(prog="bench")
    options.add_argument("--records", type=int, default=2_000_000)
    options.add_argument("--case", action="append", choices=[*CASES, *DECODE])
    options.add_argument("--rounds", type=int, default=1, help="repeat; the best time of each system counts")
    asked = options.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    cluster = Cluster(BUILD / "kafka", brokers=1)
    results = []
    try:
        bootstrap = cluster.up()
        wanted = asked.case or list(CASES)
        for case in wanted:
            if case in CASES:
                results += _case(bootstrap, case, asked.records, asked.rounds)
        if any(case in DECODE for case in wanted):
            results += _decode_cases(
                bootstrap, [case for case in DECODE if case in wanted], min(asked.records, DECODED)
            )
    finally:
        cluster.down()
    (ROOT / "build" / "bench.json").write_text(json.dumps(results, indent=2) + "\n")
    _print(results)


def _case(bootstrap: str, case: str, records: int, rounds: int) -> list[dict[str, object]]:
    topic = f"bench-{case}"
    config = connection.connect_to(bootstrap)
    admin.create_missing(config, {topic: TopicSettings(partitions=4), f"{topic}.DLT": TopicSettings()})
    report = load.produce(config, topic, Recipe(count=records, seed=1, poison=CASES[case]))
    _say(f"{case}: {records:,} records produced in {report.seconds:.1f} s")
    runs: dict[str, list[Measured]] = {"plain PySpark": [], "penstock": []}
    for number in range(rounds):
        for system, measured in runs.items():
            directory = BUILD / f"{case}-{system.split()[0]}-{number}"
            directory.mkdir()
            measured.append(_run(system, bootstrap, topic, directory))
            _say(f"  {system}: {records / measured[-1].seconds:,.0f} records/s, {measured[-1].peak_mb:,.0f} MB")
    baseline = min(m.seconds for m in runs["plain PySpark"])
    return [
        {
            "case": case,
            "system": system,
            "records_per_s": round(records / min(m.seconds for m in measured)),
            "peak_mb": round(max(m.peak_mb for m in measured)),
            "ratio": round(baseline / min(m.seconds for m in measured), 2),
        }
        for system, measured in runs.items()
    ]


def _decode_cases(bootstrap: str, cases: list[str], records: int) -> list[dict[str, object]]:
    """Rates in the order of DECODE: a case that others are held against comes before them."""
    rates: dict[str, float] = {}
    results: list[dict[str, object]] = []
    registry = LocalRegistry(BUILD / "registry")
    try:
        for case in cases:
            ids, url = [], ""
            if "ids" in case:
                url = registry.up()
                client = SchemaRegistry(RegistrySettings(url))
                client.set_mode("NONE")
                ids = [client.register("bench-value", "AVRO", text) for text in variants(20)]
            topic = f"bench-{case}"
            admin.create_missing(connection.connect_to(bootstrap), {topic: TopicSettings(partitions=4)})
            produce(bootstrap, topic, case, records, ids)
            against = DECODE[case]
            for system in [against, "penstock"] if against.startswith("from_") else ["penstock"]:
                ours = system == "penstock"
                found = _decode(["penstock" if ours else "plain", case, bootstrap, topic, url])
                name = case if ours else system
                rates[name] = records / found.seconds
                ratio = rates[name] / rates[against] if against in rates else None
                results.append(
                    {
                        "case": case,
                        "system": system,
                        "records_per_s": round(rates[name]),
                        "peak_mb": round(found.peak_mb),
                        "ratio": None if ratio is None else round(ratio, 2),
                    }
                )
                _say(f"  {case} {system}: {rates[name]:,.0f} records/s, {found.peak_mb:,.0f} MB")
    finally:
        registry.down()
    return results


def _decode(arguments: list[str]) -> Measured:
    log = BUILD / f"decode-{arguments[0]}-{arguments[1]}.log"
    command = [sys.executable, "-m", "bench.decode", *arguments]
    return measure(command, None, log, {**os.environ, "PYTHONPATH": str(ROOT)})


def _run(system: str, bootstrap: str, topic: str, directory: Path) -> Measured:
    if system == "penstock":
        shutil.copytree(ROOT / "examples" / "payments" / "schemas", directory / "schemas")
        spec = directory / "payments.yaml"
        spec.write_text(SPEC.format(bootstrap=bootstrap, topic=topic, max_offsets=MAX_OFFSETS))
        command = [str(Path(sys.executable).with_name("penstock")), "run", str(spec), "--until-caught-up", "--json"]
    else:
        files = ",".join(str(f) for f in jars.ensure(["core", "delta"]))
        command = [sys.executable, "-m", "bench.plain_delta", bootstrap, topic, files, str(directory), str(MAX_OFFSETS)]
    return measure(
        command, directory / "checkpoint" / "spark", directory / "log", {**os.environ, "PYTHONPATH": str(ROOT)}
    )


def _print(results: list[dict[str, object]]) -> None:
    _say(f"{'case':<24} {'system':<14} {'records/s':>10} {'peak MB':>8} {'ratio':>6}")
    for r in results:
        ratio = "-" if r["ratio"] is None else f"{r['ratio']}x"
        _say(f"{r['case']:<24} {r['system']:<14} {r['records_per_s']:>10,} {r['peak_mb']:>8,} {ratio:>6}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
