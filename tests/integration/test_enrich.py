"""Enrichment (T3): tables that change while the pipeline runs, and between a crash and its replay."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import table
from tests.payments import Heard, Payments, good
from typer.testing import CliRunner

from penstock import failpoint
from penstock.cli.main import app, register
from penstock.deadletters.store import dead_letters
from penstock.errors import EngineFailed, ReferenceUnusable
from penstock.lifecycle import stream
from penstock.local.postgres import LocalPostgres
from penstock.spec.load import load
from penstock.transform.reference import tables
from penstock.verification.verify import verify

pytestmark = pytest.mark.usefixtures("spark")

EXAMPLE = Path(__file__).parents[2] / "examples" / "currency"
COLUMNS = {"fields": {"code": "string", "rate": "decimal(9,3)"}}


class Counted(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Any] = []

    def table_read(self, news: Any) -> None:
        self.tables.append(news)


def looked_up(payments: Payments, **more: Any) -> None:
    payments.spec["contract"] = {}
    payments.spec["references"] = {"rates": {"file": {"path": "rates.csv", "format": "csv", "schema": COLUMNS}}}
    payments.spec["transform"] = [
        {"view": "rated", "enrich": {"from": "payments", "reference": "rates", "on": {"currency": "code"}, **more}}
    ]
    payments.spec["sinks"] = {"lake": {"from": "rated", "delta": {"path": "lake"}}}


def rates(payments: Payments, **of: float | str) -> None:
    lines = ["rate,code", *(f"{rate},{code.rstrip('_')}" for code, rate in of.items())]
    (payments.directory / "rates.csv").write_text("\n".join(lines) + "\n")


def by_id(payments: Payments) -> dict[str, Any]:
    return {row["payment_id"]: row["rate"] for row in payments.rows()}


def planned(payments: Payments, expect: int = 0) -> dict[str, Any]:
    register()
    done = CliRunner().invoke(app, ["plan", str(payments.file), "--json"], catch_exceptions=False)
    assert done.exit_code == expect, done.output
    return dict(json.loads(done.stdout))


def test_example_normalises_currencies(payments: Payments, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = payments.directory / "currency"
    shutil.copytree(EXAMPLE, directory)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", payments.bootstrap)
    payments.create("card-payments")
    payments.create("card-payments.DLT")

    def card(number: int, amount: Any, currency: str | None, status: str = "SETTLED") -> bytes:
        return json.dumps(
            {"payment_id": f"p-{number}", "amount": amount, "currency": currency, "status": status}
        ).encode()

    payments.send(
        card(1, 110, "USD"),
        card(2, 5, "EUR"),
        card(2, 6, "EUR"),  # the same id again
        card(3, 7, "XAU"),  # no rate
        card(4, 8, "EUR", "VOID"),
        card(5, 0, "EUR"),
        card(6, 9, None),
        card(7, 1, "eur"),
        topic="card-payments",
    )
    pipeline, heard = load(directory / "spec.yaml"), Counted()
    stream.run(pipeline, until_caught_up=True, watch=heard)
    rows = DeltaTable(str(directory / "lake")).to_pyarrow_table().to_pylist()
    assert {row["payment_id"]: row["amount_eur"] for row in rows} == {"p-1": Decimal("100.00"), "p-2": Decimal("5.00")}
    dead = {json.loads(d.value or b"")["payment_id"]: d for d in dead_letters(pipeline).read()}
    assert dead.keys() == {"p-3", "p-5", "p-6", "p-7"}
    assert (dead["p-3"].stage, dead["p-3"].error_class) == ("transform", "missing-key")
    assert dead["p-3"].reason == "step 'rated': reference 'rates' has no row for currency = XAU"
    assert dead["p-7"].reason == "three-letters: not true: currency matches [A-Z]{3}; currency = eur"
    (entry,) = heard.entries
    count = entry.views["card_payments"]
    assert (count.read, count.passed, count.dead, count.rejected) == (8, 3, 3, 1)
    assert count.dropped == {"settled": 1, "once": 1}
    assert count.died == {"has-currency": 1, "three-letters": 1, "plausible": 1}
    assert (entry.sinks["lake"].written, entry.sinks["lake"].dropped, entry.sinks["lake"].rejected) == (2, 0, 1)
    assert verify(pipeline).findings == []


def test_last_good_table_goes_on_when_it_cannot_be_read_and_it_is_read_again_between_batches(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up(payments)
    payments.spec["references"]["rates"]["refresh"] = "1ms"
    payments.spec["rate"] = {"max_offsets": 3}
    monkeypatch.setattr(tables, "_AGAIN_S", 0.0)
    payments.send(good(0))
    with pytest.raises(ReferenceUnusable) as first:
        payments.run()
    assert first.value.next_command
    assert "PATH_NOT_FOUND" in str(first.value.cause)
    assert not (payments.home / "spark" / "offsets").exists()

    rates(payments, EUR=1, USD=1.1)
    payments.run()
    assert by_id(payments) == {"p-0": 1}

    class Changing(Counted):
        """After each batch the table is another one, or no table at all."""

        def batch_done(self, entry: Any, seconds: float) -> None:
            super().batch_done(entry, seconds)
            if len(self.entries) == 1:
                rates(payments, EUR=3)
            elif len(self.entries) == 2:
                rates(payments, EUR=4, EUR_=5)  # twice
            else:
                (payments.directory / "rates.csv").unlink(missing_ok=True)

    rates(payments, EUR=2)
    heard = Changing()
    payments.send(*(good(n, currency="EUR" if n % 4 else "CHF") for n in range(1, 13)), key=b"one partition")
    payments.run(watch=heard)
    found = by_id(payments)
    assert {found[f"p-{n}"] for n in (4, 8, 12)} == {None}
    assert {rate for rate in found.values() if rate is not None} == {1, 2, 3}
    assert len(heard.entries) == 4
    assert [sink.written for entry in heard.entries for sink in entry.sinks.values()] == [3, 3, 3, 3]
    assert [news.error is None for news in heard.tables] == [True, True, True, False, False]
    twice, gone = heard.warnings
    assert "2 rows have code = EUR: rows would be multiplied" in twice
    assert "PATH_NOT_FOUND" in gone
    assert len(list((payments.home / "references" / "rates").iterdir())) == 1
    payments.run()  # also a start goes on without it
    events = [json.loads(line) for file in (payments.home / "events").iterdir() for line in file.open() if line.strip()]
    assert [e["error"]["code"] for e in events if e["event"] == "reference" and e["error"]] == [
        "reference-unusable"
    ] * 3
    assert all(e["taken"] <= e["time"] for e in events if e["event"] == "reference")
    assert payments.verify().findings == []


def test_replay_after_a_crash_looks_up_in_the_table_that_its_batch_began_with(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up(payments, missing="dead-letter")
    rates(payments, EUR=1)
    payments.send(good(0), good(1, currency="USD"))

    def crash(place: str, batch: int, rows: Any) -> None:
        if place == "after-sinks":
            raise RuntimeError("as if it was killed")

    with monkeypatch.context() as patched, pytest.raises(EngineFailed):
        patched.setattr(failpoint, "reach", crash)
        payments.run()
    rates(payments, USD=9)  # everything is the other way round
    payments.run()
    assert by_id(payments) == {"p-0": 1}
    assert [json.loads(d.value or b"")["payment_id"] for d in payments.dead()] == ["p-1"]
    payments.send(good(2), good(3, currency="USD"))
    payments.run()
    assert by_id(payments) == {"p-0": 1, "p-3": 9}
    assert payments.verify().findings == []


def test_only_sinks_behind_the_look_up_lose_the_record(payments: Payments) -> None:
    looked_up(payments, missing="dead-letter", columns={"rate": "rate"})
    payments.spec["transform"].append({"view": "renamed", "sql": "select * from rated where amount > 1"})
    payments.spec["sinks"] = {
        "lake": {"from": "renamed", "delta": {"path": "lake"}},
        "all": {"from": "payments", "parquet": {"path": "all"}},
    }
    rates(payments, EUR=1)
    payments.send(good(0), good(1, currency="XXX"), good(2, amount=0.5))
    heard = Counted()
    payments.run(watch=heard)
    assert by_id(payments) == {"p-0": 1}
    (dead,) = payments.dead()
    assert (dead.sinks, dead.stage) == ("lake", "transform")
    (entry,) = heard.entries
    assert {n: (s.written, s.dropped, s.rejected) for n, s in entry.sinks.items()} == {
        "lake": (1, 1, 1),
        "all": (3, 0, 0),
    }
    assert payments.verify().findings == []


def test_plan_shows_tables_and_exactly_once_by_partition_needs_a_small_one(payments: Payments) -> None:
    looked_up(payments)
    payments.create(f"{payments.topic}-out")
    payments.spec["sinks"] = {"out": {"from": "rated", "kafka": {"topic": f"{payments.topic}-out"}}}
    rates(payments, EUR=1, USD=2)
    found = planned(payments)
    (shown,) = found["path"]["references"]
    assert (shown["name"], shown["kind"], shown["rows"], shown["broadcast"]) == ("rates", "file", 2, True)
    assert found["routes"][0]["mode"] == "exactly-once-by-partition"
    assert not payments.home.exists()

    payments.spec["references"]["rates"]["broadcast_mb"] = 0
    found = planned(payments)
    assert found["path"]["references"][0]["broadcast"] is False
    assert found["routes"][0]["mode"] == "exactly-once-by-batch"

    rates(payments, EUR=1, EUR_=2)
    (problem,) = planned(payments, expect=3)["problems"]
    assert (problem["code"], problem["facts"]["reference"]) == ("reference-unusable", "rates")
    assert "2 rows have code = EUR" in problem["cause"]


def test_tables_from_a_compacted_topic_a_database_and_delta(
    payments: Payments, postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{payments.topic}-rates"
    payments.create(topic, partitions=2, **{"cleanup.policy": "compact"})
    for code, rate in (("EUR", 1), ("USD", 2), ("GBP", 3), ("USD", 4)):
        payments.send(json.dumps({"code": code, "rate": rate}).encode(), key=code.encode(), topic=topic)
    payments.send(None, key=b"GBP", topic=topic)
    with psycopg.connect(postgres.url, autocommit=True) as database:
        database.execute("create table if not exists accounts_ref (id text, owner text)")
        database.execute("truncate accounts_ref")
        database.execute("insert into accounts_ref values ('a-1', 'Ada'), ('a-2', 'Bob')")
    monkeypatch.setenv("PG_URL", postgres.url)
    write_deltalake(str(payments.directory / "statuses"), table({"status": ["SETTLED"], "final": [True]}))
    json_value = {"format": "json", "schema": {"fields": {"code": "string", "rate": "decimal(9,3)"}}}
    payments.spec["contract"] = {}
    payments.spec["references"] = {
        "rates": {"kafka": {"topic": topic, "value": json_value, "key": {"format": "string"}}},
        "accounts": {"jdbc": {"url": "${env:PG_URL}", "table": "accounts_ref"}},
        "statuses": {"delta": {"path": "statuses"}},
    }
    payments.spec["transform"] = [
        {
            "view": "rated",
            "enrich": {"from": "payments", "reference": "rates", "on": {"currency": "_key"}, "columns": ["rate"]},
        },
        {
            "view": "owned",
            "enrich": {"from": "rated", "reference": "accounts", "on": {"account": "id"}, "prefix": "account_"},
        },
        {"view": "ended", "enrich": {"from": "owned", "reference": "statuses", "on": "status"}},
    ]
    payments.spec["sinks"] = {"lake": {"from": "ended", "delta": {"path": "lake"}}}
    payments.send(good(0), good(1, currency="USD", account="a-2"), good(2, currency="GBP", status="NEW"))
    heard = Counted()
    payments.run(watch=heard)
    found = {r["payment_id"]: (r["rate"], r["account_owner"], r["final"]) for r in payments.rows()}
    assert found == {"p-0": (1, "Ada", True), "p-1": (4, "Bob", True), "p-2": (None, "Ada", None)}
    assert [entry.sinks["lake"].dropped for entry in heard.entries] == [0]
    assert payments.verify().findings == []


def test_secret_of_a_database_is_in_no_error(payments: Payments, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up(payments)
    payments.spec["references"]["rates"] = {"jdbc": {"url": "${env:PG_URL}", "table": "rates"}}
    monkeypatch.setenv("PG_URL", "postgresql://ada:hunter2@127.0.0.1:1/none")
    (problem,) = planned(payments, expect=3)["problems"]
    assert problem["code"] == "reference-unusable"
    assert "hunter2" not in json.dumps(problem)
