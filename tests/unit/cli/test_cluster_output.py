"""What `apply`, `topics`, `groups` and `tail` print, at 80 and at 120 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.cli import main, table
from penstock.deadletters.dead_letter import DeadLetter
from penstock.kafka.admin import TopicFacts
from penstock.kafka.differences import of_topic
from penstock.kafka.groups import Group, Groups, Member, Position
from penstock.kafka.reshape import Reshaped
from penstock.kafka.topics import Cluster, Partition, Topic
from penstock.observe.tail import Seen
from penstock.record import Failure

main.register()
from penstock.cli import apply, groups, tail, topics  # noqa: E402  commands are registered once

Printed = Callable[[], str]
SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDTHS = (80, 120)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return lambda: capsys.readouterr().out


def snapshot(name: str, width: int) -> str:
    """What was looked at by a person and found good; no line of it is wider than the terminal."""
    text = (SNAPSHOTS / f"{name}-{width}.txt").read_text()
    assert [line for line in text.splitlines() if len(line) > width] == []
    return text


def cluster() -> Cluster:
    config = {"retention.ms": "604800000", "retention.bytes": "-1", "cleanup.policy": "delete"}
    whole = Topic(
        "payments",
        "id-1",
        False,
        tuple(Partition(n, n + 1, (1, 2, 3), (1, 2, 3), 100, 1_234_567) for n in range(3)),
        {**config, "min.insync.replicas": "2"},
    )
    lagging = Topic(
        "accounts-with-a-name-that-is-long-enough-to-be-cut-on-a-narrow-terminal",
        "id-2",
        False,
        (
            Partition(0, 1, (1, 2, 3), (1, 3), 0, 50),
            Partition(1, 3, (2, 3, 1), (3,), 0, 0),
            Partition(2, None, (2,), (2,), None, None),
        ),
        {**config, "min.insync.replicas": "2", "cleanup.policy": "compact,delete", "retention.bytes": "2500000000"},
    )
    return Cluster((1, 3), (lagging, whole), ("payments.DLT",))


@pytest.mark.parametrize("width", WIDTHS)
def test_topics(printed: Printed, width: int) -> None:
    topics.show(cluster(), width, all_=False)
    assert printed() == snapshot("topics", width)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_partition_of_a_topic(printed: Printed, width: int) -> None:
    topics.show(cluster(), width, all_=True)
    assert printed() == snapshot("topics-all", width)


def test_partition_with_fewer_copies_than_min_in_sync_takes_writes_while_all_of_them_are_in_sync(
    printed: Printed,
) -> None:
    alone = (Partition(0, 1, (1,), (1,), 0, 5),)
    topics.show(Cluster((1,), (Topic("t", None, False, alone, {"min.insync.replicas": "2"}),), ()), None, all_=False)
    page = printed()
    assert "read-only" not in page
    assert "1 topic, 1 partition: all in sync; brokers 1" in page


def test_partition_that_refuses_writes_is_never_summed_up_as_in_sync(printed: Printed) -> None:
    two = (Partition(0, 1, (1, 2), (1,), 0, 5), Partition(1, 2, (1, 2), (1, 2), 0, 5))
    topics.show(Cluster((1,), (Topic("t", None, False, two, {"min.insync.replicas": "3"}),), ()), None, all_=False)
    page = printed()
    assert "read-only  t              0" in page
    assert "2 partitions: 1 read-only; brokers 1" in page


def test_topics_that_are_all_missing_are_not_in_sync(printed: Printed) -> None:
    topics.show(Cluster((1,), (), ("payments",)), None, all_=False)
    assert printed() == "payments is missing: `penstock apply` creates it\n0 topics, 0 partitions; brokers 1\n"


def reading() -> Groups:
    member = Member("reader-1-0f3c", "reader-1", "127.0.0.1", (("payments", 0), ("payments", 1)))
    found = (
        Group(
            "reporting",
            "stable",
            (member,),
            (
                Position("payments", 0, 900, 1000, "reader-1-0f3c"),
                Position("payments", 1, None, 1000, "reader-1-0f3c"),
                Position("payments", 2, 10, 12_345, None),
                Position("gone", 0, 7, None, None),
            ),
        ),
        Group(
            "penstock.payments.5c9d1f0e-1111-2222-3333-444455556666.dead-letters",
            "empty",
            (),
            (Position("payments.DLT", 0, 17, 412, None),),
        ),
    )
    return Groups(found, (), complete=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_groups(printed: Printed, width: int) -> None:
    groups.show(reading(), width, all_=False)
    assert printed() == snapshot("groups", width)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_position_of_a_group(printed: Printed, width: int) -> None:
    groups.show(reading(), width, all_=True)
    assert printed() == snapshot("groups-all", width)


NOON = 1_793_534_400_000
LETTER = DeadLetter(
    None, b"{", [], "payments", 2, 99, NOON, 0, "decode", "malformed", "line 1: it ends too early", "p", "q", 4
)
SEEN = [
    Seen("payments", 0, 7, NOON, b"a-1", {"amount": Decimal("12.50"), "at": datetime(2026, 11, 1, 12, tzinfo=UTC)}),
    Seen(
        "payments", 12, 123_456, NOON, None, None, failure=Failure("wrong-type", "amount: 'x\x1b[2J' is not a number")
    ),
    Seen("payments", 1, 8, None, {"id": 1}, None, deleted=True),
    Seen("payments", 1, 9, NOON, b"\xff\x00", b"two\nlines\x1b[31m and more text than a line of the terminal can hold"),
    Seen("payments.DLT", 0, 3, NOON, None, b"{", letter=LETTER),
]


@pytest.mark.parametrize("width", WIDTHS)
def test_tail_is_a_line_per_message(width: int) -> None:
    found = "".join(table.fitting(tail.line(seen), width) + "\n" for seen in SEEN)
    assert "\x1b" not in found
    assert found == snapshot("tail", width)


def test_tail_as_json_keeps_numbers_and_bytes_and_nothing_that_a_terminal_obeys() -> None:
    first, _, gone, raw, dead = [json.loads(tail.as_line(seen)) for seen in SEEN]
    assert first["value"] == {"amount": 12.5, "at": "2026-11-01T12:00:00Z"}
    assert '"amount":12.50' in tail.as_line(SEEN[0])
    assert (gone["key"], gone["deleted"], gone["timestamp"]) == ({"id": 1}, True, None)
    assert raw["key"] == {"base64": "/wA="}
    assert dead["dead_letter"]["reason"] == LETTER.reason
    assert not any(c < " " or "\x7f" <= c <= "\x9f" for seen in SEEN for c in tail.as_line(seen))
    assert "\\u009b" in tail.as_line(Seen("t", 0, 0, None, None, "\x9b31m"))


def test_apply_says_what_it_changed_and_what_it_left(printed: Printed) -> None:
    made = of_topic(
        "payments",
        {"partitions": "4", "retention.ms": "1000", "replication": "3"},
        {"partitions": "2", "retention.ms": "604800000", "replication": "1"},
        1,
    )
    there = {"payments": TopicFacts(4, "id", 1), "payments.DLT": TopicFacts(1, "id", 1), "old": TopicFacts(1, "id", 1)}
    apply.show(Reshaped(["payments.DLT"], made[:1], made[1:], there), Path("p.yaml"))
    assert printed() == snapshot("apply", 80)


def test_table_keeps_everything_where_there_is_no_terminal() -> None:
    columns = (table.Column("name", least=4), table.Column("size", right=True, spare=True))
    rows = [("a-long-name", 1), ("b", 1000)]
    assert table.lines(columns, rows, None) == ["name         size", "a-long-name     1", "b            1000"]
    assert table.lines(columns, rows, 12) == ["name    size", "a-…ame     1", "b       1000"]
    assert table.lines(columns, rows, 9) == ["name", "a-lo…name", "b"]
