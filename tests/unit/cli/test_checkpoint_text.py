"""`penstock checkpoint` as words: whole pictures at 80 and 120 columns, from documents that keep their schema.

After a change that is meant: PENSTOCK_SNAPSHOTS=write pytest tests/unit/cli/test_checkpoint_text.py
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.checkpoint_documents import SCHEMAS

from penstock.cli import main
from penstock.errors import naming

main.register()
from penstock.cli import checkpoint_text  # noqa: E402  commands are registered once

SNAPSHOTS = Path(__file__).parent / "snapshots"
QUERY = "46510afa-a74b-42c7-aa81-0078a23d40eb"
LONG = "payments.settled.by-country.and-by-currency.with-a-name-that-goes-on-and-on-for-ever"


def place(topic: str, partition: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, **more}


HEALTHY: dict[str, Any] = {
    "pipeline": "payments",
    "checkpoint": ".penstock/payments",
    "query": QUERY,
    "running": 4711,
    "committed": 41,
    "planned": 42,
    "pending": {
        "batch": 42,
        "since": "2026-11-15T11:44:03+00:00",
        "seconds": 7,
        "written": False,
        "ranges": [place("payments", 0, start=1_000_000, end=1_060_000)],
    },
    "partitions": [
        place("payments", 0, next=1_000_000, first=0, end=1_234_567, lag=234_567),
        place("payments", 1, next=999_998, first=0, end=999_998, lag=0),
        place(LONG, 0, next=5, first=0, end=6, lag=1),
    ],
    "lag": 234_568,
    "no_lag": None,
    "bytes": {"spark/offsets": 33_180, "spark/commits": 1_218, "ledger": 24_000, "schemas": 0, "logs": 1_234_567},
    "ledger": {
        "entries": 42,
        "first": 0,
        "last": 41,
        "time": "2026-11-15T11:44:02.931+00:00",
        "read": 1_999_998,
        "written": {"lake": 1_899_998, "archive": 1_999_000},
        "dead": 998,
        "lost": [],
        "doubtful": [],
        "skipped": [],
        "seeks": [],
    },
    "state": [],
    "damage": [],
    "backups": [],
    "aside": [],
    "forked": None,
}
ASIDE = [(50, "replaced"), (55, "damaged")]
HARMED: dict[str, Any] = {
    **copy.deepcopy(HEALTHY),
    "query": None,
    "running": None,
    "pending": {**HEALTHY["pending"], "seconds": 93_784, "written": True},
    "partitions": [place("payments", p, next=10 * p, first=None, end=None, lag=None) for p in range(24)],
    "lag": None,
    "no_lag": "Kafka does not answer at 127.0.0.1:9092",
    "ledger": {
        **HEALTHY["ledger"],
        "lost": [place("payments", 1, start=0, end=12)],
        "skipped": [place("payments", p, start=10, end=1_010) for p in range(7)],
        "seeks": [12, 40],
    },
    "state": [{"operator": 0, "partitions": 4, "bytes": 12_345_678}, {"operator": 1, "partitions": 1, "bytes": 12}],
    "damage": [
        {"file": "spark/metadata", "what": "is empty", "source": "the ledger"},
        {
            "file": "spark/offsets/42",
            "what": "does not match its checksum: it was truncated or changed",
            "source": None,
        },
    ],
    "backups": [".penstock/payments/backups/20261115T114500.000000Z-before-seek"],
    "aside": [f".penstock/payments/backups/20261115T11{minute}00.000000Z-{why}" for minute, why in ASIDE],
    "forked": {"of_pipeline": "old", "of_query": QUERY, "of_batch": 7, "time": "2026-11-01T00:00:00+00:00"},
}
MOVES = [
    {**place("payments", 0), "from": 1_000_000, "to": 1_234_567, "skipped": 234_567, "again": 0, "unread": 0},
    {**place(LONG, 1), "from": 50, "to": 20, "skipped": 0, "again": 30, "unread": 0},
    {**place("payments", 1), "from": 8, "to": 8, "skipped": 0, "again": 0, "unread": 0},
]
SEEK: dict[str, Any] = {
    "pipeline": "payments",
    "dry_run": True,
    "batch": 42,
    "partitions": MOVES,
    "skipped": 234_567,
    "again": 30,
    "unread": 0,
    "renewed": [],
    "taken_back": None,
    "refused": None,
    "backup": None,
}
REFUSED = {
    "code": "seek-refused",
    "what": "sink 'lake' would hold records twice",
    "cause": "it appends, and knows what it has by the batch, which would be another one (30 offsets back)",
    "next": "…",
    "retryable": False,
    "exit_status": 4,
    "facts": {
        "alternatives": [
            "send the range through the same spec beside the stream: penstock run FILE --from POSITION --to POSITION",
            "begin a pipeline with sinks of its own at an earlier place: penstock checkpoint fork FILE OTHER.yaml",
        ]
    },
}
RESTORE: dict[str, Any] = {
    "pipeline": "payments",
    "backup": "copies/monday.tar.gz",
    "dry_run": False,
    "query": QUERY,
    "time": "2026-11-15T11:45:00+00:00",
    "committed": 41,
    "planned": 42,
    "replaced": ".penstock/payments/backups/20261115T120000.000000Z-replaced",
    "warnings": ["sink 'out' is at least once: it gets the records of batches 42 to 50 a second time"],
}
FORK: dict[str, Any] = {
    "pipeline": "payments-eur",
    "checkpoint": ".penstock/payments-eur",
    "query": QUERY,
    "of_pipeline": "payments",
    "of_query": QUERY,
    "of_batch": 41,
    "time": "2026-11-15T11:45:00+00:00",
    "begins": [place("payments", 0, next=1_000_000), place(LONG, 1, next=7)],
    "anew": ["refunds"],
    "missing_topics": ["payments.DLT", "payments-eur"],
    "next": "penstock apply payments-eur.yaml",
    "dry_run": False,
}
CHANGES = [
    {
        "what": "topic-removed",
        "name": "refunds",
        "effect": "is no longer read; what was not read of it yet never will be: a start is refused, unless "
        "`on_data_loss: continue`",
        "compatible": False,
    },
    {
        "what": "option-changed",
        "name": "trigger",
        "effect": "is every 10s, and was continuous; a batch that is planned stays as it is",
        "compatible": True,
    },
]
DIFF = {"pipeline": "payments", "checkpoint": ".penstock/payments", "compatible": False, "changes": CHANGES}
REPAIR = {"pipeline": "payments", "damage": HARMED["damage"], "backup": "copies/monday.tar.gz", "skipped": []}
BACKUP = {
    "pipeline": "payments",
    "backup": "copies/monday.tar.gz",
    "query": QUERY,
    "time": "2026-11-15T11:45:00+00:00",
    "committed": 41,
    "planned": 42,
    "ledger": 42,
    "files": 91,
    "bytes": 58_398,
}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "show": ("show", checkpoint_text.show, HEALTHY),
    "show-harmed": ("show", checkpoint_text.show, HARMED),
    "diff": ("diff", checkpoint_text.diff, {**DIFF, "unchecked": ["topics that came since: Kafka does not answer"]}),
    "diff-same": (
        "diff",
        checkpoint_text.diff,
        {**DIFF, "compatible": True, "changes": [], "unchecked": []},
    ),
    "seek-rehearsed": ("seek", checkpoint_text.seek, SEEK),
    "seek-back-over-a-skip": (
        "seek",
        checkpoint_text.seek,
        {**SEEK, "partitions": [MOVES[0], {**MOVES[1], "again": 10, "unread": 20}], "again": 10, "unread": 20},
    ),
    "seek-refused": ("seek", checkpoint_text.seek, {**SEEK, "refused": REFUSED}),
    "seek": ("seek", checkpoint_text.seek, {**SEEK, "dry_run": False, "backup": HARMED["backups"][0]}),
    "backup": ("backup", checkpoint_text.backup, BACKUP),
    "restore": ("restore", checkpoint_text.restored, RESTORE),
    "fork": ("fork", checkpoint_text.fork, FORK),
    "fork-without-kafka": ("fork", checkpoint_text.fork, {**FORK, "missing_topics": None}),
    "repair": ("repair", checkpoint_text.repair, {**REPAIR, "applied": False, "aside": None}),
    "repair-passed-over": (
        "repair",
        checkpoint_text.repair,
        {
            **REPAIR,
            "applied": False,
            "aside": None,
            "skipped": ["copies/tuesday.tar.gz is not a whole backup: spark/metadata is missing"],
        },
    ),
    "repair-applied": (
        "repair",
        checkpoint_text.repair,
        {**REPAIR, "applied": True, "aside": ".penstock/payments/backups/20261115T120000.000000Z-damaged"},
    ),
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("case", CASES)
def test_text_is_as_it_was_and_keeps_within_its_columns(case: str, columns: int) -> None:
    command, text, document = CASES[case]
    Draft202012Validator(SCHEMAS[command]).validate(document)
    lines = text(document, columns)
    assert [line for line in lines if len(line) > columns] == []
    snapshot = SNAPSHOTS / f"checkpoint-{case}-{columns}.txt"
    if os.environ.get("PENSTOCK_SNAPSHOTS") == "write":
        snapshot.parent.mkdir(exist_ok=True)
        snapshot.write_text("\n".join(lines) + "\n")
    assert "\n".join(lines) + "\n" == snapshot.read_text()


@pytest.mark.parametrize("case", ["show", "seek-rehearsed", "fork"])
def test_topic_names_cannot_reach_the_terminal_as_orders(case: str) -> None:
    _, text, document = CASES[case]
    evil = copy.deepcopy(document)
    for each in evil.get("partitions") or evil["begins"]:
        each["topic"] = "a\x1b[31mb"
    assert "\x1b" not in "\n".join(text(evil, 80))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_command_of_a_refused_seek_names_the_spec_however_its_lines_are_broken(columns: int) -> None:
    named = naming({**SEEK, "refused": REFUSED}, Path("eu/payments.yaml"))
    said = " ".join(line.strip() for line in checkpoint_text.seek(named, columns))
    assert "penstock run eu/payments.yaml --from POSITION --to POSITION" in said
    assert "penstock checkpoint fork eu/payments.yaml OTHER.yaml" in said
    assert "FILE" not in said
