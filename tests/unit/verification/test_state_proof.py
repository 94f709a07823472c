"""Books of stateful steps: what `verify` says where they do not add up, and what it adds up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.batch import reconcile
from penstock.checkpoint.ledger import Entry, SinkCount, StepCount, TopicFact, ViewCount
from penstock.errors import BatchUnbalanced
from penstock.record import OffsetRange
from penstock.spec.model import Pipeline
from penstock.verification import state as state_proof
from penstock.verification.report import Report

PIPELINE = Pipeline.model_validate(
    {
        "name": "stateful",
        "kafka": {"bootstrap": "unused"},
        "source": {"topics": {"events": {"value": {"format": "json", "schema": {"fields": {"at": "timestamp"}}}}}},
        "transform": [
            {"view": "once", "deduplicate": {"from": "events", "time": "at", "within": "1m", "key": ["at"]}},
        ],
        "sinks": {"lake": {"from": "once", "delta": {"path": "lake"}}},
    }
)
GOOD = Entry(
    pipeline="stateful",
    query="q",
    batch=3,
    time="2026-11-01T10:00:00",
    start="earliest",
    ranges=[OffsetRange("events", 0, 0, 10)],
    topics={"events": TopicFact("events", "id")},
    views={"events": ViewCount(10, 10, 0)},
    sinks={"lake": SinkCount(5, None)},
    stateful={"once": StepCount(came=10, late=2, duplicates=3, gave=5, cut=2, held=7, bytes=100)},
)


def findings(entry: Entry) -> list[str]:
    report = Report("stateful")
    state_proof.account(PIPELINE, [entry], report)
    return [str(finding) for finding in report.findings]


def test_sums_over_batches_and_the_state_of_now() -> None:
    report = Report("stateful")
    state_proof.account(PIPELINE, [GOOD, replace(GOOD, batch=4)], report)
    assert report.findings == []
    assert (report.late, report.duplicates, report.taken) == ({"once": 4}, {"once": 6}, {"once": 10})
    assert report.held == {"once": 7}
    assert report.untimed == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"came": 9, "late": 1, "cut": 1}, "batch 3: step 'once': 10 records passed, 9 handed to it"),
        ({"late": 1, "cut": 1}, "batch 3: step 'once': 9 rows in, 5 out, 3 dropped"),
        ({"gave": 4, "duplicates": 4}, "batch 3: step 'once': it gave 4 rows, sink 'lake' accounts for 5"),
        ({"cut": 3}, "batch 3: step 'once': the engine dropped 3 rows as late, 2 counted as late"),
    ],
)
def test_books_that_do_not_add_up_are_findings(changes: dict[str, Any], said: str) -> None:
    assert findings(GOOD) == []
    assert findings(replace(GOOD, stateful={"once": replace(GOOD.stateful["once"], **changes)})) == [said]


def test_record_that_was_set_aside_never_was_a_row_for_the_sink() -> None:
    """A record that a step before the stateful one fails on is dead for the sink, and nothing came out for it."""
    views = {"events": ViewCount(11, 11, 0, rejected=1)}
    aside = replace(GOOD, views=views, sinks={"lake": SinkCount(5, None, rejected=1, failed=1)})
    assert findings(aside) == []
    lost = replace(aside, sinks={"lake": SinkCount(4, None, rejected=1, failed=1)})
    assert findings(lost) == ["batch 3: step 'once': it gave 5 rows, sink 'lake' accounts for 4"]
    refused = replace(aside, sinks={"lake": SinkCount(4, None, rejected=1)})
    assert findings(refused) == []


def test_batch_whose_duplicates_do_not_add_up_is_not_committed() -> None:
    reconcile.check(GOOD)
    with pytest.raises(BatchUnbalanced):
        reconcile.check(replace(GOOD, stateful={"once": replace(GOOD.stateful["once"], late=1)}))


def test_entry_comes_back_and_one_of_an_older_version_has_no_state() -> None:
    assert Entry.from_line(GOOD.as_line()) == GOOD
    older = json.loads(GOOD.as_line())
    del older["stateful"]
    assert Entry.from_line(json.dumps(older)).stateful == {}
