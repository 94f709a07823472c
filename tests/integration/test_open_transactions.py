"""A transaction that a killed process leaves open. What it holds is not waited for where something else says enough;
where it is waited for, it is named. No engine runs here: the process that dies holds a producer and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.payments import Payments

from penstock.deadletters.store import dead_letters
from penstock.errors import PenstockError, TableDiffers, TableOfAnotherQuery, TransactionOpen
from penstock.kafka import transaction
from penstock.kafka.transaction import Mark, Owner
from penstock.plan import build
from penstock.record import Batch, Known

_AT_ONCE_S = 10.0  # the client alone waits for 30


def killed(payments: Payments, name: str, group: str, marked: str, topic: str, commits: int) -> None:
    """A process that writes to `topic` under these names, and is killed between an offset of `marked` and its commit;
    some transactions before that it has committed."""
    args = (payments.config, name, group, marked, topic, commits)
    process = multiprocessing.get_context("spawn").Process(target=_write, args=args)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def _write(config: dict[str, str], name: str, group: str, marked: str, topic: str, commits: int) -> None:
    owner = Owner.take(config, name, group, timedelta(minutes=10))
    for number in range(commits + 1):
        owner.begin()
        owner.producer.produce(topic, b"{}")
        assert owner.producer.flush(20) == 0
        owner.mark({(marked, 0): Mark(number + 1, "{}")})
        if number < commits:
            owner.commit()
    os.kill(os.getpid(), signal.SIGKILL)


def raised_at_once(attempt: Callable[[], object]) -> PenstockError:
    began = time.monotonic()
    with pytest.raises(PenstockError) as raised:
        attempt()
    assert time.monotonic() - began < _AT_ONCE_S
    return raised.value


@pytest.mark.parametrize("by", [".batches", ""])
def test_a_new_checkpoint_is_told_at_once_what_another_one_has_committed_and_what_it_left_open(
    payments: Payments, by: str
) -> None:
    payments.create(out := f"{payments.topic}-out")
    to = {"topic": out, "transaction_timeout": "10m"}
    payments.spec.update(name=payments.topic, sinks={"out": {"from": "settled", "kafka": to}})
    [outlet] = build.outlets(payments.pipeline)
    group = f"penstock.{payments.topic}.old.out{by}"
    name = group if by else f"{group}.{payments.topic}.0"

    def start() -> None:
        outlet.sink.prepare(Batch(payments.topic, "", 0), Known(), frozenset())

    killed(payments, name, group, payments.topic, out, commits=0)
    first = raised_at_once(start)
    assert (type(first), first.facts) == (TransactionOpen, {"transactions": [name]})
    assert f"open transaction {name}; " in str(first.cause)
    assert "10 min after it began" in str(first.cause)
    killed(payments, name, group, payments.topic, out, commits=1)
    second = raised_at_once(start)
    assert (type(second), second.facts) == (TableOfAnotherQuery, {"transactions": [name]})
    assert f"open transaction {name} " in str(second.cause)
    Owner.take(payments.config, name, group)  # as the next start under the old checkpoint does
    third = raised_at_once(start)
    assert (type(third), third.facts) == (TableOfAnotherQuery, {})


def test_dead_letters_that_were_left_open_keep_no_start_waiting_and_older_ones_are_still_compared(
    payments: Payments,
) -> None:
    topic, letters = f"{payments.topic}.DLT", dead_letters(payments.pipeline)
    name = f"penstock.payments.{payments.topic}.dead-letters"
    batch = Batch("payments", payments.topic, 0)
    killed(payments, name, name, topic, topic, commits=2)
    began = time.monotonic()
    letters.prepare(batch, Known(None, 2), frozenset())
    assert time.monotonic() - began < _AT_ONCE_S
    ahead = raised_at_once(lambda: letters.prepare(batch, Known(None, 0), frozenset()))
    assert type(ahead) is TableDiffers


def test_what_waits_for_an_offset_in_an_open_transaction_names_it(payments: Payments) -> None:
    topic, name = f"{payments.topic}.DLT", f"{payments.topic}-elsewhere"
    killed(payments, name, name, payments.topic, topic, commits=0)
    places = [(payments.topic, 0), (payments.topic, 1)]
    error = raised_at_once(lambda: transaction.marks(payments.config, name, places, within_s=2))
    assert type(error) is TransactionOpen
    assert f"the offset of {payments.topic}-0 is part of it" in str(error.cause)
    assert transaction.marks(payments.config, name, places, stable=False) == {}


@pytest.mark.usefixtures("spark")
def test_a_start_beside_an_open_transaction_goes_on_and_verify_says_what_hides_its_rows(payments: Payments) -> None:
    payments.create(out := f"{payments.topic}-out")
    payments.spec.update(
        name=payments.topic,
        sinks={"out": {"from": "settled", "kafka": {"topic": out, "origin": True}}},
    )
    name = f"penstock.{payments.topic}.old.out.batches"
    killed(payments, name, name, payments.topic, out, commits=0)
    payments.put(1, 0)
    payments.run(accept=[TableOfAnotherQuery.code])
    hidden = payments.verify()
    assert {finding.kind for finding in hidden.findings} == {"lost", "sink-differs"}
    assert f"an open transaction hides 3 offsets of {out}-0, from 0 on" in "".join(hidden.unproven)
    Owner.take(payments.config, name, name)
    shown = payments.verify()
    assert (shown.findings, shown.unproven) == ([], [])
