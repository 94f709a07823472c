"""The Spark session of a pipeline: embedded on this machine, or on the cluster that `spark.master` names."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint import disk
from penstock.checkpoint.home import Home
from penstock.errors import MARK, MARK_VARIABLE
from penstock.spark import death, jars, java, recorded
from penstock.spark.failed_start import explained, said_since, why
from penstock.spark.launch import launch
from penstock.spec.model import Pipeline
from penstock.spec.references import find, resolve
from penstock.watch import ENGINE, Report, telling, unheard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_NAME = "spark.log"
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_TASK_FAILURES = 4  # as on a cluster; a local master has 1, where one lost Python worker would end the pipeline

# PySpark logs what is wrong with SQL and with columns to standard error, with its Java stack; py4j, with Python's, that
# it cannot reach the engine. We say it in words.
_LOGGERS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")
_ANSWERS_WITHIN_S = 600.0  # a cluster that is asked for room; in a queue that may take minutes

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
# What a start on YARN waits for is said at this level only.
logger.connecting.name = org.apache.hadoop.ipc.Client
logger.connecting.level = info
logger.queue.name = org.apache.spark.deploy.yarn.Client
logger.queue.level = info
"""


def groups_for(pipeline: Pipeline) -> list[str]:
    """The jar groups a spec needs, and no others."""
    sinks = pipeline.sinks.values()
    catalogs = [sink.iceberg.catalog for sink in sinks if sink.iceberg]
    tables = pipeline.references.values()
    wanted = {
        "core": True,
        "delta": any(sink.delta for sink in sinks)
        or any(table.delta for table in tables)
        or pipeline.dead_letters.delta is not None,
        "iceberg": bool(catalogs),
        "postgres": any(catalog.type == "jdbc" for catalog in catalogs) or any(table.jdbc for table in tables),
    }
    return [group for group, needed in wanted.items() if needed]


def settings(groups: Iterable[str], master: str = "local[*]") -> dict[str, str]:
    """Spark configuration that Penstock sets; the spec's `spark.conf` comes on top of it."""
    all_cores = str(cores(master))
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        # Spark's default is a form long deprecated, in which readers lose times before 1677 and after 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.speculation": "false",  # two attempts at one task would fence each other in Kafka
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": all_cores,
        }
    if "delta" in groups:
        conf |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Delta reads its log with 50 tasks by default: seconds per batch where a few tasks take milliseconds.
            "spark.databricks.delta.snapshotPartitions": all_cores,
        }
    return conf


def start(
    pipeline: Pipeline, logs: Path, groups: Iterable[str] | None = None, waiting: Report = unheard
) -> SparkSession:
    """Start Spark, or take the session this process already has. What the engine prints goes to `logs`. `waiting`: is
    told, again and again, that a cluster takes long."""
    groups = groups_for(pipeline) if groups is None else list(groups)
    found = java.find()
    files = jars.ensure(groups)
    logs.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(found.home)
    # Without it the workers start whatever `python3` is on the PATH, and fail on `import pyarrow`.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    master = resolve(pipeline.spark.master, pipeline.base)
    log4j = logs / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=logs / LOG_NAME))
    asked = {name: resolve(str(value), pipeline.base) for name, value in pipeline.spark.conf.items()}
    written = {"spark.master": pipeline.spark.master, **pipeline.spark.conf}
    secret = {name for name, text in written.items() if find(str(text))}
    conf = {
        "spark.app.name": f"penstock.{pipeline.name}",
        "spark.master": _with_retries(master),
        **settings(groups, master),
        "spark.jars": ",".join(str(f) for f in files),
        **asked,
        # Else the engine puts variables and settings, secrets among them, wherever `${...}` stands in SQL it reads:
        # also in a name that a schema has chosen.
        "spark.sql.variable.substitute": "false",
        "spark.driver.defaultJavaOptions": java_options(asked, log4j, recorded.options(found)),
    }
    for logger in _LOGGERS_OF_ERRORS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)  # it also logs in nobody's name
    log, shown = logs / LOG_NAME, pipeline.spark.master  # what a reference stands for is not said
    known = log.stat().st_size if log.exists() else 0
    said = unheard if master.startswith("local") else waiting
    with _ctrl_c_kept(), telling(said, ENGINE, lambda: _waits_for(shown, said_since(log, known))):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for name, value in conf.items():
            builder = builder.config(name, value)
        try:
            death.watched(log, is_local=master.startswith("local"))
            launch(conf, secret, log)
            with _bounded(shown):
                spark = builder.getOrCreate()
        except Exception as error:
            if full := disk.sign_in(str(error)):
                raise disk.Disks.of(pipeline, Home(logs.parent)).full(full) from error
            raise explained(error, log, known, shown) from error
    mark_errors(spark)
    _complain_to(log, spark)
    return spark


