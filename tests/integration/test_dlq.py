"""Q4 and Q5 on the real stack: looking at dead letters, and replaying them."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake
from jsonschema import Draft202012Validator
from tests import letter_documents as schemas
from tests.commands import document, penstock
from tests.committed import committed
from tests.payments import Payments, good

from penstock.batch.source_view import RAW
from penstock.cli.letter_text import moment
from penstock.deadletters import browse, replays
from penstock.deadletters import choice as replay_choice
from penstock.deadletters.as_line import from_line
from penstock.deadletters.browse import Wanted
from penstock.deadletters.dead_letter import DeadLetter
from penstock.errors import BadArgument, LedgerMissing
from penstock.kafka import connection
from penstock.lifecycle.replay import run as replay
from penstock.lifecycle.replay.raw import raw
from penstock.observe.events import EventLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
# Kafka removes records that are older than the topic keeps them, by the time they say: an hour ago is safe.
THEN = (round(time.time()) // 60 - 60) * 60_000
STRANGE = b'{"payment_id": "\xff\x00 not text"'
HEADERS = [("trace", b"\x00\xff"), ("trace", None)]


def put(payments: Payments, value: bytes | None, partition: int = 0, at_ms: int = THEN, **more: Any) -> None:
    producer = connection.producer(payments.config)
    producer.produce(payments.topic, value, partition=partition, timestamp=at_ms, **more)
    assert producer.flush(10) == 0


def states(payments: Payments) -> Counter[tuple[str, int]]:
    return Counter((each.state, len(each.deaths)) for each in browse.gather(payments.pipeline))


def complete(payments: Payments) -> None:
    report = payments.verify()
    assert report.complete, report.findings
    assert report.unproven == []


def test_letters_are_listed_shown_counted_and_exported_byte_for_byte(payments: Payments) -> None:
    put(payments, STRANGE, 0, key=b"\xfe", headers=HEADERS)
    put(payments, good(1, amount=-5), 1, THEN + 1000)
    put(payments, good(2, amount="much"), 1, THEN + 2000)
    put(payments, None, 2, THEN + 3000)
    put(payments, good(3), 2)
    payments.run()
    file, topic = str(payments.file), payments.topic

    found = document("dlq", "ls", file, schema=schemas.LS)
    assert [each["id"] for each in found["letters"]] == [f"{topic}:{at}" for at in ("0:0", "1:0", "1:1", "2:0")]
    assert found["letters"][1]["reason"] == "positive: not true: amount > 0; amount = -5.00"
    for words, ends in (
        (("--class", "wrong-type"), ["1:1"]),
        (("--stage", "contract"), ["1:0"]),
        (("--reason", "not true"), ["1:0"]),
        (("--since", moment(THEN + 1000), "--until", moment(THEN + 3000)), ["1:0", "1:1"]),
        (("--topic", "another"), []),
        (("--limit", "1"), ["0:0"]),
    ):
        some = document("dlq", "ls", file, *words, schema=schemas.LS)
        assert [each["id"] for each in some["letters"]] == [f"{topic}:{end}" for end in ends], words
    [letter] = document("dlq", "show", file, f"{topic}:0:0", schema=schemas.SHOW)["letters"]
    assert (base64.b64decode(letter["key"]), base64.b64decode(letter["value"])) == (b"\xfe", STRANGE)
    assert letter["headers"] == [["trace", "AP8="], ["trace", None]]
    assert [(death["by"], death["class"]) for death in letter["history"]] == [("stream", "malformed")]
    assert letter["history"][0]["died"]
    _on_a_terminal(payments)

    stats = document("dlq", "stats", file, schema=schemas.STATS)
    assert (stats["total"], stats["replayed"], len(stats["groups"])) == (4, 0, 4)

    assert _exported(payments) == 4


def _exported(payments: Payments) -> int:
    """How many letters there are, byte for byte."""
    out = payments.directory / "out.jsonl"
    done = document("dlq", "export", payments.file, "--to", out, schema=schemas.EXPORT)
    lines = out.read_text().splitlines()
    assert done == {"exported": len(lines), "to": str(out)}
    for line in lines:
        Draft202012Validator(schemas.EXPORTED_LINE).validate(json.loads(line))
    by_place = {each.position: each for each in map(from_line, lines)}
    assert by_place == {each.position: each for each in payments.dead()}
    [strange] = [each for each in by_place.values() if each.value == STRANGE]
    assert (strange.key, strange.headers) == (b"\xfe", HEADERS)
    return len(lines)


def _on_a_terminal(payments: Payments) -> None:
    """Once as a process of its own."""
    file, topic = str(payments.file), payments.topic
    place, why = f"{topic}:1:0  {moment(THEN + 1000)}  broken-rule", "positive: not true: amount > 0; amount = -5.00"
    narrow = payments.cli("dlq", "ls", file, COLUMNS="80").stdout.splitlines()
    assert (narrow[0], narrow[3:5]) == ("4 dead letters", [place, f"    {why}"])
    assert max(map(len, narrow)) <= 80
    assert f"{place}  {why}" in penstock("dlq", "ls", file, COLUMNS="120").stdout.splitlines()
    text = penstock("dlq", "show", file, f"{topic}:0:0", COLUMNS="80").stdout
    assert "  key      fe (1 byte)\n" in text
    assert STRANGE.hex(" ")[:40] in text
    assert penstock("dlq", "show", file, f"{topic}:9:9", expect=2).stderr.startswith("error[bad-argument]")


@pytest.mark.parametrize("store", ["kafka", "delta"])
def test_replay_brings_letters_home_once_and_what_dies_again_keeps_its_history(payments: Payments, store: str) -> None:
    if store == "delta":
        payments.spec["dead_letters"] = {"delta": {"path": "dead"}}
    for number in range(6):
        put(payments, good(number, amount=-number if number % 2 else 7), number % 3, key=b"k", headers=[("h", b"1")])
    put(payments, STRANGE, 0, key=b"\xfe", headers=HEADERS)
    payments.run()
    if store == "delta":
        assert _exported(payments) == 4
    assert payments.ids() == ["p-0", "p-2", "p-4"]
    payments.spec["contract"]["payments"] = [{"name": "small", "rule": "amount > -4"}]
    file = str(payments.file)

    tried = document("dlq", "replay", file, schema=schemas.DRY_RUN)
    assert (tried["letters"], tried["would_pass"], tried["would_die_again"]) == (4, 2, 2)
    assert tried["rows"] == {"lake": 2}
    assert sorted(each["class"] for each in tried["reasons"]) == ["broken-rule", "malformed"]
    text = penstock("dlq", "replay", file, "--class", "broken-rule").stdout
    assert text.endswith(f"to do it:\n  penstock dlq replay {file} --class broken-rule --apply\n")
    assert len(payments.rows()) == 3
    assert replays.found(payments.pipeline) == []

    done = document("dlq", "replay", file, "--apply", schema=schemas.REPLAY)
    assert (done["replay"], done["letters"], done["passed"], done["dead_again"]) == ("1", 4, 2, 2)
    assert done["written"] == {"lake": 2}
    assert payments.ids() == ["p-0", "p-1", "p-2", "p-3", "p-4"]
    assert set(payments.places().values()) == {1}  # rows still say which record they were
    assert states(payments) == {("replayed", 1): 2, ("dead", 2): 2}
    complete(payments)
    listed = document("dlq", "ls", file, schema=schemas.LS)
    assert (listed["total"], listed["replayed_hidden"]) == (2, 2)
    assert len(document("dlq", "ls", file, "--all", schema=schemas.LS)["letters"]) == 4
    assert "[died 2 times]" in penstock("dlq", "ls", file).stdout
    if store == "kafka":  # once is enough for each of these
        _replayed_again(payments, file)
    else:
        _tampering_is_found(payments)


def _replayed_again(payments: Payments, file: str) -> None:
    """Only what is dead is taken, and nothing comes twice."""
    once, more = (document("dlq", "replay", file, "--limit", "1", "--apply", schema=schemas.REPLAY) for _ in range(2))
    assert [(each["replay"], each["letters"], each["dead_again"]) for each in (once, more)] == [
        ("2", 1, 1),
        ("3", 1, 1),
    ]
    assert more["left_out"] == {
        "a replay has brought them home already": 2,
        "over the limit of one replay: the same command takes them next": 1,
    }
    assert states(payments) == {("replayed", 1): 2, ("dead", 3): 2}  # and so it did: each has had its turn
    payments.spec["contract"] = {}
    broken = replay.run(payments.pipeline, Wanted(error_class="broken-rule"))[0]
    assert broken is not None
    assert (broken.letters, broken.passed) == (1, 1)
    assert payments.ids() == [f"p-{n}" for n in range(6)]
    assert replay.run(payments.pipeline, Wanted(error_class="broken-rule"))[0] is None
    assert "nothing to replay" in penstock("dlq", "replay", file, "--stage", "contract", "--apply").stdout
    [malformed] = [each for each in browse.gather(payments.pipeline) if each.state == "dead"]
    assert [death.by for death in malformed.deaths] == ["stream", "replay 1", "replay 2"]
    raw = [each for each in payments.dead() if each.position == malformed.key[:3]]
    assert {(each.key, each.value, each.timestamp_ms) for each in raw} == {(b"\xfe", STRANGE, THEN)}
    complete(payments)
    assert payments.verify().replayed == 3
    told = [
        (event.facts["name"], event.facts["state"]) for event in EventLog(payments.home / "events").read(["replay"])
    ]
    assert told == [(name, state) for name in "1234" for state in ("began", "done")]
    payments.spec["contract"] = {"payments": [{"name": "positive", "rule": "amount > 0"}]}
    payments.send(good(9), good(10, amount=-1, status="VOID"))
    payments.run()  # the stream goes on as if nothing had been
    complete(payments)
    payments.spec["contract"] = {}
    text = penstock("dlq", "replay", str(payments.file), "--class", "broken-rule", "--apply").stdout
    assert "       1  passed: 0 rows to lake (1 left out before it)\n" in text
    books = payments.verify()
    assert (books.dropped_in_replays, books.left_out_in_replays) == ({}, {"lake": 1})
    gone = (books.dropped, books.left_out, books.left_out_in_replays)
    not_there = sum(sum(by_name.values()) for by_name in gone)
    assert books.records == books.sinks["lake"] + books.dead - books.replayed + not_there


def _tampering_is_found(payments: Payments) -> None:
    """A replayed row that is there twice, and one that was removed."""
    lake = DeltaTable(str(payments.directory / "lake"))
    write_deltalake(lake, lake.to_pyarrow_table(filters=[("payment_id", "=", "p-3")]), mode="append")
    assert [f.kind for f in payments.verify().findings] == ["duplicate"]
    lake.update_incremental()
    lake.delete("payment_id = 'p-3'")
    differs, lost = payments.verify().findings
    assert (differs.kind, differs.text[:20], lost.kind) == ("sink-differs", "batch 0 of replay 1:", "lost")


def test_record_that_one_sink_refused_goes_to_that_sink_only_and_never_twice_into_one_that_holds_it(
    payments: Payments,
) -> None:
    payments.spec["transform"] = [
        {"view": "settled", "sql": "select * from payments"},
        {"view": "keyed", "sql": "select payment_id, merchant.name as merchant, _kafka from payments"},
    ]
    payments.spec["sinks"] = {
        "lake": {"from": "settled", "delta": {"path": "lake"}},
        "state": {"from": "keyed", "delta": {"path": "state", "upsert": {"key": ["merchant"]}}},
    }
    named = {"merchant": {"name": "m"}}
    payments.send(good(1, amount=5), good(2, **named), b"{", good(3, amount=-5, merchant={"name": "n"}))
    payments.run()
    assert payments.ids() == ["p-1", "p-2"]
    by_stage = {each.stage: each.sinks for each in payments.dead()}
    assert by_stage == {"sink": "state", "decode": None, "contract": None}

    payments.spec["transform"][1]["sql"] = (
        "select payment_id, coalesce(merchant.name, '') as merchant, _kafka from payments"
    )
    payments.spec["contract"] = {}
    # Fails on the first and the third. `lake` holds the first: it must not die for it, or the next replay would write
    # it there a second time.
    payments.spec["sinks"]["lake"]["where"] = "1 / (abs(amount) - 5) <> 0"
    trial = document("dlq", "replay", payments.file, schema=schemas.DRY_RUN)
    assert (trial["would_die_again"], trial["rows"]) == (2, {"lake": 0, "state": 2})
    [warning] = trial["warnings"]
    assert "without `order_by`" in warning
    outcome, _ = replay.run(payments.pipeline, Wanted())
    assert outcome is not None
    assert (outcome.passed, outcome.dead_again) == (1, 2)
    again = [each.sinks for each in payments.dead() if each.query.startswith("replay-")]
    assert sorted(again, key=str) == [None, "lake"]
    del payments.spec["sinks"]["lake"]["where"]
    outcome, _ = replay.run(payments.pipeline, Wanted())
    assert outcome is not None
    assert (outcome.passed, outcome.dead_again) == (1, 1)
    assert payments.ids() == ["p-1", "p-2", "p-3"]
    state = DeltaTable(str(payments.directory / "state")).to_pyarrow_table().to_pylist()
    assert {row["merchant"] for row in state} == {"m", "", "n"}
    complete(payments)

    # Without their directory nobody knows what replays have done: letters are taken by id only.
    shutil.rmtree(payments.home / "replay")
    with pytest.raises(LedgerMissing, match="2 replays are gone"):
        replay_choice.choose(payments.pipeline, Wanted())
    topic, partition, offset = next(each.position for each in payments.dead() if each.stage == "decode")
    assert len(replay_choice.choose(payments.pipeline, Wanted(ids=(f"{topic}:{partition}:{offset}",))).letters) == 1


@pytest.mark.parametrize("way", ["exactly-once-by-partition", "one pass"])
def test_replay_into_kafka_sends_letters_between_gaps_once(payments: Payments, way: str) -> None:
    out = f"{payments.topic}-out"
    payments.create(out, 2)
    kafka = {"topic": out, "origin": True, "guarantee": way if way != "one pass" else "exactly-once-by-partition"}
    payments.spec["sinks"] = {"out": {"from": "payments" if way == "one pass" else "settled", "kafka": kafka}}
    if way == "one pass":
        payments.spec["transform"] = []
    payments.send(*(good(n, amount=-1 if n % 7 == 3 else 1) for n in range(60)), b"{")
    payments.run()
    payments.spec["contract"] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replays, "LETTERS_PER_BATCH", 4)
        outcome, _ = replay.run(payments.pipeline, Wanted())
    assert outcome is not None
    assert (outcome.letters, outcome.passed, outcome.dead_again) == (10, 9, 1)
    seen = Counter(each.origin for each in committed(payments.bootstrap, out))
    assert (len(seen), set(seen.values())) == (60, {1})
    assert states(payments) == {("replayed", 1): 9, ("dead", 2): 1}
    complete(payments)


def test_replay_that_fails_half_way_goes_on_with_the_same_command_and_others_leave_its_letters(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.send(*(good(n, amount=-1) for n in range(9)))
    payments.run()
    payments.spec["contract"] = {}
    monkeypatch.setattr(replays, "LETTERS_PER_BATCH", 3)
    commit, calls = replays.Replay.commit, []

    def fails(self: replays.Replay, batch: int) -> None:
        if batch == 1:
            calls.append(batch)
            raise OSError("the disk is full")
        commit(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(replays.Replay, "commit", fails)
        with pytest.raises(OSError, match="full"):
            replay.run(payments.pipeline, Wanted(stage="contract"))
    assert calls == [1]
    report = payments.verify()
    assert (report.findings, len(report.unproven)) == ([], 1), report
    assert Counter(each.state for each in browse.gather(payments.pipeline)) == {"replayed": 3, "replaying": 6}
    other = replay_choice.choose(payments.pipeline, Wanted())
    assert (other.letters, other.goes_on) == ([], None)
    assert sorted(other.left_out.values()) == [3, 6]
    assert len(replay_choice.choose(payments.pipeline, Wanted(stage="contract")).letters) == 6
    with pytest.raises(BadArgument, match="other letters"):
        replay_choice.choose(payments.pipeline, Wanted(stage="decode"), "1")
    outcome, _ = replay.run(payments.pipeline, Wanted(stage="contract"))
    assert outcome is not None
    assert (outcome.name, outcome.letters, outcome.passed) == ("1", 9, 9)
    assert (len(payments.rows()), set(payments.places().values())) == (9, {1})
    complete(payments)


def test_letters_are_replayed_by_id_and_from_their_own_bytes_when_the_topic_is_gone(payments: Payments) -> None:
    for number in range(3):
        put(payments, good(number, amount=-1), 0)
    payments.run()
    client = connection.admin(payments.config)
    client.delete_topics([payments.topic])[payments.topic].result(10)
    payments.spec["contract"] = {}
    chosen = (f"{payments.topic}:0:1", f"{payments.topic}:0:2")
    with pytest.raises(BadArgument, match=f"there is no dead letter '{payments.topic}:0:77'"):
        replay.run(payments.pipeline, Wanted(ids=(*chosen, f"{payments.topic}:0:77")), "by-id")
    assert replay_choice.choose(payments.pipeline, Wanted(stage="decode", ids=chosen)).left_out == {
        "no letter to take by the other options": 2
    }
    outcome, choice = replay.run(payments.pipeline, Wanted(ids=chosen[:1]), "by-id")
    assert outcome is not None
    assert (outcome.name, outcome.passed) == ("by-id", 1)
    assert choice.left_out == {}
    assert payments.ids() == ["p-1"]


def test_letter_with_a_time_that_is_no_date_is_a_raw_record_again(spark: SparkSession) -> None:
    """Microseconds, by a producer that took them for milliseconds."""
    times = [1_700_000_000_000_000, 1_793_527_200_001, 0]
    about = ("decode", "malformed", "", "p", "q", 0)
    letters = [DeadLetter(b"k", None, [], "t", 0, n, time, 0, *about) for n, time in enumerate(times)]
    rows = raw(spark, letters)
    assert rows.schema == spark.createDataFrame([], RAW).schema
    found = rows.selectExpr("offset", "unix_millis(timestamp) AS ms", "headers").collect()
    assert [tuple(row) for row in found] == [(n, time, None) for n, time in enumerate(times)]
