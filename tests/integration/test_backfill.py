"""A range of offsets through the same spec, once, beside the stream."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.payments import Heard, Payments, good

from penstock import failpoint
from penstock.deadletters.browse import Wanted
from penstock.errors import BadArgument, KafkaUnreachable, StartNotThere
from penstock.kafka import admin, connection
from penstock.lifecycle import backfill, stream
from penstock.lifecycle.replay import run as replay
from penstock.verification.verify import verify

pytestmark = pytest.mark.usefixtures("spark")


def test_a_backfill_sends_a_range_through_the_same_spec_once(payments: Payments) -> None:
    payments.spec["source"]["start"] = "latest"
    payments.run()
    for number in range(10):
        payments.put(number, 0)
    payments.spec["rate"]["max_offsets"] = 3
    wanted = backfill.Range(f"{payments.topic}:0=2", f"{payments.topic}:0=8")
    heard = Heard()
    home = backfill.run(payments.pipeline, wanted, watch=heard)
    assert payments.ids() == [f"p-{n}" for n in range(2, 8)]
    assert len(heard.entries) >= 2
    backfill.run(payments.pipeline, wanted)  # again: nothing
    assert payments.ids() == [f"p-{n}" for n in range(2, 8)]
    assert verify(payments.pipeline, home.path.name).complete
    payments.spec["rate"]["max_offsets"] = 1000
    payments.run()  # the stream knows nothing of it
    assert Counter(payments.ids()) == Counter([f"p-{n}" for n in range(10)] + [f"p-{n}" for n in range(2, 8)])
    for name in (None, home.path.name):
        report = verify(payments.pipeline, name)
        assert (report.findings, report.proof, report.sinks) == ([], {"lake": "by offset"}, {"lake": 16})
        assert report.written == {"lake": {"the stream": 10, f"backfill {home.path.name}": 6}}
    DeltaTable(str(payments.directory / "lake")).delete("payment_id = 'p-5'")  # of stream and backfill
    for name in (None, home.path.name):
        lost = [found for found in verify(payments.pipeline, name).findings if found.kind == "lost"]
        assert [(found.partition, found.offsets) for found in lost] == [(0, [5])]


def test_a_backfill_waits_for_kafka_and_goes_on_without_what_expired_where_the_spec_says_so(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.spec["source"]["on_data_loss"] = "continue"
    payments.spec["rate"]["max_offsets"] = 3
    for number in range(9):
        payments.put(number, 0)
    wanted = backfill.Range(f"{payments.topic}:0=0", f"{payments.topic}:0=9")
    stop, heard = stream.StopRequest(), Heard()
    heard.batch_done = lambda *_: stop.ask()  # type: ignore[method-assign]
    backfill.run(payments.pipeline, wanted, watch=heard, stop=stop)
    assert payments.ids() == ["p-0", "p-1", "p-2"]
    payments.expire(5)
    away = [KafkaUnreachable("away")]

    def fail_once(place: str, *_: Any) -> None:
        if place == "after-sinks" and away:
            raise away.pop()

    monkeypatch.setattr(failpoint, "reach", fail_once)
    heard = Heard()
    home = backfill.run(payments.pipeline, wanted, watch=heard)
    assert not away
    assert payments.ids() == ["p-0", "p-1", "p-2", "p-5", "p-6", "p-7", "p-8"]
    assert any("2 offsets expired" in text for text in heard.warnings)
    report = verify(payments.pipeline, home.path.name)
    assert report.complete, report.findings
    assert [(r.start, r.end) for r in report.lost] == [(3, 5)]


def test_a_backfill_to_the_end_ends_before_a_transaction_that_is_open(payments: Payments) -> None:
    for number in range(3):
        payments.put(number, 0)
    own = {"transactional.id": payments.topic, "transaction.timeout.ms": "600000"}
    producer = connection.producer({**payments.config, **own})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(payments.topic, good(3), partition=0)
    assert producer.flush(10) == 0
    payments.put(4, 0)  # committed, but behind the open one: nobody can read it yet
    home = backfill.run(payments.pipeline, backfill.Range("earliest", "latest"))
    assert payments.ids() == ["p-0", "p-1", "p-2"]
    assert verify(payments.pipeline, home.path.name).complete
    for end in (f"{payments.topic}:0=5", "2100-01-01T00:00:00Z"):
        with pytest.raises(BadArgument, match="cannot be read up to offset 5 yet"):
            backfill.run(payments.pipeline, backfill.Range("earliest", end))
    producer.commit_transaction(20)
    backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:0=3", "latest"))
    assert payments.ids() == [f"p-{n}" for n in range(5)]


def test_a_backfill_reads_the_partitions_that_are_named_and_refuses_those_that_are_not_there(
    payments: Payments,
) -> None:
    for number in range(6):
        payments.send(good(number), key=str(number).encode())
    ends = {p: high for (_, p), (_, high) in admin.watermarks(payments.config, {payments.topic: 3}).items()}
    there = max(ends, key=lambda p: ends[p])
    backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:{there}=0", "latest"))
    assert {partition for _, partition, _ in payments.places()} == {there}
    assert sum(payments.places().values()) == ends[there]
    with pytest.raises(StartNotThere, match="which is not read"):
        backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:9=0", "latest"), "no-such-partition")
    wrong = backfill.Range(f"{payments.topic}:{there}=1", f"{payments.topic}:{there}=0")
    for backwards in (wrong, backfill.Range("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z")):
        with pytest.raises(BadArgument, match="ends before it begins"):
            backfill.run(payments.pipeline, backwards, "backwards")


def test_stream_backfill_and_replay_into_the_same_sinks_are_proven_by_offset_together(payments: Payments) -> None:
    out = f"{payments.topic}-out"
    payments.create(out)
    payments.spec["sinks"] = {
        **payments.spec["sinks"],
        "files": {"from": "settled", "parquet": {"path": "files"}},
        "out": {"from": "payments", "kafka": {"topic": out, "origin": True}},
    }
    payments.spec["rate"]["max_offsets"] = 15
    amounts = {n: -20 if n % 10 == 4 else -1 if n % 5 == 2 else 1 for n in range(40)}
    sent = (good(n, amount=amounts[n], status="VOID" if n % 10 == 9 else "SETTLED") for n in amounts)
    payments.send(*sent, key=b"same partition")
    payments.run()
    # Most of what died in the stream comes home by the backfill, and p-1, which the stream has written, dies in it.
    rule = {"name": "odd", "rule": "amount > -10 and payment_id <> 'p-1'"}
    payments.spec["contract"] = {"payments": [rule]}
    home = backfill.run(payments.pipeline, backfill.Range("earliest", "latest"))
    payments.spec["contract"] = {}
    assert replay.run(payments.pipeline, Wanted())[0] is not None

    copies = {f"p-{n}": 1 if n % 10 == 4 else 2 for n in amounts}
    settled = {name: number for name, number in copies.items() if not name.endswith("9")}
    assert Counter(payments.ids()) == settled
    for judged in (None, home.path.name):
        report = verify(payments.pipeline, judged)
        assert (report.findings, report.unproven) == ([], [])
        assert set(report.proof.values()) == {"by offset"}
        assert report.sinks == {
            "lake": sum(settled.values()),
            "files": sum(settled.values()),
            "out": sum(copies.values()),
        }
        name = f"backfill {home.path.name}"
        assert report.written["lake"] == {"the stream": 24, name: 31, "replay 1": 13}
        assert report.written["out"] == {"the stream": 28, name: 35, "replay 1": 13}
        assert (report.dead, report.replayed) == ((12, 12) if judged is None else (5, 5))

    # One of two copies gone, the only one gone, one too many, and one of a record that nobody has read.
    at = {row["payment_id"]: row["_kafka"] for row in payments.rows()}
    lake = DeltaTable(str(payments.directory / "lake"))
    rows = lake.to_pyarrow_table(filters=[("payment_id", "in", ["p-12", "p-13"])])
    lake.delete("payment_id in ('p-12', 'p-14')")
    [one, _] = (row for row in rows.to_pylist() if row["payment_id"] == "p-12")
    [more, _] = (row for row in rows.to_pylist() if row["payment_id"] == "p-13")
    strange = {**more, "_kafka": {**more["_kafka"], "offset": 4711}}
    write_deltalake(lake, pa.Table.from_pylist([one, more, strange], rows.schema), mode="append")
    invented, twice, differs, gone, fewer = verify(payments.pipeline).findings
    assert (invented.kind, invented.offsets) == ("invented", [4711])
    assert (twice.kind, twice.offsets) == ("duplicate", [at["p-13"]["offset"]])
    assert (differs.kind, "holds 66 records, the ledgers say 68" in differs.text) == ("sink-differs", True)
    assert (gone.kind, gone.offsets) == ("lost", [at["p-14"]["offset"]])  # which only the replay brought
    assert (fewer.kind, fewer.offsets) == ("lost", [at["p-12"]["offset"]])  # of the backfill or the replay
