"""With SQL between, by partition: rows and dead letters of an input partition share one transaction."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.committed import committed
from tests.payments import Heard, Payments, good

from penstock.deadletters.dead_letter import DeadLetter
from penstock.errors import RuleStopped, TableDiffers
from penstock.kafka import admin, connection, transaction
from penstock.plan import build

pytestmark = pytest.mark.usefixtures("spark")

OUT = {
    "type": "record",
    "name": "Out",
    "fields": [
        {"name": "payment_id", "type": "string"},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "CHF"]}},
    ],
}
WORDS = {"along": "together with", "apart": "apart from"}
RECORDS = [
    *(good(n) for n in range(12)),
    b"{", b"", None, good(20, amount="x"),  # decode
    good(21, amount=-1), good(22, amount=0),  # contract
    good(23, account="zero"), good(24, account="zero"),  # a step fails on these
    good(25, currency="USD"), good(26, currency="USD"),  # the sink cannot encode these
    good(27, status="VOID"),  # left out by the step
]  # fmt: skip


def forwarding(payments: Payments, name: str, **changes: Any) -> None:
    payments.spec["name"] = name
    (payments.directory / "out.avsc").write_text(json.dumps(OUT))
    payments.create(f"{payments.topic}-{name}")
    value = {"format": "avro", "wire": "raw", "schema": "out.avsc", "columns": ["payment_id", "currency"]}
    kafka = {"topic": f"{payments.topic}-{name}", "origin": True, "value": value}
    payments.spec["transform"] = [
        {
            "view": "kept",
            "sql": "select *, 1 / (case account when 'zero' then 0 else 1 end) as one from payments "
            "where status <> 'VOID'",
        }
    ]
    out = {"from": "kept", "where": "one > 0", "kafka": kafka}
    payments.spec["sinks"] = {"out": {**out, "kafka": {**kafka, "guarantee": "exactly-once-by-partition"}}}
    payments.spec.update(changes)


def buried(payments: Payments, name: str) -> list[DeadLetter]:
    found = [replace(d, query="") for d in payments.dead() if d.pipeline == name]
    return sorted((replace(d, pipeline="") for d in found), key=lambda d: d.position)


def spread(payments: Payments, records: list[bytes | None], partition: int | None = None) -> None:
    producer = connection.producer(payments.config)
    for number, value in enumerate(records):
        to = number % payments.partitions if partition is None else partition
        producer.produce(payments.topic, value, b"k", partition=to, headers=[("h", b"1"), ("h", None)])
    assert producer.flush(30) == 0


def groups_of(payments: Payments, name: str) -> list[str]:
    (query,) = {d.query for d in payments.dead() if d.pipeline == name}
    return sorted(group for group in admin.groups(payments.config) if group.startswith(f"penstock.{name}.{query}."))


def test_letters_of_every_stage_are_those_that_are_sent_apart(payments: Payments) -> None:
    spread(payments, RECORDS)
    found = {}
    budget = {"dead_letters": {**payments.spec["dead_letters"], "budget": {"share": 0.99}}}
    for name, changes in (("along", {}), ("apart", budget)):
        forwarding(payments, name, **changes)
        heard = Heard()
        payments.run(watch=heard)
        found[name] = buried(payments, name)
        apart = any(group.endswith("dead-letters") for group in groups_of(payments, name))
        assert apart is (name == "apart")
        assert sum(entry.sinks["out"].written for entry in heard.entries) == 12
        assert payments.verify().findings == []
    assert found["along"] == found["apart"]
    assert Counter(d.stage for d in found["along"]) == {"decode": 4, "contract": 2, "transform": 2, "sink": 2}
    assert all(d.headers == [("h", b"1"), ("h", None)] and d.key == b"k" for d in found["along"])


def test_mark_of_a_partition_counts_its_rows_and_its_letters(payments: Payments) -> None:
    """One transaction holds the rows, the letters and the mark, so that the mark tells of both."""
    spread(payments, RECORDS)
    forwarding(payments, "along")
    payments.run()
    (group,) = groups_of(payments, "along")
    marks = transaction.marks(payments.config, group, [(payments.topic, p) for p in range(payments.partitions)])
    rows = Counter(each.origin[1] for each in committed(payments.bootstrap, f"{payments.topic}-along"))
    dead = Counter(letter.partition for letter in buried(payments, "along"))
    assert {p: (rows[p], dead[p]) for p in range(payments.partitions)} == {
        p: (json.loads(mark.said)["rows"], json.loads(mark.said)["letters"]) for (_, p), mark in marks.items()
    }


def test_partition_of_which_nothing_passes_has_its_letters(payments: Payments) -> None:
    spread(payments, [b"{", b"}"], partition=0)
    spread(payments, [good(1, account="zero")], partition=1)  # the one record that a step fails on
    spread(payments, [good(2, status="VOID")], partition=2)
    forwarding(payments, "along")
    payments.run()
    assert [(d.partition, d.stage) for d in buried(payments, "along")] == [
        (0, "decode"),
        (0, "decode"),
        (1, "transform"),
    ]
    assert committed(payments.bootstrap, f"{payments.topic}-along") == []
    assert payments.verify().findings == []


def crash_before_the_ledger_entry(payments: Payments) -> None:
    def crash(*_: Any) -> None:
        raise RuntimeError("before the ledger entry")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Exception, match="before the ledger entry"):
        patch.setattr(build.Ledger, "append", crash)
        payments.run()


@pytest.mark.parametrize("first", ["along", "apart"])
def test_way_that_is_changed_in_the_middle_of_a_batch_is_refused_before_anything_is_sent(
    payments: Payments, first: str
) -> None:
    spread(payments, [good(1), b"{", good(2)])
    together = payments.spec["dead_letters"]
    ways = {"along": together, "apart": {**together, "budget": {"share": 0.99}}}
    forwarding(payments, "changed", dead_letters=ways[first])
    crash_before_the_ledger_entry(payments)
    dead = buried(payments, "changed")
    other = "apart" if first == "along" else "along"
    payments.spec["dead_letters"] = ways[other]
    with pytest.raises(TableDiffers, match=f"has begun batch 0 with dead letters {WORDS[first]} its records"):
        payments.run()
    payments.spec["dead_letters"] = ways[first]
    payments.run()
    assert buried(payments, "changed") == dead and len(dead) == 1
    assert len(committed(payments.bootstrap, f"{payments.topic}-changed")) == 2
    assert payments.verify().findings == []


def test_batch_that_is_run_again_has_the_same_letters_once(payments: Payments) -> None:
    spread(payments, RECORDS)
    forwarding(payments, "along")
    crash_before_the_ledger_entry(payments)
    first = buried(payments, "along")
    assert len(first) == 10  # they are there, with the rows
    payments.run()
    assert buried(payments, "along") == first
    assert payments.verify().findings == []


def test_batch_that_a_rule_stops_has_rows_and_letters_of_a_partition_or_neither(payments: Payments) -> None:
    spread(payments, [good(n) for n in range(20)] + [good(20, amount=-1)], partition=0)
    spread(payments, [good(1), b"{"], partition=1)  # may be committed when the other one stops
    forwarding(payments, "along")
    payments.spec["contract"]["payments"][0]["otherwise"] = "stop"
    with pytest.raises(RuleStopped):
        payments.run()
    rows = {each.origin[:2] for each in committed(payments.bootstrap, f"{payments.topic}-along")}
    dead = {letter.position[:2] for letter in buried(payments, "along")}
    assert rows == dead <= {(payments.topic, 1)}
    payments.spec["contract"]["payments"][0]["otherwise"] = "dead-letter"
    payments.run()
    assert len(committed(payments.bootstrap, f"{payments.topic}-along")) == 21
    assert [d.position for d in buried(payments, "along")] == [(payments.topic, 0, 20), (payments.topic, 1, 1)]
    assert payments.verify().findings == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"contract": {"payments": [{"name": "long", "rule": "length(account) > 1"}]}}, "rule 'long' needs the engine"),
        ({"dead_letters": {"delta": {"path": "dead"}}}, None),
    ],
)
def test_what_does_not_qualify_says_why(
    payments: Payments, spark: Any, changes: dict[str, Any], why: str | None
) -> None:
    forwarding(payments, "along", **changes)
    assembly = build.assembly(payments.pipeline)
    assembly.settle(spark)
    assert assembly.along == why
    assert assembly.shared_by is None
    assert assembly.dead_letters_guarantee.endswith(f"; apart from rows, because {why}") is bool(why)


def test_plan_says_that_they_share_a_transaction(payments: Payments, spark: Any) -> None:
    forwarding(payments, "along")
    assembly = build.assembly(payments.pipeline)
    assembly.settle(spark)
    assert "in the transaction of their input partition" in assembly.dead_letters_guarantee


def test_files_between_workers_are_gone_after_the_next_batch_also_those_of_failed_tasks(
    payments: Payments, spark: Any
) -> None:
    spread(payments, RECORDS)
    forwarding(payments, "along")
    payments.run()
    spread(payments, [good(1), b"{"])
    payments.run()
    (query,) = {d.query for d in payments.dead() if d.pipeline == "along"}
    blocks = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    tops = [Path(str(each)) / "penstock-letters" / query for each in blocks.localDirs()]
    assert any(top.is_dir() for top in tops)
    assert [file for top in tops for file in top.rglob("*") if file.is_file()] == []
