"""The PostgreSQL sink when things go wrong: crashes, other transactions, a server that is away."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame
from tests.databases import KAFKA, Database, at, batch

from penstock.errors import (
    NotWritable,
    PenstockError,
    SinkBusy,
    SpecInvalid,
    TableDiffers,
    TableOfAnotherQuery,
)
from penstock.local.postgres import LocalPostgres
from penstock.record import Known
from penstock.sinks.contract import Written
from penstock.sinks.postgres import PostgresSink


def test_task_that_is_run_again_loads_its_rows_once(db: Database) -> None:
    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A step that loses its worker in the middle of the task's first attempt."""
        context = TaskContext.get()
        for i, each in enumerate(batches):
            if i == 2 and context is not None and context.attemptNumber() == 0:
                raise RuntimeError("lost")
            yield each

    db.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        frame = db.frame([(i, at(i)) for i in range(1000)], f"id int, {KAFKA}")
        flaky = frame.mapInArrow(fail_once, frame.schema)
        assert db.sink(key=()).write(batch(), flaky, replay=False) == Written(1000)
    finally:
        db.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert db.run("select count(*), count(distinct id) from SCHEMA.things") == [(1000, 1000)]


class InThread(threading.Thread):
    """A write that goes on beside the test."""

    def __init__(self, sink: PostgresSink, number: int, frame: DataFrame, replay: bool = False) -> None:
        super().__init__(daemon=True)
        self.call: Callable[[], Written] = lambda: sink.write(batch(number), frame, replay=replay)
        self.done: Written | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.done = self.call()
        except BaseException as error:
            self.error = error

    def result(self) -> Written:
        self.join(60)
        if self.error:
            raise self.error
        assert self.done is not None, "it still runs"
        return self.done


