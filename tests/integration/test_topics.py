"""`penstock apply`, `topics` and `groups` on one real broker, and on three of which one is killed and comes back."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.cluster_documents import APPLY, GROUPS, TOPICS, checked
from tests.doctor_score import named
from tests.payments import Payments, good
from tests.processes import penstock, running
from typer.testing import CliRunner

from penstock.cli.main import app, register
from penstock.errors import BadArgument, KafkaUnreachable, SpecInvalid, TopicMissing
from penstock.kafka import admin, connection, reshape
from penstock.local.broker import Cluster
from penstock.spec import topic_config
from penstock.spec.load import load
from penstock.spec.model import TopicSettings

Command = Callable[..., Any]


@pytest.fixture
def command() -> Command:
    """A command's JSON document, or with `text` what it prints on a terminal of that many columns."""
    register()

    def run(*words: object, expect: int = 0, text: int | None = None) -> Any:
        said = [str(word) for word in words] + ([] if text else ["--json"])
        columns = {"COLUMNS": str(text)} if text else None
        done = CliRunner().invoke(app, said, catch_exceptions=False, env=columns)
        assert done.exit_code == expect, done.output
        return done.stdout if text else json.loads(done.stdout)

    return run


def wants(payments: Payments, **settings: Any) -> Path:
    """The spec, with settings for its source topic."""
    payments.spec["kafka"]["topics"] = {payments.topic: settings}
    return payments.file


def config_of(payments: Payments, *keys: str) -> list[str]:
    found = admin.topic_configs(payments.config, [payments.topic])[payments.topic]
    return [found[key] for key in keys]


def shown(document: dict[str, Any], topic: str) -> dict[str, Any]:
    return next(each for each in document["topics"] if each["topic"] == topic)


def test_partitions_are_added_and_only_configuration_that_the_spec_names_is_changed(
    payments: Payments, command: Command
) -> None:
    command("apply", wants(payments, config={"segment.ms": 3_600_000}))
    before = admin.topics(payments.config)
    payments.spec["sinks"]["out"] = {"from": "settled", "kafka": {"topic": f"{payments.topic}.out"}}
    file = wants(payments, partitions=5, config={"retention.ms": 1_209_600_000, "cleanup.policy": "delete"})

    done = checked(command("apply", file), APPLY)
    topic = shown(done, payments.topic)
    assert (topic["created"], topic["partitions"], done["complete"]) == (False, 5, True)
    assert [(change["setting"], change["found"], change["spec"]) for change in topic["changed"]] == [
        ("partitions", "3", "5"),
        ("retention.ms", "604800000", "1209600000"),
    ]
    assert "another partition" in topic["changed"][0]["effect"]
    assert shown(done, f"{payments.topic}.out")["created"]
    assert config_of(payments, "segment.ms", "retention.ms") == ["3600000", "1209600000"]
    after = admin.topics(payments.config)
    assert after[payments.topic].topic_id == before[payments.topic].topic_id
    payments.send(good(1))  # whichever partition it is for

    again = checked(command("apply", file), APPLY)
    assert [(each["created"], each["changed"], each["left"]) for each in again["topics"]] == [(False, [], [])] * 3


