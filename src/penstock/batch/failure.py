"""What the engine's exceptions mean. Spark wraps everything several times; the user gets the cause in our words."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.batch.bisect import speaks_of_a_value
from penstock.checkpoint.disk import Disks, raised_by_a_full_disk, sign_in
from penstock.contract.verdict import UNREADABLE, stopped_by
from penstock.errors import (
    WITHOUT_THEM,
    CheckpointForeign,
    DiskFull,
    EngineBusy,
    EngineFailed,
    KafkaUnreachable,
    OffsetsVanished,
    PenstockError,
    RuleStopped,
    from_worker,
)
from penstock.spark import death
from penstock.transform.python import blame, worker_raised

_OFFSETS_GONE = (
    "OffsetOutOfRangeException",
    "KAFKA_DATA_LOSS",
    "data may have been lost",
)
_JOINED_LATE = "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"  # it was not there before, and begins later
_REASON = "Reason: "  # begins the line of Spark's advice that says what was lost, and where
_KAFKA_AWAY = (
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
    "No resolvable bootstrap urls",
    "Timed out waiting for a node assignment",
    "UnknownTopicOrPartitionException",
    "Cannot fetch record for offset",  # Spark's words when a poll comes back empty for too long
    "CANNOT_LOAD_KAFKA",
    "Connection refused",
)
_WORKER_LATE = ("Python worker failed to connect back",)  # within the ten seconds that the engine gives it
_OUT_OF_MEMORY = ("java.lang.OutOfMemoryError",)  # of an executor, or where the spec lets the engine live on
_WORKER_DIED = ("Python worker exited unexpectedly",)
_EXECUTOR_DIED = ("ExecutorLostFailure",)
_OTHER_STATE = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)
# Of data, of a constraint, and of what a query raises itself (`raise_error`): they quote values.
_STATE_OF_A_VALUE = re.compile(r"SQLSTATE: (22|23|P0)")
_JAVA_NOISE = re.compile(r"^\s*(at |\.\.\. \d+ more|Caused by: java\.lang\.Thread)")
# What Spark says of the query behind the message of an error, or where that is empty as all of it: a heading, ids,
# positions, the plan. None of it is a cause.
_OF_THE_QUERY = re.compile(r"^=== Streaming Query ===.*?(?=^JVM stacktrace:|\Z)", re.MULTILINE | re.DOTALL)


def unexpected(error: BaseException, disks: Disks) -> PenstockError | None:
    """What may fail any call, wherever it is: the engine is gone, or a disk is full. None: it was neither."""
    if died := death.of_engine():
        return died
    full = raised_by_a_full_disk(error)
    return disks.full(str(full)) if full else None


def translate(error: BaseException, log: Path, disks: Disks | None = None) -> PenstockError:
    """The error a user should see for a failed query. Penstock's own errors pass unchanged. `disks`: what the query
    writes to, if anything."""
    disks = disks or Disks({"the engine's log": log})
    full = raised_by_a_full_disk(error)
    if full and not isinstance(error, DiskFull):
        return disks.full(str(full))
    if isinstance(error, PenstockError):
        return error
    text = str(error)
    if ours := from_worker(text):
        ours.next_command = ours.next_command or f"read {log}"
        return ours
    if stopped := stopped_by(text):
        return _stopped(stopped)
    # Signs are looked for in the engine's words. Where those quote a record, it must not decide what happened: so
    # whether it is an exception of a Python worker, or one about a value, is asked first.
    lines, raised = _said(error), worker_raised(text)
    if raised or speaks_of_a_value(error) or _STATE_OF_A_VALUE.search(text):
        return _quoting(blame(text), raised, lines, log, disks)
    said = sign_in("\n".join(lines))
    return disks.full(said) if said else _by_sign(lines, log, disks)


def _quoting(blamed: str | None, raised: list[str], lines: list[str], log: Path, disks: Disks) -> PenstockError:
    """`blamed`: what a function of the user's raised. `raised`: by the worker, the first of which no record can forge:
    it may only speak of one in its message, and not where it is an error of the system."""
    kind = raised[0].split(":")[0] if raised else ""
    if kind.endswith("MemoryError"):
        return death.worker_out_of_memory(raised[0][:500])
    if kind == "OSError" and not blamed and (said := sign_in(raised[0])):
        return disks.full(said)
    cause = blamed or (raised[-1] if raised else _cause(lines))
    return EngineFailed("the engine failed", cause=cause[:500], next_command=f"read {log}")


def _by_sign(lines: list[str], log: Path, disks: Disks) -> PenstockError:
    if memory := _first(lines, _OUT_OF_MEMORY):
        return death.task_out_of_memory(memory)
    if other_state := _first(lines, _OTHER_STATE):
        return CheckpointForeign(
            "the state in the checkpoint does not fit the steps",
            cause=other_state,
            next_command="bring back the steps and the columns they read; or begin anew: another `checkpoint:`, and "
            "sinks of its own",
        )
    if gone := _first(lines, _OFFSETS_GONE):
        late = _JOINED_LATE in gone
        reason = next((line.removeprefix(_REASON) for line in lines if line.startswith(_REASON)), gone)
        return OffsetsVanished(
            "a partition that joins has lost its first offsets"
            if late
            else "offsets that were not read yet are no longer in Kafka",
            cause=reason,
            next_command=WITHOUT_THEM
            + ("" if late else "; and raise the topic's retention")
            + f"; the lost range is also in the engine's log: {log}",
        )
    if away := _first(lines, _KAFKA_AWAY):
        return KafkaUnreachable("Kafka did not answer", cause=away, next_command="penstock ps")
    if slow := _first(lines, _WORKER_LATE):
        return EngineBusy(
            "a Python worker of the engine did not start in time",
            cause=slow,
            next_command="give the machine less to do, or the pipeline fewer cores (`spark: {master: 'local[2]'}`)",
        )
    if full := disks.surely_full(_cause(lines)):
        return full
    if _first(lines, _WORKER_DIED):
        return death.of_worker(_WORKER_DIED[0], log)
    facts: dict[str, object] = {"died": "executor"} if _first(lines, _EXECUTOR_DIED) else {}
    return EngineFailed("the engine failed", cause=_cause(lines), next_command=f"read {log}", facts=facts)


def _said(error: BaseException | None) -> list[str]:
    """The lines that say something: no stack frames, and nothing of the query itself. Where an error says nothing, what
    caused it may (PySpark keeps that in a place of its own)."""
    if error is None:
        return []
    lines = _OF_THE_QUERY.sub("", str(error)).split("\n")
    said = [line.strip() for line in lines if line.strip() and not _JAVA_NOISE.match(line)]
    cause = getattr(error, "_cause", None) or error.__cause__
    return said or _said(None if cause is error else cause)


def _stopped(said: str) -> RuleStopped:
    """`said`: the view and its rule, and where the record is, as the contract puts it."""
    if re.match(rf"[^ ]+\.{UNREADABLE}\b", said):
        return RuleStopped(
            f"a record that cannot be read stops the pipeline: {said}",
            cause="its format says `unreadable: stop`; the batch is not finished and will run again",
            next_command="see to its schema in the registry, or let such records be dead letters: "
            "`unreadable: dead-letter`; then: penstock run FILE",
        )
    return RuleStopped(
        f"a record broke a rule that stops the pipeline: {said}",
        cause="the rule says `otherwise: stop`; the batch is not finished and will run again",
        next_command="change the rule, or let such records be dead letters (`otherwise: dead-letter`); "
        "then: penstock run FILE",
    )


def _first(lines: list[str], signs: tuple[str, ...]) -> str:
    return next((_bare(line)[:300] for line in lines if any(s in line for s in signs)), "")


def _cause(lines: list[str]) -> str:
    causes = [line for line in lines if line.startswith(("Caused by:", ": "))]  # py4j begins the cause with a colon
    return _bare(causes[-1] if causes else lines[0] if lines else "unknown")[:500]


def _bare(line: str) -> str:
    return line.removeprefix("Caused by:").removeprefix(":").strip()