def waiting(db: Database, count: int = 1) -> list[int]:
    """The server processes of the sink's drivers, once so many wait for a lock."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = db.run(
            "select pid from pg_stat_activity where application_name = 'penstock db' and wait_event_type = 'Lock'"
        )
        if len(found) == count:
            return [pid for (pid,) in found]
        time.sleep(0.02)
    raise AssertionError("they do not wait")


def test_driver_lost_between_load_and_merge_leaves_only_staging_that_the_next_attempt_drops(db: Database) -> None:
    columns = f"id int, v int, {KAFKA}"
    sink, first = db.sink(), db.frame([(1, 1, at(1))], columns)
    assert sink.write(batch(), first, replay=False) == Written(1)
    with psycopg.connect(db.url) as other:
        other.execute(f"lock table {db.schema}.things in exclusive mode")
        going = InThread(sink, 1, db.frame([(1, 2, at(2)), (2, 2, at(3))], columns))
        db.run(f"select pg_terminate_backend({waiting(db)[0]})")
        with pytest.raises(SinkBusy):
            going.result()
    assert len(db.staging()) == 1
    assert db.run("select id, v from SCHEMA.things") == [(1, 1)]
    assert sink.rows_by_batch("q") == {0: 1}
    assert sink.write(batch(1), db.frame([(1, 2, at(2)), (2, 2, at(3))], columns), replay=True) == Written(2)
    assert db.run("select id, v from SCHEMA.things order by 1") == [(1, 2), (2, 2)]
    assert db.staging() == []


def test_two_attempts_at_one_batch_at_once_write_it_once_and_say_the_same(db: Database) -> None:
    sink, columns = db.sink(key=()), f"id int, {KAFKA}"
    db.run("create table SCHEMA.things (id int)")
    with psycopg.connect(db.url) as other:
        other.execute(f"lock table {db.schema}.things in exclusive mode")
        attempts = [InThread(sink, 0, db.frame([(i, at(i)) for i in range(100)], columns)) for _ in range(2)]
        waiting(db, 2)
        assert len(db.staging()) == 2, "one attempt dropped what the other had loaded"
    assert [attempt.result() for attempt in attempts] == [Written(100)] * 2
    assert db.run("select count(*) from SCHEMA.things") == [(100,)]
    assert db.staging() == []


def test_serialization_failure_is_retried(db: Database) -> None:
    """The merge finds a row changed since its transaction began: PostgreSQL ends it, and it is run again."""
    columns = f"id int, v int, {KAFKA}"
    strict = db.url + "&options=-c%20default_transaction_isolation%3Dserializable"
    sink = db.sink(url=strict)
    assert sink.write(batch(), db.frame([(1, 1, at(1)), (2, 1, at(2))], columns), replay=False) == Written(2)
    with psycopg.connect(db.url) as other:
        other.execute(f"update {db.schema}.things set v = 50 where id = 2")
        going = InThread(sink, 1, db.frame([(1, 3, at(3)), (2, 3, at(4))], columns))
        waiting(db)
    assert going.result() == Written(2)
    assert db.run("select id, v from SCHEMA.things order by 1") == [(1, 3), (2, 3)]
    log = db.run("select pg_read_file(current_setting('log_directory') || '/postgres.log')")[0][0]
    assert "could not serialize access due to concurrent update" in log


def test_deadlock_with_another_client_is_retried(db: Database) -> None:
    columns = f"id int, v int, {KAFKA}"
    # Ours looks first, so that ours is the victim. It looks once, so long after it began to wait for the other.
    sink = db.sink(url=db.url + "&options=-c%20deadlock_timeout%3D3000")
    assert sink.write(batch(), db.frame([(1, 1, at(1)), (2, 1, at(2))], columns), replay=False) == Written(2)
    with psycopg.connect(db.url + "&options=-c%20deadlock_timeout%3D20000") as other:
        other.execute(f"update {db.schema}.things set v = 50 where id = 2")
        going = InThread(sink, 1, db.frame([(1, 3, at(3)), (2, 3, at(4))], columns))
        waiting(db)
        other.execute(f"update {db.schema}.things set v = 50 where id = 1")
    assert going.result() == Written(2)
    assert db.run("select id, v from SCHEMA.things order by 1") == [(1, 3), (2, 3)]
    log = db.run("select pg_read_file(current_setting('log_directory') || '/postgres.log')")[0][0]
    assert "deadlock detected" in log


def test_server_that_is_away_is_an_error_to_retry_and_the_batch_goes_in_when_it_is_back(
    db: Database, postgres: LocalPostgres
) -> None:
    frame = db.frame([(i, at(i)) for i in range(100)], f"id int, {KAFKA}")
    sink = db.sink()
    assert sink.write(batch(), frame, replay=False) == Written(100)
    postgres.down()
    try:
        for call in (
            lambda: sink.write(batch(1), frame, replay=False),
            lambda: sink.prepare(batch(), Known(), frozenset()),
            lambda: sink.rows_by_batch("q"),
        ):
            with pytest.raises(SinkBusy) as raised:
                call()
            assert raised.value.retryable
            assert "did not answer" in raised.value.what
    finally:
        postgres.up()
    assert sink.write(batch(1), frame, replay=True) == Written(100)
    assert sink.rows_by_batch("q") == {0: 100, 1: 100}


def test_server_killed_while_rows_are_loaded_leaves_nothing_and_the_batch_is_written_after_it_recovered(
    db: Database, postgres: LocalPostgres, tmp_path: Path
) -> None:
    loading, killed = tmp_path / "loading", tmp_path / "killed"

    def with_a_kill_inside(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(batches):
            if number == 10:  # those before it are being loaded, by another worker
                loading.touch()
                while not killed.exists():
                    time.sleep(0.02)
            yield each

    def kill() -> None:
        while not loading.exists():
            time.sleep(0.02)
        postgres.kill()
        killed.touch()

    frame = db.frame([(i, at(i)) for i in range(2000)], f"id int, {KAFKA}").coalesce(1)
    sink = db.sink(key=())
    assert sink.write(batch(), frame, replay=False) == Written(2000)
    killer = threading.Thread(target=kill, daemon=True)
    db.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        killer.start()
        with pytest.raises(SinkBusy):
            sink.write(batch(1), frame.mapInArrow(with_a_kill_inside, frame.schema), replay=False)
    finally:
        db.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        killer.join(60)
        postgres.up()
    assert sink.write(batch(1), frame, replay=True) == Written(2000)
    with psycopg.connect(db.url) as connection:
        assert connection.execute(f"select count(*) from {db.schema}.things").fetchone() == (4000,)


SECRET = "s3cr3t/p%w:rd@"
ENCODED = "s3cr3t%2Fp%25w%3Ard%40"


@pytest.fixture
def guest(db: Database) -> Iterator[PostgresSink]:
    """A sink whose user may do nothing yet, and whose URL holds a password."""
    name = f"guest_{db.schema}"
    db.connection.execute(f"create role {name} login password '{SECRET}'")
    host = db.url.partition("@")[2].partition("?")[0]
    yield db.sink(name="guest", url=f"postgresql://{name}:{ENCODED}@{host}")
    db.connection.execute(f"drop owned by {name} cascade")
    db.connection.execute(f"drop role {name}")


def said_by(call: Callable[[], object]) -> tuple[PenstockError, str]:
    with pytest.raises(PenstockError) as raised:
        call()
    error = raised.value
    return error, "".join(traceback.format_exception(error)) + repr(error) + str(error.as_dict())


def test_password_is_in_no_error_no_text_and_no_plan(db: Database, guest: PostgresSink) -> None:
    frame = db.frame([(1, "nu\0l", at(1))], f"id int, name string, {KAFKA}")
    known = Known()
    texts = [repr(guest), str(guest)]
    wrong = replace(guest, url=guest.url.replace(ENCODED, "wr0ng" + ENCODED))
    nowhere = replace(guest, url=guest.url + "_no_such_database")
    broken = [
        f"postgresql://x:{SECRET}@h/%zz",
        f"postgresql://x:{ENCODED}@h:port:port/d?{SECRET}",
        f"host={SECRET} {SECRET}",
        f"postgresql://x:{SECRET}@h/d",
        "postgresql://x:a@s3cr3t@h/d",
        "postgresql://x:a/s3cr3t@h/d",
        "postgresql://x:s3cr3t/@h/d",
    ]
    for sink, expected in [
        (wrong, NotWritable),
        (nowhere, NotWritable),
        (replace(guest, url=guest.url.replace("127.0.0.1:", "127.0.0.1:1")), SinkBusy),
        *((replace(guest, url=url), SpecInvalid) for url in broken),
    ]:
        error, text = said_by(lambda sink=sink: sink.prepare(batch(), known, frozenset()))
        assert isinstance(error, expected), text
        texts.append(text)
        texts.append(said_by(lambda sink=sink: sink.rows_by_batch("q"))[1])
    error, text = said_by(lambda: guest.prepare(batch(), known, frozenset()))
    assert isinstance(error, NotWritable)
    assert "permission denied for schema" in (error.cause or "")
    texts.append(text)
    db.run(f"grant usage on schema SCHEMA to guest_{db.schema}")
    error, text = said_by(lambda: guest.prepare(batch(), known, frozenset()))
    assert isinstance(error, NotWritable)
    assert "may not create tables in schema" in (error.cause or "")
    texts.append(text)
    error, text = said_by(lambda: guest.write(batch(), frame, replay=False))
    assert isinstance(error, NotWritable)
    texts.append(text)
    db.run(f"grant create on schema SCHEMA to guest_{db.schema}")
    guest.prepare(batch(), known, frozenset())
    assert len(guest.write(batch(), frame, replay=False).rejected) == 1
    error, text = said_by(lambda: replace(guest, key=()).write(batch(1), frame.drop("_kafka"), replay=False))
    texts.append(text)
    db.run("drop table SCHEMA.things; create table SCHEMA.things (id int primary key, name text, _kafka jsonb)")
    error, text = said_by(lambda: guest.prepare(batch(), known, frozenset()))
    assert "may not" in (error.cause or "")
    texts.append(text)
    tracker = db.spark.sparkContext.statusTracker()
    texts += [str(tracker.getJobInfo(job)) for job in tracker.getJobIdsForGroup(None)[-20:]]
    from penstock.sinks.postgres.connection import Address
    from penstock.sinks.postgres.load import RESULT, Load
    from penstock.sinks.postgres.names import Staging

    load = Load("guest", Address(guest.url), Staging("s", "n"), ("id",), (), None, False, False)
    plan = frame.select("id").mapInArrow(load, RESULT)
    texts += [repr(load), plan._jdf.queryExecution().toString()]
    for text in texts:
        assert "s3cr3t" not in text


def test_table_that_lost_batches_or_is_ahead_or_of_another_query_is_refused(db: Database) -> None:
    sink, frame = db.sink(), db.frame([(1, at(1))], f"id int, {KAFKA}")
    sink.prepare(batch(), Known(), frozenset())
    with pytest.raises(TableDiffers):
        sink.prepare(batch(), Known(written=0, planned=0), frozenset())
    for number in range(3):
        sink.write(batch(number), frame, replay=False)
    sink.prepare(batch(), Known(written=2, planned=3), frozenset())
    for known in (Known(written=3, planned=3), Known(written=1, planned=1)):
        with pytest.raises(TableDiffers):
            sink.prepare(batch(), known, frozenset())
        sink.prepare(batch(), known, frozenset({TableDiffers.code}))
    with pytest.raises(TableOfAnotherQuery):
        sink.prepare(batch(query="new"), Known(), frozenset())
    sink.prepare(batch(query="new"), Known(), frozenset({TableOfAnotherQuery.code}))
    moved = db.sink("elsewhere")
    with pytest.raises(TableDiffers):
        moved.prepare(batch(), Known(written=2, planned=2), frozenset())
    db.run("drop table SCHEMA.things")
    with pytest.raises(TableDiffers):
        sink.prepare(batch(), Known(written=2, planned=2), frozenset())
    with pytest.raises(NotWritable) as raised:
        PostgresSink("db", db.url, "No such schema.t").prepare(batch(), Known(), frozenset())
    assert raised.value.next_command == 'create schema "No such schema"'