def test_what_loses_records_or_safety_is_done_with_force_only(payments: Payments, command: Command) -> None:
    file = wants(
        payments, partitions=4, replication=2, config={"retention.ms": 86_400_000, "cleanup.policy": "compact"}
    )
    done = checked(command("apply", file, expect=1), APPLY)
    topic = shown(done, payments.topic)
    assert [(change["setting"], change["fate"]) for change in topic["left"]] == [
        ("replication", "left"),
        ("retention.ms", "force"),
        ("cleanup.policy", "force"),
    ]
    assert (topic["partitions"], done["complete"]) == (4, False)  # what is harmless was done
    assert config_of(payments, "retention.ms", "cleanup.policy") == ["604800000", "delete"]
    said = command("apply", file, expect=1, text=80)
    assert f"to change that too: penstock apply {file} --force" in said
    assert "kafka-reassign-partitions" in said

    forced = command("apply", file, "--force", expect=1)  # the copies are left all the same
    assert [change["setting"] for change in shown(forced, payments.topic)["left"]] == ["replication"]
    assert config_of(payments, "retention.ms", "cleanup.policy") == ["86400000", "compact"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partitions": 2, "config": {"segment.ms": 1000}}, "cannot have 2"),
        ({"partitions": 4, "config": {"no.such.setting": 1}}, "cannot have 'no.such.setting'"),
        ({"partitions": 4, "config": {"segment.ms": "soon"}}, "cannot be changed"),
    ],
)
def test_what_kafka_cannot_do_or_refuses_is_said_before_anything_is_changed(
    payments: Payments, settings: dict[str, Any], said: str
) -> None:
    payments.spec["dead_letters"] = {"kafka": {"topic": "{topic}.missing"}}
    before = admin.topics(payments.config)
    with pytest.raises(SpecInvalid) as refused:
        reshape.apply(payments.config, load(wants(payments, **settings)), force=True)
    assert said in refused.value.what
    assert "nothing was changed" in str(refused.value.cause)
    assert admin.topics(payments.config) == before
    assert config_of(payments, "segment.ms") == ["604800000"]


def test_setting_that_the_broker_does_not_know_is_refused_for_topics_there_and_missing(payments: Payments) -> None:
    wants(payments, config={"log.retention.hours": 1, "segment.ms": 604_800_000})
    missing = f"{payments.topic}.missing"
    payments.spec["kafka"]["topics"][missing] = {"config": {"compression.level": 9, "cleanup.policy": "compact"}}
    there, absent = reshape.compare(payments.config, load(payments.file), admin.topics(payments.config))
    assert (there.topic, there.setting, there.fate) == (payments.topic, "log.retention.hours", "impossible")
    assert (absent.topic, absent.setting, absent.fate) == (missing, "compression.level", "impossible")
    assert "did you mean 'compression." in absent.effect
    with pytest.raises(SpecInvalid, match=r"cannot have 'log\.retention\.hours'.* cannot have 'compression\.level'"):
        reshape.apply(payments.config, load(payments.file))
    assert missing not in admin.topics(payments.config)
    # Only one topic is given settings, and it is missing: any other tells which there are.
    payments.spec["kafka"]["topics"] = {missing: payments.spec["kafka"]["topics"][missing]}
    assert reshape.compare(payments.config, load(payments.file), admin.topics(payments.config)) == [absent]


def test_topic_settings_that_check_knows_are_those_of_the_broker(payments: Payments) -> None:
    assert sorted(topic_config.KNOWN) == sorted(admin.topic_configs(payments.config, [payments.topic])[payments.topic])


def test_topics_of_a_spec_of_a_cluster_and_by_name(payments: Payments, command: Command) -> None:
    payments.send(*(good(n) for n in range(5)), key=b"one partition")
    payments.spec["dead_letters"] = {"kafka": {"topic": "{topic}.missing"}}
    found = checked(command("topics", payments.file), TOPICS)
    [topic] = found["topics"]
    assert (topic["topic"], topic["replication"], topic["offsets"]) == (payments.topic, 1, 5)
    assert sorted((p["first"], p["end"]) for p in topic["partitions"]) == [(0, 0), (0, 0), (0, 5)]
    assert {(p["leader"], *p["replicas"], *p["in_sync"]) for p in topic["partitions"]} == {(1, 1, 1)}
    assert (topic["retention_ms"], topic["retention_bytes"], topic["cleanup_policy"]) == (604_800_000, -1, "delete")
    assert (found["missing"], found["under_replicated"], found["offline"]) == ([f"{payments.topic}.missing"], 0, 0)

    every = checked(command("topics", "--bootstrap", payments.bootstrap), TOPICS)
    assert {payments.topic, f"{payments.topic}.DLT"} <= {each["topic"] for each in every["topics"]}
    assert not any(each["internal"] for each in every["topics"])
    named = command("topics", payments.file, f"{payments.topic}.*")
    assert [each["topic"] for each in named["topics"]] == [f"{payments.topic}.DLT"]
    assert "all in sync; brokers 1" in command("topics", payments.file, text=120)
    assert max(map(len, command("topics", "--bootstrap", payments.bootstrap, text=80).splitlines())) <= 80
    with pytest.raises(TopicMissing):
        command("topics", payments.file, "no-such-topic")
    assert "no-such-topic" not in admin.topics(payments.config)


