"""`verify` where there is no ledger to prove: it says which one could be meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.two_batches import ENTRIES, PIPELINE

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.errors import LedgerMissing
from penstock.verification.verify import verify


def test_after_a_backfill_alone_its_own_proof_is_advised(tmp_path: Path) -> None:
    pipeline = PIPELINE.model_copy(update={"checkpoint": str(tmp_path)})
    with pytest.raises(LedgerMissing) as nothing:
        verify(pipeline)
    assert "penstock run FILE" in str(nothing.value.next_command)
    with pytest.raises(LedgerMissing) as nothing:
        verify(pipeline, "monday")
    assert nothing.value.cause == "no backfill has run yet"

    ledger = Home.of(pipeline).backfill("monday").ledger
    ledger.mkdir(parents=True)
    Ledger(ledger).append(ENTRIES[0])
    with pytest.raises(LedgerMissing) as nothing:
        verify(pipeline)
    assert nothing.value.next_command == "penstock verify FILE --backfill monday"
    with pytest.raises(LedgerMissing) as nothing:
        verify(pipeline, "tuesday")
    assert nothing.value.next_command == "penstock verify FILE --backfill monday"
