"""The numbers of a batch add up for every sink whose steps keep rows one for one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.two_batches import ENTRIES

from penstock.checkpoint.ledger import SinkCount, ViewCount
from penstock.observe.books import Share, apart, shares

ORDERS = ViewCount(read=20, passed=15, dead=1, dropped={"known": 4}, rejected=3)
REFUNDS = ViewCount(read=10, passed=8, dead=2, rejected=1)


@pytest.mark.parametrize(
    ("views", "sink", "expected"),
    [
        ({"o": replace(ORDERS, rejected=0)}, SinkCount(15, 0), Share(15)),
        ({"o": replace(ORDERS, rejected=0)}, SinkCount(2, 3, superseded=10), Share(2, 10, 3)),
        ({"o": ORDERS}, SinkCount(10, 2, rejected=3), Share(10, 0, 2)),
        ({"o": ORDERS}, SinkCount(10, 4, rejected=1), Share(10, 0, 4, dead_elsewhere=2)),
        ({"o": ORDERS, "r": REFUNDS}, SinkCount(10, 5), Share(10, 0, 5, elsewhere=7, dead_elsewhere=3)),
        ({"o": ORDERS, "r": REFUNDS}, SinkCount(5, 1, superseded=1, rejected=1), Share(5, 1, 1, elsewhere=12)),
    ],
)
def test_what_was_read_is_written_superseded_left_out_elsewhere_dead_or_dropped(
    views: dict[str, ViewCount], sink: SinkCount, expected: Share
) -> None:
    entry = replace(ENTRIES[0], views=views, sinks={"lake": sink})
    [share] = shares(entry).values()
    assert share == expected
    parts = share.written + share.superseded + share.left_out + share.elsewhere - share.dead_elsewhere
    assert entry.read == parts + entry.dead + entry.dropped


def test_sink_whose_steps_make_other_rows_only_says_what_it_got() -> None:
    entry = replace(ENTRIES[0], views={"o": ORDERS}, sinks={"sums": SinkCount(3, None, superseded=1)})
    assert shares(entry) == {"sums": Share(3, 1)}


def test_only_what_is_needed_is_said() -> None:
    said = list(apart({"lake": Share(15), "pg": Share(500, 22_454, 3, 2, 1)}))
    assert said == [
        "22,454 superseded in sink pg",
        "3 left out before sink pg",
        "2 of views that sink pg does not read",
        "1 of the dead letters not those of sink pg",
    ]
