"""Lag from outside: the checkpoint, its mirror in Kafka, and what Kafka's own tool says of it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from tests.commands import penstock
from tests.observe_documents import LAG
from tests.payments import Heard, Payments

from penstock.errors import BadArgument, PenstockError
from penstock.kafka import transaction
from penstock.local import ports
from penstock.observe.measure_lag import lag_of
from penstock.spark import jars, java

pytestmark = pytest.mark.usefixtures("spark")
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def mirrored(payments: Payments) -> dict[tuple[str, int], int]:
    name = f"penstock.{payments.pipeline.name}"
    places = [(payments.topic, partition) for partition in range(4)]
    return {place: mark.offset for place, mark in transaction.marks(payments.config, name, places).items()}


def by_kafkas_tool(payments: Payments) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Position, end and lag per partition, as `kafka-consumer-groups --describe` prints them."""
    files = ":".join(str(file) for file in jars.ensure(["broker"]))
    words = ["--bootstrap-server", payments.bootstrap, "--describe", "--group", f"penstock.{payments.pipeline.name}"]
    said = subprocess.run(
        [str(java.find().home / "bin" / "java"), "-cp", files, TOOL, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    lines = re.findall(rf"^\S+\s+({re.escape(payments.topic)})\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", said, re.MULTILINE)
    assert lines, said
    return {(topic, int(p)): (int(at), int(end), int(lag)) for topic, p, at, end, lag in lines}


def test_lag_agrees_with_kafkas_own_tool(payments: Payments) -> None:
    before = time.time()
    payments.produce(2_000)
    payments.run()
    payments.produce(700, seed=8)
    told: dict[str, Any] = json.loads(payments.cli("lag", str(payments.file), "--json").stdout)
    took = time.time() - before
    Draft202012Validator(LAG).validate(told)
    assert told["lag"] == 700
    assert {(p["topic"], p["partition"]): (p["position"], p["end"], p["lag"]) for p in told["partitions"]} == (
        by_kafkas_tool(payments)
    )
    assert all(p["group"] == p["position"] for p in told["partitions"])
    late = [p for p in told["partitions"] if p["lag"]]
    assert late
    assert all(not p["estimated"] and 0 <= p["behind_s"] <= time.time() - before for p in late)
    assert told["catch_up_s"] > 0
    assert (told["running"], told["catching_up"]) == (False, False)
    came = round(told["arriving"] * 60)  # within the last minute: all of it, unless the run took that long
    assert came == 2_700 if took < 60 else 0 < came <= 2_700
    page = penstock("lag", payments.file).stdout
    assert page.startswith(f"{payments.pipeline.name}: not running, 700 offsets behind, the oldest record by ")


def test_before_the_first_run_everything_waits_and_no_group_is_there(payments: Payments) -> None:
    payments.produce(100)
    found = lag_of(payments.pipeline)
    assert found.total == 100
    assert found.capacity is None
    assert all(each.group is None for each in found.partitions)
    assert found.gone == 0
    for each in found.partitions:
        payments.expire(each.end or 0, each.partition)
    found = lag_of(payments.pipeline)
    assert (found.total, found.gone) == (0, 100)
    assert "100 older offsets already expired, so no run will read them" in penstock("lag", payments.file).stdout


def test_mirror_shows_committed_batches_only_and_can_be_turned_off(payments: Payments) -> None:
    payments.spec["observe"] = {"mirror": False, "events": False}
    payments.produce(500)
    payments.run()
    assert mirrored(payments) == {}
    assert not (payments.home / "events").exists()
    payments.spec["observe"] = {}
    payments.produce(500, seed=8)
    payments.run()
    assert sum(mirrored(payments).values()) == 1_000


def test_events_tell_the_story_across_restarts(payments: Payments) -> None:
    payments.produce(300, poison=0.01)
    payments.run()
    payments.spec["source"]["start"] = "latest"  # has no effect any more, and says so
    payments.produce(100, seed=8)
    payments.run()
    told = json.loads(payments.cli("events", str(payments.file), "--json").stdout)["events"]
    assert [event["event"] for event in told] == ["started", "batch", "ended", "warning", "started", "batch", "ended"]
    first = told[1]
    assert (first["batch"], first["offsets"], first["read"], first["dead_letters"]) == (0, 300, 300, 3)
    only = penstock("events", payments.file, "--kind", "batch", "--last", "1").stdout
    assert re.fullmatch(r"1 older ones; .*\n\S+ \S+  batch      batch 1, seconds .*\n", only)
    refused = penstock("events", payments.file, "--since", "yesterday", expect=2)
    assert "error[bad-argument]: 'yesterday' is no time" in refused.stderr


class Scraping(Heard):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.address, self.page = f"http://127.0.0.1:{port}/metrics", ""

    def ended(self, error: PenstockError | None, *, caught_up: bool = False) -> None:
        self.page = httpx.get(self.address).text


def test_metrics_are_served_while_it_runs(payments: Payments) -> None:
    port = ports.pick(set())
    payments.spec["observe"] = {"metrics": {"port": port}}
    payments.produce(400, poison=0.01)
    scraping = Scraping(port)
    payments.run(watch=scraping)
    name = payments.pipeline.name
    assert f'penstock_batches_total{{pipeline="{name}"}} 1.0' in scraping.page
    assert f'penstock_records_read_total{{pipeline="{name}",view="payments"}} 400.0' in scraping.page
    assert f'penstock_dead_letters_total{{pipeline="{name}",view="payments"}} 4.0' in scraping.page
    assert f'penstock_batch_seconds_count{{pipeline="{name}"}} 1.0' in scraping.page
    assert f'penstock_rate_max_offsets{{pipeline="{name}"}} 1000.0' in scraping.page
    assert re.search(
        rf'penstock_position{{partition="0",pipeline="{name}",topic="{payments.topic}"}} \d+', scraping.page
    )
    with pytest.raises(httpx.ConnectError):
        httpx.get(scraping.address)


def test_port_of_the_metrics_that_is_taken_is_said_before_anything_is_read(payments: Payments) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        payments.spec["observe"] = {"metrics": {"port": taken.getsockname()[1]}}
        with pytest.raises(BadArgument, match="metrics cannot be served"):
            payments.run()
    assert not (payments.home / "spark").exists()
