"""`penstock dlq replay --apply` is killed with SIGKILL half-way, and run again: each letter comes home once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app, register
from penstock.deadletters import browse, replays
from tests.crash.driver import ROUNDS, Driver
from tests.payments import Payments, good


@pytest.mark.parametrize("store", ["kafka", "delta"] if ROUNDS > 1 else ["kafka"])
@pytest.mark.usefixtures("spark")
def test_replay_killed_after_its_sinks_and_before_its_commit_repeats_nothing(payments: Payments, store: str) -> None:
    if store == "delta":
        payments.spec["dead_letters"] = {"delta": {"path": "dead"}}
    payments.send(*(good(n, amount=-n) for n in range(40)), *[b"{"] * 5)
    payments.run()
    payments.spec["contract"]["payments"] = [{"name": "positive", "rule": "amount > -30"}]
    driver = Driver(payments)
    driver.command = [driver.command[0], "dlq", "replay", str(payments.file), "--apply", "--json"]
    place = "after-sinks:0" if store == "kafka" else "after-dead-letters:0"
    driver.dies_at(place)
    assert Counter(each.state for each in browse.gather(payments.pipeline)) == {"replaying": 45}
    assert payments.verify().findings == []
    register()
    said = json.loads(CliRunner().invoke(app, driver.command[1:], catch_exceptions=False).stdout)
    assert (said["replay"], said["letters"], said["passed"], said["dead_again"]) == ("1", 45, 30, 15)
    assert said["written"] == {"lake": 30}
    assert sorted(row["payment_id"] for row in payments.rows()) == sorted(f"p-{n}" for n in range(30))
    assert set(payments.places().values()) == {1}
    deaths = Counter((each.position, each.query) for each in payments.dead())
    assert set(deaths.values()) == {1}
    assert [each.left for each in replays.found(payments.pipeline)] == [range(1, 1)]
    report = payments.verify()
    assert report.complete, report.findings
    assert report.unproven == []
