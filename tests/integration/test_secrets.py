"""A secret in every setting that takes a reference; while a pipeline runs nobody else can read it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.crash.standalone import Standalone
from tests.payments import Payments
from tests.processes import QUICK_JVM, Run, running

from penstock.checkpoint.ledger import Ledger
from penstock.local.postgres import LocalPostgres

# One for each setting; what is around it must get through, too.
CANARIES = {
    name: f"canary-{name}-{os.urandom(6).hex()}" for name in ("hadoop", "file", "java", "default", "jdbc", "sink")
}


class Judge:
    """Where a canary was seen: on any command line of this machine, or in what lies in directories."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.over = threading.Event()

    def command_lines(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                self._look((process / "cmdline").read_bytes(), "a command line")
            except OSError:
                continue

    def environments(self, names: list[str]) -> None:
        """Of what runs below this process: there these are, in no test, a user's own."""
        for process in psutil.Process().children(recursive=True):
            try:
                found = "\n".join(process.environ().values()).encode()
            except psutil.Error:
                continue
            self._look(found, "an environment", names)

    def files(self, *directories: Path) -> None:
        for directory in directories:
            for path in [file for file in directory.rglob("*") if file.is_file()]:
                try:
                    self._look(path.read_bytes(), f"{path.relative_to(directory)}")
                except FileNotFoundError:
                    continue

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every command line, from the first moment on: those of launchers live for a second."""

        def look() -> None:
            while not self.over.wait(0.02):
                self.command_lines()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def _look(self, data: bytes, where: str, names: list[str] | None = None) -> None:
        self.seen |= {f"{name} in {where}" for name in names or CANARIES if CANARIES[name].encode() in data}


def secretive(payments: Payments, postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline with a secret wherever it can have one."""
    for name in CANARIES.keys() - {"file"}:
        monkeypatch.setenv(f"CANARY_{name.upper()}", CANARIES[name])
    (payments.directory / "secret").write_text(f'{CANARIES["file"]} "=\\ ü€𝄞\n')
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create table if not exists rates (currency text primary key, rate int)")
        for name in ("jdbc", "sink"):
            if not connection.execute("select 1 from pg_roles where rolname = %s", [f"canary_{name}"]).fetchone():
                connection.execute(f"create role canary_{name} superuser login password '{CANARIES[name]}'")
    address = postgres.url.split("@")[1]
    payments.spec["spark"]["conf"] = {
        "spark.hadoop.fs.s3a.secret.key": "${env:CANARY_HADOOP}",
        "spark.hadoop.fs.s3a.access.key": "${file:secret}",
        "spark.driver.extraJavaOptions": "-Dstore.password=${env:CANARY_JAVA} '-Dwords=a \"b\\c'",
        "spark.driver.defaultJavaOptions": "-Dother.password=${env:CANARY_DEFAULT}",
    }
    payments.spec["references"] = {
        "rates": {
            "jdbc": {
                "url": f"jdbc:postgresql://{address}",
                "table": "rates",
                "user": "canary_jdbc",
                "password": "${env:CANARY_JDBC}",
            }
        }
    }
    rates = {"from": "settled", "reference": "rates", "on": "currency"}
    payments.spec["transform"].append({"view": "rated", "enrich": rates})
    url = f"postgresql://canary_sink:${{env:CANARY_SINK}}@{address}"
    payments.spec["sinks"]["db"] = {
        "from": "rated",
        "postgres": {"url": url, "table": f"paid_{os.urandom(4).hex()}", "upsert": {"key": ["payment_id"]}},
    }


@pytest.fixture(params=["local", "standalone"])
def master(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "local":
        yield "local[2]"
        return
    with running(Standalone(tmp_path_factory.mktemp("standalone"), workers=1)) as cluster:
        yield cluster.master


def test_secret_of_a_setting_stands_on_no_command_line_and_in_no_file(
    master: str, payments: Payments, postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    secretive(payments, postgres, monkeypatch)
    payments.spec["spark"]["master"] = master
    payments.spec["spark"]["conf"] |= {"spark.executor.memory": "512m"}
    scratch = payments.directory / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    payments.produce(300)
    judge, ledger = Judge(), Ledger(payments.home / "ledger")
    with judge.watching():
        run = Run(payments.directory, "run", str(payments.file))
        try:
            run.until(ledger.last)
            judge.environments(["file"])
            judge.files(payments.home, scratch)
        finally:
            run.kill()
    assert judge.seen == set()


def test_setting_with_a_secret_reaches_the_engine_as_it_was_written(
    payments: Payments, postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quotes, blanks and characters beyond ASCII in a value mean something in the files it goes through."""
    secretive(payments, postgres, monkeypatch)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.of.the.user=there pyspark-shell")
    payments.spec["spark"]["conf"]["spark.driver.memory"] = "${env:SIZE}"
    monkeypatch.setenv("SIZE", "555m")
    asked = """
import os, sys
from pathlib import Path
from pyspark import SparkContext
from penstock.spark import session
from penstock.spec.load import load
spark = session.start(load(Path(sys.argv[1])), Path(sys.argv[2]), groups=[])
java = SparkContext._jvm.java.lang
print(repr([java.System.getProperty(n) for n in ("store.password", "words", "other.password", "spark.of.the.user")]))
print(repr(java.System.getProperty("spark.hadoop.fs.s3a.access.key")))
print(repr(spark._jsc.hadoopConfiguration().get("fs.s3a.access.key")))
print(java.Runtime.getRuntime().maxMemory() >> 20, os.environ["PYSPARK_SUBMIT_ARGS"])
"""
    done = subprocess.run(
        [sys.executable, "-c", asked, str(payments.file), str(payments.directory / "logs")],
        env={**os.environ, **QUICK_JVM},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    properties, access, hadoop, rest = done.stdout.splitlines()
    assert properties == repr([CANARIES["java"], 'a "b\\c', CANARIES["default"], "there"])
    whole = f'{CANARIES["file"]} "=\\ ü€𝄞'
    assert access == repr(whole) == hadoop
    assert abs(int(rest.split()[0]) - 555) < 20
    assert rest.split(maxsplit=1)[1] == os.environ["PYSPARK_SUBMIT_ARGS"]


def test_the_judge_finds_what_stands_on_a_command_line_and_in_a_file(tmp_path: Path) -> None:
    judge = Judge()
    shown = subprocess.Popen([sys.executable, "-c", "input()", CANARIES["jdbc"]], stdin=subprocess.PIPE)
    (tmp_path / "left").write_text(f"password={CANARIES['hadoop']}")
    try:
        judge.command_lines()
    finally:
        shown.communicate(b"\n")
    judge.files(tmp_path)
    assert judge.seen == {"jdbc in a command line", "hadoop in left"}
