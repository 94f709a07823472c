"""What `verify` finds in Kafka and among the dead letters that the ledger does not say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from tests.two_batches import DEAD, ENTRIES, IN_KAFKA, by, facts, without

from penstock.checkpoint.ledger import TopicFact, ViewCount
from penstock.record import OffsetRange
from penstock.verification import kafka as kafka_proof
from penstock.verification.kafka import Buried
from penstock.verification.renewed import Former
from penstock.verification.report import Report


def recounted(
    in_kafka: dict[int, set[int]], dead: dict[int, set[int]], expired: Iterable[OffsetRange] = ()
) -> list[tuple[object, ...]]:
    report = Report("payments", expired=list(expired))
    kafka_proof.same_as_read(ENTRIES, by(in_kafka), Buried(by(dead)), report)
    return facts(report)


def test_recount_of_a_healthy_pipeline_finds_nothing() -> None:
    assert recounted(IN_KAFKA, DEAD) == []


def test_record_that_kafka_no_longer_has_or_has_more_is_found_in_its_batch() -> None:
    assert recounted(without(IN_KAFKA, 12), DEAD) == [("not-as-read", 1, None, None, [])]
    assert recounted({**IN_KAFKA, 1: {5, 6}}, DEAD) == [("not-as-read", 0, None, None, [])]
    assert recounted({**IN_KAFKA, 0: set(range(20))}, DEAD) == [("not-as-read", 1, None, None, [])]


def test_dead_letter_that_is_missing_or_too_many_is_found_in_its_batch() -> None:
    assert recounted(IN_KAFKA, {}) == [("dead-letters-differ", 0, None, None, [])]
    assert recounted(IN_KAFKA, {0: {3, 17}}) == [("dead-letters-differ", 1, None, None, [])]


@pytest.mark.parametrize("partition", [0, 9], ids=["known partition", "partition that was never read"])
def test_dead_letter_of_no_record_is_invented(partition: int) -> None:
    assert recounted(IN_KAFKA, {**DEAD, partition: DEAD.get(partition, set()) | {99, 100}}) == [
        ("invented", None, "t", partition, [99, 100])
    ]


def test_batch_that_kafka_no_longer_holds_whole_is_not_judged_but_the_next_one_is() -> None:
    left = {**IN_KAFKA, 0: set(range(6, 20)) - {10}}
    expired = [OffsetRange("t", 0, 0, 6)]
    assert recounted(left, DEAD, expired) == []
    assert recounted(without(left, 12), DEAD, expired) == [("not-as-read", 1, None, None, [])]
    assert recounted(left, {0: {3, 10}}, expired) == [
        ("dead-letters-differ", 1, None, None, []),
        ("invented", None, "t", 0, [10]),
    ]


def test_records_missing_at_the_front_are_found_where_nothing_expired() -> None:
    assert recounted({**IN_KAFKA, 0: set(range(6, 20)) - {10}}, {}) == [
        ("not-as-read", 0, None, None, []),
        ("dead-letters-differ", 0, None, None, []),
    ]


def test_what_expired_in_one_partition_excuses_nothing_in_another() -> None:
    assert recounted({1: {5, 6, 7}}, {0: {3}, 1: {4}}, [OffsetRange("t", 0, 0, 20)]) == [
        ("invented", None, "t", 1, [4]),
    ]


@pytest.mark.parametrize(("compacted", "found"), [([], (1, 0)), (["t"], (0, 1))], ids=["markers", "gaps"])
def test_offsets_that_hold_no_record_are_counted(compacted: list[str], found: tuple[int, int]) -> None:
    """Offset 10 of partition 0 is none; what expired is not looked at."""
    report = Report("payments", compacted=compacted)
    kafka_proof.without_record(ENTRIES, by(IN_KAFKA), Former(), report)
    assert (report.markers, report.gaps) == found
    report = Report("payments", compacted=compacted, expired=[OffsetRange("t", 0, 0, 6)])
    kafka_proof.without_record(ENTRIES, by({**IN_KAFKA, 0: set(range(6, 20)) - {10}}), Former(), report)
    assert (report.markers, report.gaps) == found


def test_records_that_were_read_and_compacted_away_since_are_no_gaps() -> None:
    report, left = Report("payments", compacted=["t"]), by(without(IN_KAFKA, 12))
    kafka_proof.without_record(ENTRIES, left, Former(), report)
    kafka_proof.same_as_read(ENTRIES, left, Buried(by(DEAD)), report)
    assert (report.gaps, facts(report)) == (1, [])
    assert report.unproven == ["batch 1: 1 record compacted away since the read"]


def test_batches_of_a_topic_that_is_gone_are_not_recounted_and_those_of_the_new_one_are() -> None:
    """Both died on offset 3: two records, two letters, two batches."""
    topics = {"t": TopicFact("t", "id-2")}
    after = replace(
        ENTRIES[0], batch=3, ranges=[OffsetRange("t", 0, 0, 6)], topics=topics, views={"t": ViewCount(6, 5, 1)}
    )
    entries, former, now = [*ENTRIES, after], Former({"t": "id-2"}), by({0: set(range(6))})
    buried = Buried(by({0: {3}}), {(0, "t"): 1, (3, "t"): 1})
    report = Report("payments")
    kafka_proof.same_as_read(entries, now, buried, report, former)
    assert facts(report) == []
    kafka_proof.same_as_read(entries, by({0: set(range(5))}), replace(buried, by_batch={(0, "t"): 1}), report, former)
    assert facts(report) == [("not-as-read", 3, None, None, []), ("dead-letters-differ", 3, None, None, [])]


def test_what_was_read_of_a_topic_that_is_gone_is_taken_from_the_ledger_and_the_rest_is_proven() -> None:
    """Of the same batches: topic u is still there, and lacks a record."""
    more = [OffsetRange("u", 0, 0, 4)]
    first = replace(
        ENTRIES[0],
        ranges=[*ENTRIES[0].ranges, *more],
        topics={**ENTRIES[0].topics, "u": TopicFact("u", "id-u")},
        views={**ENTRIES[0].views, "u": ViewCount(4, 4, 0)},
    )
    entries = [first, ENTRIES[1]]
    former = Former.of(entries, {"u": "id-u", "other": "id-o"})
    assert former.gone == ["t"]
    assert former.present(first) == more
    buried = Buried(by(DEAD), {(0, "t"): 1})
    report = Report("payments")
    kafka_proof.same_as_read(entries, {("u", 0): np.arange(4)}, buried, report, former)
    assert facts(report) == []
    kafka_proof.same_as_read(entries, {("u", 0): np.arange(3)}, replace(buried, by_batch={}), report, former)
    assert facts(report) == [("dead-letters-differ", 0, None, None, []), ("not-as-read", 0, None, None, [])]
