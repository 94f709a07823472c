"""Which changes of a topic `apply` makes, which only with --force, which never."""

from __future__ import annotations

import pytest

from penstock.kafka.differences import of_topic, same

WEEK, DAY = "604800000", "86400000"


def fate(setting: str, found: str, spec: str, replication: int = 3) -> str:
    made = of_topic("t", {setting: spec}, {setting: found}, replication)
    return made[0].fate if made else "none"


@pytest.mark.parametrize(
    ("setting", "found", "spec", "expected"),
    [
        ("partitions", "2", "4", "change"),
        ("partitions", "4", "2", "impossible"),
        ("partitions", "4", "4", "none"),
        ("replication", "1", "3", "left"),
        ("replication", "3", "1", "left"),
        ("retention.ms", DAY, WEEK, "change"),
        ("retention.ms", WEEK, DAY, "force"),
        ("retention.ms", DAY, "-1", "change"),
        ("retention.ms", "-1", WEEK, "force"),
        ("retention.bytes", "-1", "1000000", "force"),
        ("retention.bytes", "1000", "1000000", "change"),
        ("retention.ms", "9223372036854775807", "9223372036854775806", "force"),
        ("cleanup.policy", "delete", "compact", "force"),
        ("cleanup.policy", "compact", "delete", "force"),
        ("cleanup.policy", "compact", "compact,delete", "force"),
        ("cleanup.policy", "compact,delete", "compact", "change"),
        ("cleanup.policy", "compact,delete", "delete, compact", "none"),
        ("min.insync.replicas", "2", "1", "force"),
        ("min.insync.replicas", "1", "2", "change"),
        ("min.insync.replicas", "1", "4", "force"),
        ("max.message.bytes", "2000", "1000", "force"),
        ("max.message.bytes", "1000", "2000", "change"),
        ("delete.retention.ms", WEEK, DAY, "force"),
        ("unclean.leader.election.enable", "false", "True", "force"),
        ("unclean.leader.election.enable", "true", "false", "change"),
        ("compression.type", "producer", "zstd", "change"),
        ("segment.ms", WEEK, DAY, "change"),
    ],
)
def test_change_that_loses_records_or_safety_needs_force(setting: str, found: str, spec: str, expected: str) -> None:
    assert fate(setting, found, spec) == expected


def test_every_change_that_is_not_simply_made_says_why() -> None:
    spec = {"partitions": "1", "replication": "2", "retention.ms": "5", "cleanup.policy": "compact"}
    found = {"partitions": "2", "replication": "1", "retention.ms": "6", "cleanup.policy": "delete", "segment.ms": "1"}
    made = of_topic("t", spec, found, 1)
    assert [each.setting for each in made] == list(spec)  # and nothing that the spec does not name
    assert all(each.effect for each in made)


@pytest.mark.parametrize(("copies", "told"), [(1, "there is 1 copy: "), (2, "there are 2 copies: ")])
def test_more_copies_in_sync_than_there_are_is_refused_by_old_versions_only(copies: int, told: str) -> None:
    [asks] = of_topic("t", {"min.insync.replicas": "3"}, {"min.insync.replicas": "1"}, copies)
    assert asks.effect == f"{told}Kafka 4 asks for no more than that, older ones refuse writes with acks=all"


def test_more_partitions_say_that_keys_move() -> None:
    [more] = of_topic("t", {"partitions": "4"}, {"partitions": "2"}, 1)
    assert "another partition" in more.effect


@pytest.mark.parametrize(
    ("found", "spec", "equal"),
    [("0.5", "0.50", True), ("TRUE", "true", True), ("a,b", "b, a", True), ("a", "b", False), ("10", "1e1", True)],
)
def test_what_kafka_takes_for_the_same_is_no_difference(found: str, spec: str, equal: bool) -> None:
    assert same(found, spec) is equal


def test_setting_that_kafka_does_not_know_is_a_mistake_that_names_the_one_it_was_to_be() -> None:
    known = {"retention.ms": "1", "retention.bytes": "-1"}
    [misspelled] = of_topic("t", {"retention.ms": "1", "retentin.ms": "1"}, known, 1)
    assert (misspelled.found, misspelled.fate) == ("not known to Kafka", "impossible")
    assert misspelled.effect == "topics have no such setting on these brokers (did you mean 'retention.ms'?)"
    [unlike] = of_topic("t", {"quux": "1"}, known, 1)
    assert (unlike.fate, unlike.effect) == ("impossible", "topics have no such setting on these brokers")
