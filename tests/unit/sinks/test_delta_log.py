"""What a Delta table says of our batches, and what follows when that is not what is known; no engine needed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.handed import OTHER_QUERY, QUERY, batch

from penstock.errors import TableDiffers, TableOfAnotherQuery
from penstock.record import Known
from penstock.sinks.delta.log import DeltaLog


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog("lake", tmp_path / "lake")


def put(log: DeltaLog, number: int) -> None:
    """A commit as Spark makes it for a batch: it calls the number of rows by another name than delta-rs does."""
    said = log.identity(batch(number))
    properties = CommitProperties(
        {"userMetadata": said["userMetadata"]}, app_transactions=[Transaction(said["txnAppId"], number)]
    )
    write_deltalake(str(log.path), pa.table({"a": [1, 2, 3]}), mode="append", commit_properties=properties)
    commit = log.path / "_delta_log" / f"{DeltaTable(str(log.path)).version():020d}.json"
    commit.write_text(commit.read_text().replace('"num_added_rows":3', '"numOutputRows":"3"'))


def test_start_compares_the_table_with_what_is_known(log: DeltaLog) -> None:
    log.prepare(batch(0), Known(), frozenset())
    for number in range(2):
        put(log, number)
    log.prepare(batch(0), Known(1, 2), frozenset())
    for lost_or_ahead in (Known(2, 2), Known(0, 0), Known(None, None)):
        with pytest.raises(TableDiffers):
            log.prepare(batch(0), lost_or_ahead, frozenset())
        log.prepare(batch(0), lost_or_ahead, frozenset({TableDiffers.code}))
    with pytest.raises(TableOfAnotherQuery):
        log.prepare(batch(0, OTHER_QUERY), Known(), frozenset())
    log.prepare(batch(0, OTHER_QUERY), Known(), frozenset({TableOfAnotherQuery.code}))


def test_rows_of_a_batch_are_those_its_commit_names(log: DeltaLog) -> None:
    put(log, 0)
    write_deltalake(str(log.path), pa.table({"a": [1]}), mode="append")  # somebody else's
    assert log.rows_by_batch(QUERY) == {0: 3}
    assert (log.held(batch(0)), log.held(batch(1))) == (3, None)
    assert DeltaTable(str(log.path)).to_pyarrow_table().num_rows == 4