def committed(payments: Payments, group: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": payments.bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(payments.topic, int(p.removeprefix("p")), offset) for p, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_groups_say_their_members_and_how_far_they_are_behind(payments: Payments, command: Command) -> None:
    for partition in range(3):
        producer = connection.producer(payments.config)
        for n in range(10):
            producer.produce(payments.topic, good(n), partition=partition)
        assert producer.flush(30) == 0
    name = f"reader-{uuid.uuid4().hex[:8]}"
    committed(payments, name, p0=4, p1=10)
    committed(payments, f"penstock.payments.{name}.dead-letters", p0=3)
    committed(payments, f"{name}.elsewhere", p2=1)
    found = checked(command("groups", payments.file), GROUPS)
    mine = {each["group"]: each for each in found["groups"]}
    assert mine[name]["lag"] == 6
    assert [(p["partition"], p["committed"], p["end"], p["lag"]) for p in mine[name]["partitions"]] == [
        (0, 4, 10, 6),
        (1, 10, 10, 0),
    ]
    books = mine[f"penstock.payments.{name}.dead-letters"]
    assert (books["kind"], books["lag"], books["partitions"][0]["lag"]) == ("ledger", None, None)
    assert mine[name]["state"] == "empty"

    consumer = Consumer({"bootstrap.servers": payments.bootstrap, "group.id": name, "client.id": "looker"})
    consumer.subscribe([payments.topic])
    until = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < until:
        consumer.poll(0.2)
    [joined] = checked(command("groups", "--bootstrap", payments.bootstrap, name), GROUPS)["groups"]
    consumer.close()
    assert (joined["state"], [member["client"] for member in joined["members"]]) == ("stable", ["looker"])
    assert [(p["partition"], p["committed"]) for p in joined["partitions"]] == [(0, 4), (1, 10), (2, None)]
    assert {p["member"] for p in joined["partitions"]} == {joined["members"][0]["member"]}
    assert f"{name}: " in command("groups", payments.file, name, "--all", text=80)
    with pytest.raises(BadArgument):
        command("groups", payments.file, "no-such-group")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("three"), brokers=3)) as cluster:
        yield cluster
    assert [server.state for server in cluster.status()] == ["down", "down", "down"]


def one_two_three(payments: Payments, topic: str) -> None:
    """One record into the first partition, two into the second, three into the third."""
    producer = connection.producer(payments.config)
    for partition in range(3):
        for n in range(partition + 1):
            producer.produce(topic, good(n), partition=partition)
    assert producer.flush(30) == 0


def lag_is_that_of_partitions_that_answer(found: dict[str, Any], most: int) -> None:
    answer = [each for each in found["partitions"] if each["state"] is None]
    assert found["lag"] == sum(each["end"] for each in answer) <= most
    assert found["complete"] is (len(answer) == len(found["partitions"]))
    assert all(each["end"] is None and each["lag"] is None for each in found["partitions"] if each["state"])


def part_of_a_topic_is_offline(payments: Payments, topic: str, off: int, command: Command) -> None:
    """What lag, doctor and tail say of a pipeline that reads it, and has not run yet."""
    read = payments.spec["source"]["topics"]
    payments.spec["source"]["topics"] = {topic: read[payments.topic]}
    rest = [each for each in range(3) if each != off]
    found = command("lag", payments.file)
    assert (found["complete"], found["lag"]) == (False, sum(each + 1 for each in rest))
    assert [each["state"] for each in found["partitions"]] == ["offline" if p == off else None for p in range(3)]
    said = command("doctor", payments.file, expect=2)["findings"]
    named(["partition-offline", "never-ran"], (finding["cause"] for finding in said))
    lines = command("tail", payments.file, text=80).splitlines()
    assert sorted(int(line.partition(":")[0]) for line in lines) == sorted(p for p in rest for _ in range(p + 1))
    with pytest.raises(KafkaUnreachable, match=f"{topic}-{off} cannot be read"):
        command("tail", payments.file, "--partition", off, text=80)
    payments.spec["source"]["topics"] = read


