"""What a pipeline leaves behind, as text that must not change: its plan, its rows, its dead letters and its ledger.

A file here holds one run of one pipeline over the same records. Whoever changes the way of a record changes none of
them; whoever changes a promise sees in the difference what users will see. `PENSTOCK_GOLDEN=write` writes them anew.
"""

from __future__ import annotations

import base64
import datetime as dt
import difflib
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import plan as cli_plan
from penstock.deadletters.dead_letter import DeadLetter
from penstock.kafka import connection
from penstock.lifecycle.preview import plan
from tests.committed import committed
from tests.payments import Payments, good

WRITES = os.environ.get("PENSTOCK_GOLDEN") == "write"
FOREVER = {"retention.ms": "-1"}  # the records are of a fixed day, which would expire
_DAY_MS = 1_793_527_200_000  # 2026-11-01T10:00:00Z, the event time of `good`
_HEADERS = [("trace", b"\x00\xff"), ("trace", None)]
_NEVER_THE_SAME = ("time", "seconds", "after", "hash", "bytes")
_OF_THIS_MACHINE = re.compile(r"  (Java|jars): ")
_QUERY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=-)[0-9a-f]{12}(?=\")")

RECORDS: list[bytes | None] = [
    *(good(n, amount=n - 2.25, account=f"a-{n % 3}", merchant={"name": 'Ü "Q"'} if n % 3 else None) for n in range(9)),
    good(9, status="PENDING", tags=["a", None], event_time="2026-11-02T00:00:00.123456+02:00"),
    good(10, status="VOID"),
    b"{",
    b"",
    b"null",
    b'{"payment_id": "\xff"}',
    good(40, currency=...),
    good(41, amount="x"),
    good(42, currency=None),
    good(43, currency="CHF"),
    None,
]
RULES = [
    {"name": "positive", "rule": "amount > 0"},
    {"name": "known", "rule": "currency in ('EUR', 'USD')", "otherwise": "drop"},
]


def fill(payments: Payments, records: Iterable[bytes | None] = RECORDS, *, first: int = 0) -> None:
    """Into two partitions in turn, a second apart; each with a key and with headers."""
    producer = connection.producer(payments.config)
    for number, value in enumerate(records, first):
        key, at = b"k-%d" % (number % 4), _DAY_MS + number * 1000
        producer.produce(payments.topic, value, key, number % 2, timestamp=at, headers=_HEADERS)
        assert producer.flush(30) == 0


class Golden:
    """The text of one run, part by part."""

    def __init__(self, name: str, payments: Payments) -> None:
        self.name, self.payments = name, payments
        self._parts: list[str] = []

    def plan(self) -> None:
        text = StringIO()
        with redirect_stdout(text), pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli_plan, "_WIDTH", 1000)  # where a line is broken depends on the length of DIRECTORY
            cli_plan.show(plan(self.payments.pipeline), self.payments.file)
        self.part("plan", (line for line in text.getvalue().splitlines() if not _OF_THIS_MACHINE.match(line)))

    def rows(self, sink: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """In no order of their own."""
        self.part(f"rows of {sink}", sorted(_line(row) for row in rows))

    def messages(self, *topics: str) -> None:
        seen = committed(self.payments.bootstrap, *topics)
        self.part("messages", sorted(_line({**asdict(each), "offset": None}) for each in seen))

    def letters(self, letters: Iterable[DeadLetter] | None = None) -> None:
        found = sorted(
            self.payments.dead() if letters is None else letters, key=lambda each: (each.position, each.batch)
        )
        self.part("dead letters", (_line(asdict(each)) for each in found))

    def ledger(self, ledger: Path | None = None) -> None:
        files = sorted((ledger or self.payments.home / "ledger").glob("*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        self.part("ledger", (_line(_steady(line)) for line in lines))

    def part(self, title: str, lines: Iterable[str]) -> None:
        self._parts.append("\n".join([f"# {title}", *lines, ""]))

    def check(self, **hidden: str) -> None:
        """`hidden`: what is another text in every run, by what stands for it."""
        text = "\n".join(self._parts)
        stands_for = {"TOPIC": self.payments.topic, "DIRECTORY": str(self.payments.directory), **hidden}
        for name, found in sorted(stands_for.items(), key=lambda each: -len(each[1])):
            text = text.replace(found, name)
        text = _QUERY.sub("QUERY", text).replace(self.payments.bootstrap, "KAFKA")
        file = Path(__file__).with_name(f"{self.name}.txt")
        if WRITES:
            file.write_text(text)
        before = file.read_text() if file.exists() else ""
        changed = difflib.unified_diff(before.splitlines(), text.splitlines(), "before", "now", lineterm="", n=1)
        assert text == before, "\n".join(changed)


def _steady(value: Any) -> Any:
    """Without what is new in every run."""
    if isinstance(value, list):
        return [_steady(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"view", "id"}:  # Kafka's id of a topic
        return {"view": value["view"]}
    return {name: _steady(each) for name, each in value.items() if name not in _NEVER_THE_SAME}


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=_as_text, ensure_ascii=False, sort_keys=True)


def _as_text(value: Any) -> str:
    match value:
        case bytes():
            return value.decode() if value.isascii() and value.decode().isprintable() else _base64(value)
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat() if value.tzinfo else value.isoformat()
        case dt.date() | Decimal() | uuid.UUID():
            return str(value)
    raise TypeError(type(value).__name__)


def _base64(value: bytes) -> str:
    return f"base64 {base64.b64encode(value).decode()}"