def mark_errors(spark: SparkSession) -> None:
    """Have the Python workers mark errors of ours, from here on, so that they are known in what the engine says."""
    spark.sparkContext.environment[MARK_VARIABLE] = MARK


def _waits_for(master: str, said: str) -> str:
    trouble = why("", said)
    return f"waiting for {master}{f' ({trouble})' * bool(trouble)}"


@contextmanager
def _bounded(master: str) -> Iterator[None]:
    """A cluster may not answer, or have no room, for as long as it likes. Then its end is that of the engine."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    end = threading.Timer(_ANSWERS_WITHIN_S, process.kill if process else lambda: None)
    end.daemon = True
    end.start()
    try:
        yield
    except Exception as error:
        if end.is_alive() or process is None:
            raise
        raise TimeoutError(f"{master} did not let the engine start within {_ANSWERS_WITHIN_S:.0f} s") from error
    finally:
        end.cancel()


def _complain_to(log: Path, spark: SparkSession) -> None:
    """The server that accumulators are sent to would print a traceback when the engine is gone."""

    def handle_error(*_: object) -> None:
        with log.open("a") as file:
            traceback.print_exc(file=file)

    if server := getattr(spark.sparkContext, "_accumulatorServer", None):
        server.handle_error = handle_error


def _not_of_py4j(line: logging.LogRecord) -> bool:
    return "py4j" not in Path(line.pathname).parts


def java_options(asked: dict[str, str], log4j: Path, more: Iterable[str] = ()) -> str:
    """Options that come before those of the spec. Java's collector for throughput, unless somebody chose another: a
    batch is as fast as its garbage is cheap, and no one waits for a pause. Java does not start with two."""
    collector = [] if collector_chosen(asked) else ["-XX:+UseParallelGC"]
    given = asked.get("spark.driver.defaultJavaOptions", "")
    return " ".join(
        [f"-Dlog4j2.configurationFile={log4j.resolve().as_uri()}", *collector, death.JAVA_OPTION, *more, given]
    ).strip()


def collector_chosen(asked: Mapping[str, object], of: str = "driver") -> bool:
    """Whether the spec's configuration or the environment names a collector of Java's; `of`: driver or executor."""
    given = [str(asked.get(f"spark.{of}.{which}JavaOptions", "")) for which in ("default", "extra")]
    chosen = [*given, *(os.environ.get(name, "") for name in _JAVA_OPTIONS)]
    return any(re.search(r"-XX:\+Use\w+GC\b", options) for options in chosen)


def cores(master: str) -> int:
    given = re.match(r"local\[(\d+)", master)
    return (
        int(given[1])
        if given
        else len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 2
    )


def _with_retries(master: str) -> str:
    plain = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return f"local[{plain[1] or 1},{_TASK_FAILURES}]" if plain else master


@contextmanager
def _ctrl_c_kept() -> Iterator[None]:
    """A SparkContext takes Ctrl-C over and cancels its jobs; ours ends at a batch boundary."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
