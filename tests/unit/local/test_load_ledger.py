"""The ledger's file without a broker: the rows are made here, as delivery reports would make them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import BadArgument, NotWritable
from penstock.local.load_ledger import OUTCOMES, LedgerFile, Rows
from penstock.testing.acknowledged import Acknowledged, places

ACK, FAIL = OUTCOMES.index("acknowledged"), OUTCOMES.index("failed")


def rows(n: int) -> Rows:
    return Rows(
        "payments",
        7,
        partitions=np.full(n, -1, np.int32),
        offsets=np.full(n, -1, np.int64),
        kinds=np.zeros(n, np.int8),
        void=np.zeros(n, np.bool_),
        outcomes=np.zeros(n, np.int8),
    )


def acknowledge(made: Rows, first: int, stop: int) -> None:
    made.partitions[first:stop] = 0
    made.offsets[first:stop] = np.arange(first, stop) + 100
    made.outcomes[first:stop] = ACK


def killed_after_first_of_two_slices(path: Path) -> None:
    made = rows(20)
    file = LedgerFile(path, made)
    file.write(0, 10)
    file.write(10, 20)
    acknowledge(made, 0, 10)
    file.write(0, 10)


def test_a_finished_run_has_one_row_per_record(tmp_path: Path) -> None:
    path, made = tmp_path / "l.arrow", rows(10)
    file = LedgerFile(path, made)
    file.write(0, 10)
    acknowledge(made, 0, 8)
    made.outcomes[8] = FAIL
    made.kinds[0], made.void[1] = 1, True
    file.write(0, 10)
    file.finish(10)
    ledger = Acknowledged.read(path)
    assert ledger.everything["number"].to_pylist() == list(range(10))
    assert len(ledger) == 8
    assert (ledger.failed().num_rows, ledger.unknown().num_rows) == (1, 1)
    assert ledger.kinds() == {"truncated": 1, "good": 7}
    assert ledger.offsets("truncated") == places(ledger.poison()) == {("payments", 0, 100)}
    assert ledger.payment_ids() == {f"7-{n:09d}" for n in range(1, 8)}
    assert (ledger.void().num_rows, ledger.kept().num_rows) == (1, 6)
    assert not (tmp_path / "l.arrow.new").exists()


def test_a_killed_run_leaves_unreported_records_as_unknown(tmp_path: Path) -> None:
    path = tmp_path / "l.arrow"
    killed_after_first_of_two_slices(path)
    ledger = Acknowledged.read(path)
    assert ledger.offsets() == {("payments", 0, n) for n in range(100, 110)}
    assert ledger.unknown()["number"].to_pylist() == list(range(10, 20))


def test_a_file_cut_at_any_byte_never_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "l.arrow"
    killed_after_first_of_two_slices(path)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        ledger = Acknowledged.read(path)
        assert ledger.offsets() <= {("payments", 0, n) for n in range(100, 110)}
        assert len(ledger) in (0, 10)


def test_a_new_run_replaces_the_ledger_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "l.arrow"
    killed_after_first_of_two_slices(path)
    LedgerFile(path, rows(3)).finish(3)
    assert Acknowledged.read(path).everything.num_rows == 3


def test_a_path_that_cannot_be_written_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable, match="ledger"):
        LedgerFile(tmp_path / "file" / "l.arrow", rows(1))


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument):
        Acknowledged.read(tmp_path / "none")
    (tmp_path / "foreign").write_text("payment_id,offset\n")
    with pytest.raises(BadArgument):
        Acknowledged.read(tmp_path / "foreign")
