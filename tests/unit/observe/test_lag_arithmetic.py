"""Lag as arithmetic, and as words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.observe_documents import LAG

from penstock.checkpoint.home import Home
from penstock.cli.lag import document, show
from penstock.kafka.peek import estimated
from penstock.observe.lag import Lag, PartitionLag, measured
from penstock.spec.model import Pipeline


def part(partition: int, position: int, end: int, **facts: Any) -> PartitionLag:
    given = {"group": position, "behind_s": 30.0 if end > position else None, "estimated": False, "arriving": 10.0}
    return PartitionLag(**{"topic": "payments", **given, **facts}, partition=partition, position=position, end=end)


@pytest.mark.parametrize(
    ("capacity", "seconds"),
    [(120.0, 300 / 100), (20.0, math.inf), (19.0, math.inf), (None, None)],
    ids=["gains", "just keeps up", "falls behind", "never ran"],
)
def test_time_to_catch_up_counts_what_arrives_meanwhile(capacity: float | None, seconds: float | None) -> None:
    assert measured([part(0, 0, 100), part(1, 0, 200)], capacity).catch_up_s == seconds


def test_caught_up_needs_no_time() -> None:
    assert measured([part(0, 100, 100)], None).catch_up_s == 0


def test_end_that_was_read_before_the_position_is_no_negative_lag() -> None:
    assert part(0, 105, 100).lag == 0


def test_hot_is_what_waits_or_gets_far_more_than_the_others() -> None:
    even = [part(p, 0, 50_000) for p in range(4)]
    assert measured(even, 1.0).hot == ()
    assert measured([*even, part(4, 0, 500_000)], 1.0).hot == (("payments", 4),)
    assert measured([*even, part(4, 0, 50_000, arriving=500.0)], 1.0).hot == (("payments", 4),)
    assert measured([part(0, 0, 900)], 1.0).hot == ()
    assert measured([part(0, 0, 900), part(1, 0, 1)], 1.0).hot == ()  # too little to speak of


def test_time_between_two_known_ones_is_in_proportion() -> None:
    known = [(0, 1_000), (100, 2_000), (300, 3_000)]
    assert estimated(50, known) == 1_500
    assert estimated(200, known) == 2_500
    assert estimated(301, known) is None
    assert estimated(5, []) is None


def test_lag_of_partitions_that_do_not_answer_is_not_known_and_counts_as_none() -> None:
    found = measured([part(0, 900, 1_000), silent(1), silent(2, state="offline", position=None)], 5.0)
    assert found.total == 100
    assert [each.partition for each in found.unknown] == [1, 2]
    assert found.catch_up_s is None
    assert (found.partitions[1].lag, found.partitions[1].group_lag, found.partitions[1].expired) == (0, None, 0)
    far = [*(part(p, 0, 50_000) for p in range(4)), *(silent(p) for p in range(4, 9))]
    assert measured(far, 1.0).hot == ()  # they are not far above partitions of which nothing is known


def silent(partition: int, position: int | None = 700, state: str = "silent") -> PartitionLag:
    return PartitionLag("payments", partition, position, 650, None, None, False, None, state=state)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "payments",
            "checkpoint": str(tmp_path / "home"),
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"payments": {"value": {"format": "json", "schema": {"fields": {"a": "int"}}}}}},
            "sinks": {"lake": {"from": "payments", "delta": {"path": "lake"}}},
        }
    )


@pytest.fixture
def run(pipeline: Pipeline) -> Iterator[None]:
    """Something holds the lock."""
    with Home.of(pipeline).held():
        yield


@pytest.fixture
def found() -> Lag:
    return measured(
        [
            part(0, 1_000_000, 1_030_000, behind_s=2710.0),
            part(1, 999_000, 1_000_000, behind_s=12.0, estimated=True, group=None),
            part(2, 7, 7, arriving=0.0),
            part(3, 12_345_678, 12_999_999, arriving=2_000.0, topic="payments-of-all-other-countries"),
        ],
        3_000.0,
    )


PAGE = {
    80: """\
payments: 685,321 offsets behind, the oldest record by 45 min 10 s
  reads 3,000 offsets/s, 2,020/s arrive: caught up in 11 min 39 s
  partition      position         end      lag       behind  group lag  arriving
  payments-0    1,000,000   1,030,000   30,000  45 min 10 s     30,000      10/s
  payments-1      999,000   1,000,000    1,000        ~12 s          -      10/s
  payments-2            7           7        0            -          0       0/s
  payme…ies-3  12,345,678  12,999,999  654,321         30 s    654,321   2,000/s
  hot, far above the others: payments-of-all-other-countries-3
""",
    120: """\
payments: 685,321 offsets behind, the oldest record by 45 min 10 s
  reads 3,000 offsets/s, 2,020/s arrive: caught up in 11 min 39 s
  partition                            position         end      lag       behind  group lag  arriving
  payments-0                          1,000,000   1,030,000   30,000  45 min 10 s     30,000      10/s
  payments-1                            999,000   1,000,000    1,000        ~12 s          -      10/s
  payments-2                                  7           7        0            -          0       0/s
  payments-of-all-other-countries-3  12,345,678  12,999,999  654,321         30 s    654,321   2,000/s
  hot, far above the others: payments-of-all-other-countries-3
