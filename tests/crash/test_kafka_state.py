"""Exactly once into Kafka when what a pipeline remembers is not what it was: partitions are added, checkpoints and
groups are lost or set back. It stops and says so, or leaves out what is there; it never skips or repeats in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointMissing, TableDiffers, TableOfAnotherQuery
from penstock.kafka import admin
from penstock.lifecycle.preview import plan
from tests.crash.driver import ROUNDS
from tests.crash.forward import WAYS, Forward, judge
from tests.payments import Payments

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(params=WAYS if ROUNDS > 1 else ["one pass"])
def forward(payments: Payments, request: pytest.FixtureRequest) -> Forward:
    return Forward(payments, request.param)


def test_partitions_that_are_added_between_batches_are_read_from_their_start(forward: Forward) -> None:
    payments = forward.payments
    sent = [payments.produce(500, poison=0.02)]
    payments.run()
    client = AdminClient({"bootstrap.servers": payments.bootstrap})
    client.create_partitions([NewPartitions(payments.topic, 6)])[payments.topic].result(20)
    sent.append(payments.produce(500, poison=0.02, seed=8))
    assert {5} <= {partition for part in sent for partition in part.kept()["partition"].to_pylist()}
    payments.run()
    assert judge(forward, sent) == []
    assert payments.verify().complete


def test_deleted_checkpoint_stops_before_anything_is_written_again(forward: Forward) -> None:
    payments = forward.payments
    sent = [payments.produce(500)]
    payments.run()
    shutil.rmtree(payments.home / "spark")
    with pytest.raises(CheckpointMissing):
        payments.run()
    shutil.rmtree(payments.home)
    with pytest.raises(TableOfAnotherQuery):
        payments.run()
    assert judge(forward, sent) == []


def test_older_checkpoint_that_is_restored_leaves_out_what_is_there_or_stops(forward: Forward, tmp_path: Path) -> None:
    payments = forward.payments
    sent = [payments.produce(500, poison=0.02)]
    payments.run()
    shutil.copytree(payments.home, tmp_path / "backup")
    sent.append(payments.produce(1500, poison=0.02, seed=8))
    payments.run()
    shutil.rmtree(payments.home)
    shutil.copytree(tmp_path / "backup", payments.home)
    sent.append(payments.produce(500, poison=0.02, seed=9))
    if forward.way == "one pass":  # records and dead letters that are there are left out
        payments.run()
        assert judge(forward, sent) == []
        return
    with pytest.raises(TableDiffers, match="ahead of the checkpoint"):  # numbers of batches mean other records now
        payments.run()
    assert judge(forward, sent[:-1]) == []


@pytest.mark.parametrize("way", ["exactly-once-by-batch", "one pass by batch"] if ROUNDS > 1 else ["one pass by batch"])
def test_older_checkpoint_that_plans_another_batch_of_a_number_that_was_written_stops_again_and_again(
    payments: Payments, way: str, tmp_path: Path
) -> None:
    """The sink is one batch ahead. What stops the first start has by then planned that batch over other offsets: at the
    second one it looks like a batch that was written before a crash."""
    forward = Forward(payments, way)
    sent = [payments.produce(500)]
    payments.run()
    shutil.copytree(payments.home, tmp_path / "backup")
    sent.append(payments.produce(400, seed=8))
    payments.run()
    shutil.rmtree(payments.home)
    shutil.copytree(tmp_path / "backup", payments.home)
    payments.produce(500, seed=9)
    assert [problem.code for problem in plan(payments.pipeline).problems] == [TableDiffers.code]
    for _ in range(3):
        with pytest.raises(TableDiffers):
            payments.run()
    assert judge(forward, sent) == []


def test_deleted_group_is_made_again_where_nothing_was_under_way_and_stops_where_a_batch_was(forward: Forward) -> None:
    payments = forward.payments
    sent = [payments.produce(500)]
    payments.run()
    _forget(payments)
    sent.append(payments.produce(500, seed=8))
    payments.run()
    assert judge(forward, sent) == []
    _forget(payments)
    spark = payments.home / "spark" / "commits"
    last = max((f for f in spark.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    last.unlink()  # as if Spark had died before its commit
    (spark / f".{last.name}.crc").unlink()
    ledger = payments.home / "ledger" / "000000000.jsonl"
    kept = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(kept[:-1]))  # and the driver before the ledger
    with pytest.raises(TableDiffers, match="has lost its ledger"):
        payments.run()
    assert judge(forward, sent) == []


def _forget(payments: Payments) -> None:
    query = SparkLog(payments.home / "spark").query_id()
    own = [group for group in admin.groups(payments.config) if f".{query}.out" in group]
    assert own
    client = AdminClient({"bootstrap.servers": payments.bootstrap})
    for done in client.delete_consumer_groups(own).values():
        done.result(20)