def test_of_three_brokers_one_is_killed_and_the_commands_show_it(
    brokers: Cluster, tmp_path: Path, command: Command
) -> None:
    payments = Payments(brokers.bootstrap, tmp_path, replication=3)
    alone = f"{payments.topic}.alone"  # one copy of each partition, on each broker one
    admin.create_missing(payments.config, {alone: TopicSettings(partitions=3)})
    file = wants(payments, partitions=6, config={"min.insync.replicas": 2})
    payments.send(*(good(n) for n in range(20)))
    one_two_three(payments, alone)
    whole = checked(command("topics", "--bootstrap", brokers.bootstrap), TOPICS)
    assert (whole["brokers"], whole["under_replicated"], whole["offline"]) == ([1, 2, 3], 0, 0)
    assert shown(whole, payments.topic)["offsets"] == 20

    brokers.kill(2)
    hurt = checked(command("topics", file), TOPICS)  # nobody has noticed yet: what can be said is said
    assert [each["topic"] for each in hurt["topics"]] == [payments.topic, f"{payments.topic}.DLT"]
    for each in hurt["topics"]:
        unknown = [p["partition"] for p in each["partitions"] if p["offsets"] is None]
        assert unknown == each["silent"] + each["offline"]
    lag_is_that_of_partitions_that_answer(command("lag", file), most=20)
    checked(command("groups", file), GROUPS)
    until = time.monotonic() + 60
    while hurt["under_replicated"] < 4 and time.monotonic() < until:  # the controller notices after nine seconds
        time.sleep(0.5)
        hurt = checked(command("topics", "--bootstrap", brokers.bootstrap), TOPICS)
    topic, lonely = shown(hurt, payments.topic), shown(hurt, alone)
    assert hurt["brokers"] == [1, 3]
    assert topic["under_replicated"] == [0, 1, 2]
    assert [each["in_sync"] for each in topic["partitions"]] == [[1, 3]] * 3
    assert {each["leader"] for each in topic["partitions"]} <= {1, 3}
    assert (topic["offsets"], topic["read_only"], topic["offline"]) == (20, [], [])
    assert [each["partition"] for each in lonely["partitions"] if each["leader"] is None] == lonely["offline"]
    assert len(lonely["offline"]) == 1
    assert lonely["offsets"] is None
    for width in (80, 120):
        said = command("topics", file, alone, payments.topic, text=width)
        assert max(map(len, said.splitlines())) <= width
        assert said.count("under-replicated") == 4
        assert "offline" in said

    [off] = lonely["offline"]
    part_of_a_topic_is_offline(payments, alone, off, command)
    file = payments.file

    done = checked(command("apply", file), APPLY)  # with the two that are left
    assert shown(done, payments.topic)["partitions"] == 6
    assert len(command("tail", file, "--last", "20", text=80).splitlines()) == 20
    committed(payments, "reader", p0=0)
    [group] = checked(command("groups", file), GROUPS)["groups"]
    assert group["lag"] == topic["partitions"][0]["end"]

    payments.send(good(20))  # acknowledged by two of three
    the_third_comes_back(brokers)
    assert len(command("tail", file, "--last", "30", text=80).splitlines()) == 21


def the_third_comes_back(brokers: Cluster) -> None:
    """`up` on a cluster that is half there starts the missing half, where it was; `ps` says what there is."""
    said, _ = penstock("ps", "--json", directory=brokers.directory).communicate(timeout=60)
    assert [server["state"] for server in json.loads(said)["servers"]] == ["up", "down", "up"]
    brokers.pause(3)
    assert [server.state for server in brokers.status()] == ["up", "down", "paused"]
    brokers.resume(3)
    bootstrap = brokers.bootstrap
    assert len(bootstrap.split(",")) == 3
    assert brokers.up() == bootstrap
    assert [server.state for server in brokers.status()] == ["up", "up", "up"]
