"""How a finding of `verify` speaks."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from penstock.record import OffsetRange
from penstock.verification.offsets import once
from penstock.verification.report import Finding, Report


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (Finding("ledger-gap", "a gap"), "a gap"),
        (Finding("sink-differs", "differs", 0), "batch 0: differs"),
        (Finding("vanished", "gone", None, "t", 0), "t-0: gone"),
        (Finding("lost", "2 lost", 4, "t", 0, [7, 9]), "batch 4: t-0: 2 lost: offsets 7, 9"),
        (Finding("lost", "lost", offsets=list(range(10))), "lost: offsets 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        (Finding("lost", "lost", offsets=list(range(11))), "lost: offsets 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"),
    ],
)
def test_finding_says_batch_partition_and_the_first_offsets(finding: Finding, said: str) -> None:
    assert str(finding) == said


def test_loss_has_an_exit_status_of_its_own_and_a_finding_comes_first() -> None:
    report = Report("payments", skipped=[OffsetRange("t", 0, 0, 5)])
    assert (report.records_lost, report.exit_status) == (False, 0)  # a choice, and no loss
    for lost in (Report("payments", lost=[OffsetRange("t", 0, 0, 5)]), Report("payments", doubtful=3)):
        assert (lost.complete, lost.records_lost, lost.exit_status) == (True, True, 6)
        lost.findings.append(Finding("vanished", "gone"))
        assert lost.exit_status == 1


def test_finding_names_at_most_a_thousand_offsets_as_plain_numbers_that_json_takes() -> None:
    report = Report("payments")
    once({("t", 0): [*range(2000), *range(2000)]}, report)
    [finding] = report.findings
    assert finding.text.startswith("2,000 records")
    assert json.loads(json.dumps(asdict(finding)))["offsets"] == list(range(1000))
