"""Rows that PostgreSQL refuses: each is rejected with its reason, and the others are written."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from tests.databases import KAFKA, Database, at, batch

from penstock.errors import SinkFailed, SpecInvalid
from penstock.record import Failure
from penstock.sinks.contract import Incoming, Rejected

ROWS = f"id int, name string, amount decimal(12,2), {KAFKA}"


def test_rows_that_postgresql_refuses_are_rejected_among_thousands_that_are_written(db: Database) -> None:
    db.run(
        "create table SCHEMA.things "
        "(id int primary key, name varchar(12) not null, amount numeric(6,2) check (amount > 0))"
    )
    bad = {
        17: ("a\0b", "1", "malformed", "column 'name': invalid byte sequence for encoding \"UTF8\": 0x00"),
        1234: ("far too long a name", "1", "out-of-range", "column 'name': value too long for type"),
        1235: ("ok", "99999", "out-of-range", "column 'amount': numeric field overflow"),
        2500: (None, "1", "missing-field", 'null value in column "name" violates not-null constraint'),
        4999: ("ok", "-1", "broken-rule", 'violates check constraint "things_amount_check"'),
    }
    rows = [(i, *(bad[i][:2] if i in bad else ("fine", "1")), at(i + 100)) for i in range(5000)]
    frame = db.frame(rows, ROWS.replace("decimal(12,2)", "string")).selectExpr(
        "id", "name", "cast(amount as decimal(12,2)) as amount", "_kafka"
    )
    sink = db.sink()
    done = sink.write(batch(), frame, replay=False)
    assert (done.rows, done.superseded, len(done.rejected)) == (4995, 0, 5)
    found = {(r.topic, r.partition, r.offset - 100): r.why for r in done.rejected}
    assert found.keys() == {("t", 0, i) for i in bad}
    for (_, _, i), why in found.items():
        assert why.error_class == bad[i][2]
        assert bad[i][3] in why.reason
        assert "staging" not in why.reason
        assert why.reason.startswith("sink 'db': ")
    assert sorted(set(range(5000)) - {i for (i,) in db.run("select id from SCHEMA.things")}) == sorted(bad)
    assert sink.write(batch(), frame, replay=True) == done, "a replay must bury the same records"


def test_text_of_bytes_that_are_none_is_rejected_with_its_column(db: Database) -> None:
    made = ["id", "if(id = 2, cast(x'61ff' as string), 'ok') as name", "_kafka"]
    lists = ["id", "array(null, if(id = 2, cast(x'61ff' as string), 'ok')) as name", "_kafka"]
    frame = db.frame([(1, at(1)), (2, at(2))], f"id int, {KAFKA}")
    for number, columns in enumerate((made, lists)):
        done = db.sink(f"t{number}").write(batch(number), frame.selectExpr(*columns), replay=False)
        assert done.rows == 1
        [why] = [r.why for r in done.rejected if r.offset == 2]
        assert why.reason == "sink 'db': column 'name': invalid byte sequence for encoding \"UTF8\": 0xff"
    with pytest.raises(SinkFailed) as raised:
        db.sink("t2", key=()).write(batch(2), frame.selectExpr(*made[:2]), replay=False)
    assert "the row: {'id': 2, 'name': 'a\\udcff'}" in (raised.value.cause or "")


def test_rows_that_only_the_table_itself_refuses_are_rejected_by_the_merge(db: Database) -> None:
    db.run(
        "create table SCHEMA.accounts (id int primary key); insert into SCHEMA.accounts select generate_series(0, 9);"
        "create table SCHEMA.things (id int primary key, account int references SCHEMA.accounts deferrable initially deferred, email text unique);"  # noqa: E501
        "create table SCHEMA.pinned (id int references SCHEMA.things)"
    )
    columns = f"id int, account int, email string, _deleted boolean, {KAFKA}"
    rows = [(i, 77 if i in (13, 400) else i % 10, f"{i}@x", False, at(i)) for i in range(500)]
    rows[250] = (250, 1, "249@x", False, at(250))
    done = db.sink().write(batch(), db.frame(rows, columns), replay=False)
    assert (done.rows, done.superseded) == (497, 0)
    why = {r.offset: r.why for r in done.rejected}
    assert why.keys() == {13, 400, 250}
    assert {w.error_class for w in why.values()} == {"broken-rule"}
    assert 'Key (account)=(77) is not present in table "accounts".' in why[13].reason
    assert why[13].reason.startswith("sink 'db': ")
    db.run("insert into SCHEMA.pinned values (3)")
    gone = [(3, None, None, True, at(600)), (4, None, None, True, at(601)), (5, 2, "new@x", False, at(602))]
    done = db.sink().write(batch(1), db.frame(gone, columns), replay=False)
    assert (done.rows, [r.offset for r in done.rejected]) == (2, [600])
    assert db.run("select id from SCHEMA.things where id in (3, 4)") == [(3,)]
    append = db.sink("things", key=())
    done = append.write(batch(2), db.frame([(900, 1, "a@x", at(1)), (900, 1, "b@x", at(2))], columns.replace("_deleted boolean, ", "")), replay=False)  # fmt: skip # noqa: E501
    assert (done.rows, len(done.rejected)) == (1, 1)


@pytest.mark.parametrize("order_by", [None, "v"])
def test_refused_row_does_not_take_the_older_ones_of_its_key_with_it(db: Database, order_by: str | None) -> None:
    db.run(
        "create table SCHEMA.accounts (id int primary key); insert into SCHEMA.accounts values (1);"
        "create table SCHEMA.things (id int primary key, v int, account int references SCHEMA.accounts);"
        "create table SCHEMA.pinned (id int references SCHEMA.things);"
        "insert into SCHEMA.things values (5, 0, 1), (6, 0, 1); insert into SCHEMA.pinned values (5)"
    )
    rows = [  # key, account (77: refused), a delete
        (1, 1, False), (1, 77, False),
        (2, 77, False), (2, 1, False),
        (3, 1, False), (3, 77, False), (3, 1, False), (3, 77, False), (3, 77, False),
        (4, 77, False), (4, 77, False),
        (5, 1, False), (5, None, True),
        (6, None, True), (6, 77, False),
    ]  # fmt: skip
    told = [(key, i + 1, account, gone, at(i)) for i, (key, account, gone) in enumerate(rows)]
    frame = db.frame(told, f"id int, v int, account int, _deleted boolean, {KAFKA}")
    sink = db.sink(order_by=order_by)
    done = sink.write(batch(), frame, replay=False)
    assert db.run("select id, v from SCHEMA.things order by id") == [(1, 1), (2, 4), (3, 7), (5, 12)]
    assert sorted(r.offset for r in done.rejected) == [1, 7, 8, 9, 10, 12, 14]
    assert (done.rows, done.superseded) == (5, 3)
    assert sink.write(batch(), frame, replay=True) == done


def test_row_without_origin_that_is_refused_stops_the_batch_and_is_named(db: Database) -> None:
    frame = db.frame([(1, "fine"), (2, "nu\0l")], "id int, name string")
    with pytest.raises(SinkFailed) as raised:
        db.sink().write(batch(), frame, replay=False)
    assert "the row: {'id': 2}" in (raised.value.cause or "")
    db.run("create table SCHEMA.other (id int unique check (id < 10))")
    with pytest.raises(SinkFailed) as raised:
        db.sink("other", key=()).write(batch(), db.frame([(1,), (1,)], "id int"), replay=False)
    assert "{'id': 1}" in (raised.value.cause or "")
    assert db.run("select * from SCHEMA.other") == []
    assert db.sink("other").rows_by_batch("q") == {}


def test_delete_whose_key_the_table_would_round_deletes_nothing(db: Database) -> None:
    db.run(
        "create table SCHEMA.things (id numeric(6,2) primary key, v numeric); insert into SCHEMA.things values (1.24)"
    )
    columns = f"id double, v double, _deleted boolean, {KAFKA}"
    rows = [
        (1.239, 1.0, True, at(1)),
        (1.238, 1.0, False, at(2)),
        (2.5, math.inf, False, at(3)),
        (1.24, 1.0, True, at(4)),
    ]
    for number, held in ((2, [(Decimal("1.24"),)]), (4, [(Decimal("2.50"),)])):
        done = db.sink().write(batch(number), db.frame(rows[:number], columns), replay=False)
        assert db.run("select id from SCHEMA.things") == held
        assert sorted(r.why.reason for r in done.rejected) == [
            f"sink 'db': column 'id': {value} cannot be kept exactly as numeric(6,2)" for value in (1.238, 1.239)
        ]
    assert db.run("select v from SCHEMA.things") == [(Decimal("Infinity"),)]


def test_time_of_day_and_a_moment_are_never_each_other(db: Database) -> None:
    db.run("create table SCHEMA.things (id int primary key, at time)")
    moments = db.frame([], f"id int, at timestamp, {KAFKA}").schema
    with pytest.raises(SpecInvalid) as raised:
        db.sink().suits(Incoming("v", moments))
    assert raised.value.cause == "column 'at' is timestamp in the view and time without time zone in the table"


def test_null_keys_are_rejected_in_rows_and_in_deletes(db: Database) -> None:
    columns = f"id int, v int, _deleted boolean, {KAFKA}"
    rows = [(None, 1, False, at(1)), (2, 2, False, at(2)), (None, None, True, at(3))]
    done = db.sink().write(batch(), db.frame(rows, columns), replay=False)
    why = Failure("missing-field", "sink 'db': key column 'id' is null")
    assert done.rows == 1
    assert sorted(done.rejected, key=lambda r: r.offset) == [Rejected("t", 0, 1, why), Rejected("t", 0, 3, why)]