""",
}


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("width", [80, 120])
def test_page_fits_the_terminal_and_says_it_all(
    pipeline: Pipeline, found: Lag, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    show(pipeline, found, show_all=False)
    assert capsys.readouterr().out == PAGE[width]


def test_pipeline_that_does_not_run_is_not_said_to_catch_up(
    pipeline: Pipeline, found: Lag, capsys: pytest.CaptureFixture[str]
) -> None:
    show(pipeline, found, show_all=False)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "payments: not running, 685,321 offsets behind, the oldest record by 45 min 10 s",
        "  read 3,000 offsets/s, 2,020/s arrive: it would catch up in about 11 min 39 s",
    ]
    told = document(pipeline, found)
    assert (told["running"], told["catching_up"], round(told["catch_up_s"])) == (False, False, 699)
    show(pipeline, measured([part(0, 0, 100)], 1.0), show_all=False)
    assert "read 1 offsets/s, 10/s arrive: it would never catch up at this rate" in capsys.readouterr().out
    show(pipeline, measured([part(0, 100, 100)], 1.0), show_all=False)
    assert capsys.readouterr().out.startswith("payments: not running, caught up\n  read 1 offsets/s, 10/s arrive\n")
    with Home.of(pipeline).held():
        told = document(pipeline, found)
    assert (told["running"], told["catching_up"]) == (True, True)


def test_partitions_past_the_worst_are_summed_up(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    many = measured([part(p, 0, p) for p in range(100)], 1.0)
    show(pipeline, many, show_all=False)
    page = capsys.readouterr().out
    assert "80 more partitions, lag 3,160; to see them: --all" in page
    assert "payments-99 " in page
    assert "payments-79 " not in page


def test_records_that_all_expired_before_the_first_run_are_told(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured([part(0, 3_000, 3_000, gone=3_000), part(1, 2_000, 2_000, gone=2_000)], None)
    show(pipeline, found, show_all=False)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "payments: not running, caught up"
    assert told[2:4] == [
        "  the stream has not run yet: positions are where `start: earliest` begins",
        "  5,000 older offsets already expired, so no run will read them",
    ]
    assert document(pipeline, found)["gone"] == 5_000


def test_names_from_kafka_cannot_command_the_terminal(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    odd = PartitionLag("a\x1b[2J", 0, 0, 0, 5, None, False, 0.0)
    show(pipeline, measured([odd], 1.0), show_all=False)
    assert "\x1b" not in capsys.readouterr().out


def test_document_says_never_as_no_time(pipeline: Pipeline) -> None:
    told = document(pipeline, measured([part(0, 0, 100)], 1.0))
    Draft202012Validator(LAG).validate(told)
    assert told["catch_up_s"] is None
    assert told["catching_up"] is False
    assert told["group"] == "penstock.payments"
    assert told["partitions"][0] == {
        "topic": "payments",
        "partition": 0,
        "position": 0,
        "group": 0,
        "end": 100,
        "lag": 100,
        "expired": 0,
        "gone": 0,
        "group_lag": 100,
        "behind_s": 30.0,
        "estimated": False,
        "arriving": 10.0,
        "state": None,
        "hot": False,
    }
    assert told["complete"] is True


SILENT = """\
payments: at least 100 offsets behind, the oldest record by 30 s; 2 of 3 partitions cannot be asked
  reads 3,000 offsets/s, 10/s arrive
  partition   position    end  lag  behind  group lag  arriving  state
  payments-0       900  1,000  100    30 s        100      10/s
  payments-1       700      ?    ?       ?          ?         ?  silent
  payments-2         ?      ?    ?       ?          ?         ?  offline
"""


@pytest.mark.usefixtures("run")
def test_page_never_shows_a_number_that_nobody_said(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured([part(0, 900, 1_000), silent(1), silent(2, None, "offline")], 3_000.0)
    show(pipeline, found, show_all=False)
    assert capsys.readouterr().out == SILENT
    told = document(pipeline, found)
    Draft202012Validator(LAG).validate(told)
    assert (told["complete"], told["lag"], told["catching_up"]) == (False, 100, None)
    assert [(each["lag"], each["end"], each["state"]) for each in told["partitions"]] == [
        (100, 1_000, None),
        (None, None, "silent"),
        (None, None, "offline"),
    ]


@pytest.mark.usefixtures("run")
def test_nothing_is_said_to_be_caught_up_while_a_partition_does_not_answer(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    show(pipeline, measured([part(0, 1_000, 1_000), silent(1)], 1.0), show_all=False)
    assert capsys.readouterr().out.startswith("payments: lag unknown; 1 of 2 partitions cannot be asked")


def test_offsets_that_expired_are_counted_and_named(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured([part(0, 100, 2_000, first=1_600), part(1, 50, 60)], 1.0)
    show(pipeline, found, show_all=False)
    assert "  1,500 of them expired unread: payments-0 100 to 1,599\n" in capsys.readouterr().out
    assert document(pipeline, found)["expired"] == 1_500
    assert [each["expired"] for each in document(pipeline, found)["partitions"]] == [1_500, 0]
