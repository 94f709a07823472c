"""What `verify` finds and what a start refuses: tables, ledgers and checkpoints that do not belong together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.payments import Payments, good, until

from penstock.errors import (
    CheckpointMissing,
    TableDiffers,
    TableOfAnotherQuery,
    TopicMissing,
)
from penstock.kafka import admin, connection

pytestmark = pytest.mark.usefixtures("spark")


def test_a_table_without_positions_is_proven_by_count(payments: Payments) -> None:
    payments.spec["transform"][0]["sql"] = "select payment_id from payments"
    payments.spec["sinks"]["lake"]["delta"] = {"path": "lake"}
    payments.produce(1200, poison=0.01)
    payments.run()
    report = payments.verify()
    assert report.complete, report.findings
    assert report.proof == {"lake": "by count"}


def test_a_topic_that_was_deleted_is_named_and_the_rest_is_proven(payments: Payments) -> None:
    other = f"{payments.topic}-old"
    payments.create(other)
    read = payments.spec["source"]["topics"][payments.topic]
    payments.spec["source"] = {"pattern": {"match": f"{payments.topic}(-old)?", **read}}
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}
    payments.send(*(good(n) for n in range(10)))
    payments.send(good(10), b"broken", topic=other)
    payments.run()
    client = connection.admin(payments.config)  # kept: with the last name of it goes what it was asked
    client.delete_topics([other])[other].result(10)
    until(lambda: other not in admin.topics(payments.config))
    report = payments.verify()
    assert report.complete, report.findings
    assert [text for text in report.unproven if f"topic '{other}' is gone" in text]
    assert [r.topic for r in report.former] == [other]
    lost = next(row for row in payments.rows() if row["_kafka"]["topic"] == payments.topic)
    DeltaTable(str(payments.directory / "lake")).delete(f"payment_id = '{lost['payment_id']}'")
    assert [f.offsets for f in payments.verify().findings if f.kind == "lost"] == [[lost["_kafka"]["offset"]]]
    client.delete_topics([payments.topic])[payments.topic].result(10)
    until(lambda: payments.topic not in admin.topics(payments.config))
    with pytest.raises(TopicMissing):  # none is there: this may be another cluster
        payments.verify()


@pytest.mark.parametrize("steps", ["none", "that drop records"])
def test_verify_names_the_batch_partition_and_offset_of_a_lost_row(payments: Payments, steps: str) -> None:
    if steps == "none":
        payments.spec["transform"] = []
        payments.spec["sinks"]["lake"] = {"from": "payments", "delta": {"path": "lake"}}
    payments.send(*(good(n, status="VOID" if n % 3 == 0 else "SETTLED", amount=n % 4) for n in range(50)))
    payments.run()
    assert payments.verify().complete
    lost = payments.rows()[17]
    DeltaTable(str(payments.directory / "lake")).delete(f"payment_id = '{lost['payment_id']}'")
    report = payments.verify()
    assert not report.complete
    [finding] = [f for f in report.findings if f.kind == "lost"]
    assert (finding.batch, finding.topic) == (0, payments.topic)
    assert (finding.partition, finding.offsets) == (lost["_kafka"]["partition"], [lost["_kafka"]["offset"]])

    # And a row that is there twice, and one that was invented.
    table = DeltaTable(str(payments.directory / "lake"))
    row = table.to_pyarrow_table().slice(3, 1)
    write_deltalake(table, row, mode="append")
    twice = next(f for f in payments.verify().findings if f.kind == "duplicate")
    assert twice.offsets == [row.to_pylist()[0]["_kafka"]["offset"]]
    strange = row.to_pylist()
    strange[0]["_kafka"]["offset"] = 4711
    write_deltalake(table, pa.Table.from_pylist(strange, row.schema), mode="append")
    invented = next(f for f in payments.verify().findings if f.kind == "invented")
    assert invented.offsets == [4711]


def test_a_deleted_checkpoint_stops_the_pipeline_even_when_the_ledger_went_with_it(payments: Payments) -> None:
    import shutil

    payments.send(good(1))
    payments.run()
    shutil.rmtree(payments.home / "spark")
    with pytest.raises(CheckpointMissing):
        payments.run()
    shutil.rmtree(payments.home)
    with pytest.raises(TableOfAnotherQuery) as stopped:
        payments.run()
    assert "--accept table-of-another-query" in str(stopped.value.next_command)
    payments.run(accept=["table-of-another-query"])
    assert len(payments.rows()) == 2  # accepted: the record was read again
    assert "duplicate" in {f.kind for f in payments.verify().findings}  # and `verify` does not hide it


def test_a_table_that_lost_batches_or_an_older_checkpoint_stops_the_pipeline(payments: Payments) -> None:
    import shutil

    payments.send(good(1))
    payments.run()
    shutil.copytree(payments.home, payments.directory / "older")
    payments.send(good(2))
    payments.run()
    lake, kept = payments.directory / "lake", payments.directory / "kept"
    lake.rename(kept)
    with pytest.raises(TableDiffers) as lost:
        payments.run()
    assert "--accept table-differs" in str(lost.value.next_command)
    kept.rename(lake)
    shutil.rmtree(payments.home)
    shutil.copytree(payments.directory / "older", payments.home)
    payments.send(good(3))
    with pytest.raises(TableDiffers) as ahead:
        payments.run()
    assert "ahead" in ahead.value.what
    assert len(payments.rows()) == 2


def test_a_step_that_stops_reading_early_still_buries_every_bad_record(payments: Payments) -> None:
    payments.spec["transform"] = [{"view": "some", "sql": "select * from payments limit 3"}]
    payments.spec["sinks"]["lake"] = {"from": "some", "delta": {"path": "lake"}}
    sent = payments.produce(900, poison=0.1)
    payments.run()
    assert len(payments.dead()) == len(sent.poison())
    assert len(payments.rows()) == 3
    assert payments.verify().complete


def test_a_pipeline_that_is_running_can_be_verified(payments: Payments) -> None:
    payments.spec["rate"]["max_offsets"] = 200
    payments.produce(400, poison=0.05)
    payments.run()
    lines = (payments.home / "ledger" / "000000000.jsonl").read_bytes()
    # As it looks between the sink's commit and the ledger entry of the last batch.
    (payments.home / "ledger" / "000000000.jsonl").write_bytes(b"\n".join(lines.split(b"\n")[:-2]) + b"\n")
    last = max((payments.home / "spark" / "commits").glob("[0-9]*"), key=lambda f: int(f.name))
    last.unlink()
    report = payments.verify()
    assert report.complete, report.findings
    assert report.in_flight
