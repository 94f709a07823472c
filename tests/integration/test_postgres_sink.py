"""The PostgreSQL sink on a real server: what is in the table after batches and replays."""

from __future__ import annotations

import datetime as dt
import math
import random
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable
from psycopg import sql
from pyspark.sql import SparkSession
from tests.databases import KAFKA, Database, at, batch

from penstock.batch.counts import Handed
from penstock.errors import SinkFailed, SpecInvalid
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.delta.upsert import DeltaUpsertSink
from penstock.sinks.postgres import PostgresSink


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterable[str]:
    """A session time zone that is neither UTC nor that of the machine."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield "+05:30"
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_every_type_comes_back_as_it_was(db: Database, elsewhere: str) -> None:
    moment = dt.datetime(2024, 7, 1, 12, 30, 0, 123456, tzinfo=dt.UTC)
    local = dt.datetime(1970, 1, 1, 0, 0, 0, 1)
    columns = {
        "id": ("int", "integer"),
        "truth": ("boolean", "boolean"),
        "tiny": ("tinyint", "smallint"),
        "short": ("smallint", "smallint"),
        "long": ("bigint", "bigint"),
        "single": ("float", "real"),
        "twice": ("double", "double precision"),
        "wide": ("decimal(38,18)", "numeric(38,18)"),
        "small": ("decimal(20,10)", "numeric(20,10)"),
        "text": ("string", "text"),
        "bytes": ("binary", "bytea"),
        "day": ("date", "date"),
        "moment": ("timestamp", "timestamp with time zone"),
        "local": ("timestamp_ntz", "timestamp without time zone"),
        "numbers": ("array<int>", "integer[]"),
        "words": ("array<string>", "text[]"),
        "blobs": ("array<binary>", "bytea[]"),
        "sums": ("array<decimal(5,2)>", "numeric(5,2)[]"),
        "moments": ("array<timestamp>", "timestamp with time zone[]"),
        "bag": ("map<string,double>", "jsonb"),
        "part": ("struct<a:int,b:string,at:timestamp>", "jsonb"),
        "parts": ("array<struct<n:int,s:string>>", "jsonb"),
        "nested": ("array<array<int>>", "jsonb"),
    }
    usual = {
        "id": 1,
        "truth": True,
        "tiny": -128,
        "short": 32767,
        "long": 2**63 - 1,
        "single": 0.5,
        "twice": 1e300,
        "wide": Decimal("-99999999999999999999.999999999999999999"),
        "small": Decimal("0.0000000001"),
        "text": "",
        "bytes": b"\x00\\x\xff",
        "day": dt.date(1, 1, 1),
        "moment": moment,
        "local": local,
        "numbers": [1, None, 3],
        "words": ['a"b', "c\\d", "{x,y}", "NULL", "", None, "n\nl"],
        "blobs": [b"\x01", None],
        "sums": [Decimal("1.50")],
        "moments": [moment, None],
        "bag": {"k": 1.5, "é": None},
        "part": {"a": 7, "b": None, "at": moment},
        "parts": [{"n": 1, "s": "x"}, {"n": 2, "s": None}],
        "nested": [[1], []],
    }
    nothing = {**dict.fromkeys(usual), "id": 2}
    odd = {**nothing, "id": 3, "single": -math.inf, "twice": math.inf, "text": 'q"uo,te\\.\n\\.\r\n;\t', "bytes": b""}
    odd |= {"numbers": [], "words": [], "bag": {}, "parts": [], "day": dt.date(9999, 12, 31)}
    rows = [(*row.values(), at(row["id"])) for row in (usual, nothing, odd)]
    ddl = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())

    assert db.sink().write(batch(), db.frame(rows, f"{ddl}, {KAFKA}"), replay=False) == Written(3)

    assert list(db.columns().items()) == [
        *((name, kind) for name, (_, kind) in columns.items()),
        ("_kafka_topic", "text"),
        ("_kafka_partition", "integer"),
        ("_kafka_offset", "bigint"),
    ]
    got = [dict(zip(columns, row, strict=False)) for row in db.run("select * from SCHEMA.things order by id")]
    written = got[0]["part"].pop("at")
    assert dt.datetime.fromisoformat(written) == usual["part"].pop("at")  # type: ignore[attr-defined]
    assert written.endswith(elsewhere)
    assert got == [usual, nothing, odd]
    assert db.run("select id from SCHEMA.things where text is null") == [(2,)]


def test_not_a_number_and_texts_without_a_type_of_their_own_are_kept(db: Database) -> None:
    frame = db.frame([(1, math.nan, at(1))], f"id int, x double, {KAFKA}").selectExpr(
        "*", "null as nothing", "time '10:11:12.5' as clock", "parse_json('{\"a\": [1, null]}') as anything"
    )
    assert db.sink().write(batch(), frame, replay=False) == Written(1)
    [(x, nothing, clock, anything)] = db.run("select x, nothing, clock, anything from SCHEMA.things")
    assert math.isnan(x)
    assert (nothing, clock, anything) == (None, dt.time(10, 11, 12, 500_000), {"a": [1, None]})
    with pytest.raises(SpecInvalid) as raised:
        db.sink("other").suits(Incoming("v", frame.selectExpr("id", "interval 1 day as pause").schema))
    assert "column 'pause' is interval day" in (raised.value.cause or "")


def test_table_that_exists_keeps_its_types_defaults_and_rules(db: Database) -> None:
    db.run(
        "create type SCHEMA.mood as enum ('good', 'bad');"
        "create domain SCHEMA.short as varchar(5);"
        "create table SCHEMA.things (id uuid primary key, mood SCHEMA.mood, doc jsonb, list jsonb, ip inet,"
        " name SCHEMA.short, n int check (n < 100), _kafka jsonb, made timestamptz not null default now(),"
        " number serial, ident int generated always as identity,"
        " twice int generated always as (n * 2) stored, mine text)"
    )
    one, two, three = (f"6f0c7a52-0000-4000-8000-00000000000{i}" for i in "123")
    columns = f"id string, mood string, doc string, list array<int>, ip string, name string, n int, {KAFKA}"
    sink, frame = db.sink(), db.frame([(one, "good", '{"a": 1}', [1, 2], "10.0.0.1", "abc", 7, at(5))], columns)
    sink.suits(Incoming("v", frame.schema))
    assert sink.write(batch(), frame, replay=False) == Written(1)
    [row] = db.run("select id::text, mood, doc, list, ip::text, name, n, twice, _kafka->>'offset' from SCHEMA.things")
    assert row == (one, "good", {"a": 1}, [1, 2], "10.0.0.1/32", "abc", 7, 14, "5")

    db.run("update SCHEMA.things set mine = 'kept'")
    bad = [
        (one, "bad", None, None, None, "abc", 8, at(10)),
        (two, "meh", "{}", [], None, "abc", 8, at(11)),
        (two, "bad", "{", [], None, "abc", 8, at(12)),
        (two, "bad", "{}", [], None, "too long", 8, at(13)),
        (two, "bad", "{}", [], None, "abc", 100, at(14)),
        ("no id", "bad", "{}", [], None, "abc", 8, at(15)),
        (three, "bad", "{}", [], None, None, None, at(16)),
    ]
    done = sink.write(batch(1), db.frame(bad, columns), replay=False)
    assert (done.rows, done.superseded) == (2, 0)
    assert {r.offset: (r.why.error_class, r.why.reason.removeprefix("sink 'db': ")) for r in done.rejected} == {
        11: ("wrong-type", f"column 'mood': invalid input value for enum {db.schema}.mood: \"meh\""),
        12: ("wrong-type", "column 'doc': invalid input syntax for type json: The input string ended unexpectedly."),
        13: ("out-of-range", "column 'name': value too long for type character varying(5)"),
        14: ("broken-rule", 'new row violates check constraint "things_n_check"'),
        15: ("wrong-type", "column 'id': invalid input syntax for type uuid: \"no id\""),
    }
    assert db.run("select mood, doc, mine, n from SCHEMA.things order by id") == [
        ("bad", None, "kept", 8),
        ("bad", {}, None, None),
    ]
    assert sink.positions("_kafka") is None


def test_odd_names_are_quoted_wherever_they_go(db: Database) -> None:
    names = ["order", 'weird "name', "ünï çode", "50% off %s", "a.b", "c`d", "UPPER", "from"]
    columns = ", ".join(f"`{name.replace('`', '``')}` string" for name in names) + f", _deleted boolean, {KAFKA}"
    schema, table = f'odd "{db.schema}" %s', "Order; drop table x.%"
    db.connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    sink = PostgresSink(
        'sink "x" %s', db.url, '"' + schema.replace('"', '""') + f'"."{table}"', (names[0], names[1]), names[3]
    )
    rows = [(*(f"{n}{i}" for n in names), False, at(i)) for i in range(3)]
    frame = db.frame(rows, columns)
    sink.suits(Incoming("v", frame.schema))
    assert sink.write(batch(), frame, replay=False) == Written(3)
    more = db.frame([(*rows[0][:-2], True, at(7)), (*rows[1][:-2], False, at(8))], columns)
    assert sink.write(batch(1), more, replay=False) == Written(2)
    assert sink.write(batch(1), more, replay=True) == Written(2)
    cursor = db.connection.execute(sql.SQL("select * from {} order by 1").format(sql.Identifier(schema, table)))
    assert [column.name for column in cursor.description or []][:8] == names
    assert [row[:8] for row in cursor.fetchall()] == [row[:8] for row in rows[1:]]
    assert sink.rows_by_batch("q") == {0: 3, 1: 2}


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ("id int, extra int", "the table has no column 'extra'"),
        ("id int, made date", "the table computes column 'made' itself"),
        ("id int, name binary", "column 'name' is binary in the view and text in the table"),
        ("id int, name array<int>", None),
        ("id boolean", "column 'id' is boolean in the view and integer in the table"),
        ("name string", "`key` names column 'id', which is not written"),
        (f"id int, `{'é' * 32}` int", "64 bytes, and names there have at most 63"),
        ("id int, _penstock_seq int", "a name that Penstock uses"),
    ],
)
def test_view_that_does_not_fit_the_table_is_refused_by_column(db: Database, columns: str, fault: str | None) -> None:
    db.run("create table SCHEMA.things (id int primary key, name text, made date generated always as (null) stored)")
    schema = db.spark.createDataFrame([], columns).schema
    if fault is None:
        db.sink().suits(Incoming("v", schema))
        return
    with pytest.raises(SpecInvalid) as raised:
        db.sink().suits(Incoming("v", schema))
    assert "view 'v' does not fit table" in raised.value.what
    assert fault in (raised.value.cause or "")


def test_table_that_rows_cannot_be_upserted_into_is_refused(db: Database) -> None:
    db.run(
        "create table SCHEMA.bare (id int); create view SCHEMA.seen as select 1 as id;"
        "create table SCHEMA.strict (id int primary key, must int not null);"
        "create table SCHEMA.partly (id int); create unique index on SCHEMA.partly (id) where id > 5"
    )
    schema = db.spark.createDataFrame([], "id int").schema
    for table, fault in {
        "bare": "no primary key or unique index on exactly (id)",
        "partly": "no primary key or unique index on exactly (id)",
        "seen": "is not a table",
        "strict": "column 'must' takes no null and has no default",
    }.items():
        with pytest.raises(SpecInvalid) as raised:
            db.sink(table).suits(Incoming("v", schema))
        assert fault in (raised.value.cause or ""), table
    for odd in ("", "a.b.c", "a.", ".a", '"a', "x" * 64):
        with pytest.raises(SpecInvalid):
            PostgresSink("db", db.url, odd).suits(Incoming("v", schema))


def test_last_row_of_a_key_wins_and_those_it_replaced_are_counted(db: Database) -> None:
    columns = f"id int, v string, {KAFKA}"
    rows = [(1, "old", at(10)), (1, "new", at(12)), (1, "mid", at(11)), (2, "x", at(3))]
    assert db.sink().write(batch(), db.frame(rows, columns), replay=False) == Written(2, superseded=2)
    assert db.run("select id, v, _kafka_offset from SCHEMA.things order by 1") == [(1, "new", 12), (2, "x", 3)]
    assert db.sink().write(batch(1), db.frame([(2, "y", at(1))], columns), replay=False) == Written(1)
    assert db.run("select v from SCHEMA.things where id = 2") == [("y",)]
    assert db.sink().write(batch(2), db.frame([(2,), (2,), (3,)], "id int"), replay=False) == Written(2, superseded=1)


@dataclass(frozen=True)
class Event:
    key: int
    version: int | None
    partition: int
    offset: int
    seconds: int
    gone: bool


def after(held: dict[int, Event], events: Iterable[Event], ordered: bool) -> int:
    """What a batch should leave, said without SQL: changes `held`, and returns how many events took effect."""

    def rank(event: Event) -> int:
        return -1 if event.version is None or not ordered else event.version

    by_key: dict[int, dict[int, list[Event]]] = {}
    for event in sorted(events, key=lambda e: e.offset):
        by_key.setdefault(event.key, {}).setdefault(event.partition, []).append(event)
    effects = 0
    for key, by_partition in by_key.items():
        newest: list[tuple[Event, bool]] = []
        for of_partition in by_partition.values():
            cuts = [i for i, event in enumerate(of_partition) if event.version is None] if ordered else []
            rest = of_partition[cuts[-1] :] if cuts else of_partition
            newest.append((max(rest, key=lambda e: (rank(e), e.offset)), bool(cuts)))
        winner, by_place = max(newest, key=lambda n: (rank(n[0]), n[0].seconds, n[0].partition))
        stored = held.get(key)
        if ordered and not by_place and stored and rank(stored) > rank(winner):
            continue
        effects += 1
        held.pop(key, None)
        if not winner.gone:
            held[key] = winner
    return effects


@pytest.mark.parametrize("order_by", [None, "version"])
def test_random_rows_and_deletes_leave_what_the_model_says(db: Database, order_by: str | None) -> None:
    seed = secrets.randbelow(10**6)
    chance, held, offset = random.Random(seed), dict[int, Event](), 0
    for number, deletes in enumerate((0.3, 0.3, 0.0, 0.3)):
        events: list[Event] = []
        # Not in the order of the offsets, as a producer's clock may have it, and often the same.
        seconds = [chance.randrange(20) for _ in range(400)]
        for i in range(400):
            offset += 1
            gone = chance.random() < deletes
            version = None if deletes and chance.random() < (0.6 if gone else 0.1) else chance.randrange(10)
            key = chance.randrange(150)
            partition = key % 3 if chance.random() < 0.8 else chance.randrange(3)
            events.append(Event(key, version, partition, offset, seconds[i], gone))
        effects = after(held, events, order_by is not None)
        chance.shuffle(events)
        rows = [
            (e.key, e.version, None if e.gone else e.offset, e.gone, at(e.offset, e.partition, e.seconds))
            for e in events
        ]
        frame = db.frame(rows, f"id int, version int, n int, _deleted boolean, {KAFKA}")
        done = db.sink(order_by=order_by).write(batch(number), frame, replay=False)
        assert done == Written(effects, superseded=400 - effects), seed
        found = dict(db.run("select id, n from SCHEMA.things"))
        assert found == {key: event.offset for key, event in held.items()}, seed


@pytest.mark.parametrize("gone", [False, True])
def test_of_records_of_one_moment_in_several_partitions_delta_and_postgresql_choose_the_same(
    db: Database, tmp_path: Path, gone: bool
) -> None:
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    places = [(topic, partition) for topic in ("a", "b") for partition in range(12)]
    rows = [
        (key, f"{topic}/{partition}", False, (topic, partition, key, moment))
        for key in range(24)
        for topic, partition in places[: key + 1]
    ]
    rows += [(99, "deleted", True, ("a", 0, 99, moment))] if gone else []
    frame = db.frame(rows, f"id int, v string, _deleted boolean, {KAFKA}")
    delta = DeltaUpsertSink("lake", tmp_path / "lake", ("id",))
    delta.write(batch(), frame, replay=False)
    db.sink().write(batch(), frame, replay=False)
    found = dict(db.run("select id, v from SCHEMA.things"))
    assert found == {row["id"]: row["v"] for row in DeltaTable(str(delta.path)).to_pyarrow_table().to_pylist()}
    assert found == {key: f"{topic}/{partition}" for key, (topic, partition) in enumerate(places)}


def test_names_that_the_sink_uses_inside_mean_nothing_in_a_view(db: Database) -> None:
    names = ["gone", "seq", "n", "held", "told", "w", "k0", "value", "place", "forced", "latest", "excluded"]
    columns = ", ".join(f"{name} int" for name in names) + f", _deleted boolean, {KAFKA}"
    rows = [(*range(i, i + 12), i == 3, at(i)) for i in range(5)]
    sink = db.sink(key=("gone",), order_by="held")
    assert sink.write(batch(), db.frame(rows, columns), replay=False) == Written(5)
    assert db.run(f"select {', '.join(names)} from SCHEMA.things order by 1") == [r[:12] for r in rows if not r[12]]


def test_rows_of_no_record_are_written_and_can_only_not_be_rejected(db: Database) -> None:
    rows = [(1, at(1)), (2, None)]
    frame = db.frame(rows, f"id int, {KAFKA}")
    assert db.sink().write(batch(), frame, replay=False) == Written(2)
    with pytest.raises(SinkFailed):
        db.sink().write(batch(1), db.frame([(1, at(1)), (None, None)], f"id int, {KAFKA}"), replay=False)
    odd = frame.selectExpr("id", "'mine' as _kafka")
    db.run("alter table SCHEMA.things add column _kafka text")
    assert db.sink().write(batch(2), odd, replay=False) == Written(2)
    assert db.run("select distinct _kafka from SCHEMA.things") == [("mine",)]


def test_delete_finds_its_key_in_the_key_of_the_record(db: Database) -> None:
    named = f"id int, part string, v int, _key struct<id:string,part:string>, _deleted boolean, {KAFKA}"
    rows = [(1, "a", 5, ("1", "a"), False, at(1)), (2, "b", 6, ("2", "b"), False, at(2))]
    sink = db.sink(key=("id", "part"))
    assert sink.write(batch(), db.frame(rows, named), replay=False) == Written(2)
    gone = [(None, None, None, ("1", "a"), True, at(3)), (None, None, None, ("9", "z"), True, at(4))]
    assert sink.write(batch(1), db.frame(gone, named), replay=False) == Written(2)
    assert db.run("select id, part, v from SCHEMA.things") == [(2, "b", 6)]
    bare = f"id int, v int, _key int, _deleted boolean, {KAFKA}"
    other = db.sink("others")
    assert other.write(batch(), db.frame([(1, 1, 1, None, at(1))], bare), replay=False) == Written(1)
    assert other.write(batch(1), db.frame([(None, None, 1, True, at(2))], bare), replay=False) == Written(1)
    assert db.run("select * from SCHEMA.others") == []


def test_same_batch_twice_leaves_one_and_says_the_same(db: Database) -> None:
    sink, frame = db.sink(key=()), db.frame([(i, at(i, i % 3)) for i in range(1000)], f"id int, {KAFKA}")
    assert sink.positions("_kafka") == {}
    for replay in (False, True, False):
        assert sink.write(batch(), frame, replay=replay) == Written(1000)
    assert sink.write(batch(query="another"), db.frame([(1, at(7, 5))], f"id int, {KAFKA}"), replay=True) == Written(1)
    positions = sink.positions("_kafka")
    assert positions is not None
    assert {where: sorted(offsets) for where, offsets in positions.items()} == {
        **{("t", p): list(range(p, 1000, 3)) for p in range(3)},
        ("t", 5): [7],
    }
    assert sink.rows_by_batch("q") == {0: 1000}
    assert sink.positions("other") is None
    assert db.sink(key=("id",)).positions("_kafka") is None
    assert db.staging() == []


def test_rows_are_read_once_whether_they_are_written_or_were_before(db: Database) -> None:
    """The caller counts them on their way, and compares with what the sink says."""
    rows = [(i % 40, i, i % 7 == 0, at(i)) for i in range(100)]
    frame = db.frame([*rows, (None, 1, False, at(100))], f"id int, v int, _deleted boolean, {KAFKA}")
    for replay in (False, True):
        handed = Handed(frame)
        done = db.sink().write(batch(), handed.rows, replay=replay)
        assert (done.rows, done.superseded, len(done.rejected)) == (40, 60, 1)
        count, fingerprint = handed.result()
        assert (count, fingerprint is not None) == (done.all, True)


def test_empty_batch_is_written_down_too(db: Database) -> None:
    frame = db.frame([], f"id int, v string, {KAFKA}")
    assert db.sink().write(batch(4), frame, replay=False) == Written(0)
    assert db.sink().rows_by_batch("q") == {4: 0}
    assert db.run("select * from SCHEMA.things") == []


def test_append_keeps_deletes_as_rows_that_say_so(db: Database) -> None:
    columns = f"id int, _deleted boolean, {KAFKA}"
    sink = db.sink(key=())
    assert sink.write(batch(), db.frame([(1, False, at(1)), (None, True, at(2))], columns), replay=False) == Written(2)
    assert db.run("select id, _deleted from SCHEMA.things order by 1") == [(1, False), (None, True)]
    db.run("create table SCHEMA.narrow (id int)")
    with pytest.raises(SpecInvalid) as raised:
        db.sink("narrow", key=()).suits(Incoming("v", db.frame([], columns).schema))
    assert "no column '_deleted'" in (raised.value.cause or "")


def test_table_without_origin_columns_gets_none_and_has_no_positions(db: Database) -> None:
    db.run("create table SCHEMA.things (id int)")
    sink = db.sink(key=())
    assert sink.write(batch(), db.frame([(1, at(1)), (2, at(2))], f"id int, {KAFKA}"), replay=False) == Written(2)
    assert db.columns() == {"id": "integer"}
    assert sink.positions("_kafka") is None
    assert sink.rows_by_batch("q") == {0: 2}
