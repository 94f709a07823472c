"""What the engine's exceptions mean. Spark wraps everything several times; the user gets the cause in our words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from penstock import errors
from penstock.errors import (
    CheckpointForeign,
    EngineFailed,
    KafkaUnreachable,
    OffsetsVanished,
    PenstockError,
    RuleStopped,
)
from penstock.runtime.culprits import speaks_of_a_value
from penstock.transform.contract import STOP_MARK
from penstock.transform.python import blame

_OFFSETS_GONE = (
    "OffsetOutOfRangeException",
    "KAFKA_DATA_LOSS",
    "Some data may have been lost",
    "data may have been lost",
)
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
_OTHER_STATE = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)
_OURS = re.compile(
    r"^penstock\.errors\.(\w+): (.*)$(?:\ncause: (.*)$)?(?:\nnext: (.*)$)?", re.MULTILINE
)  # the traceback of a worker, with the notes that an error of ours has
_JAVA_NOISE = re.compile(r"^\s*(at |\.\.\. \d+ more|Caused by: java\.lang\.Thread)")


def translate(error: BaseException, log: Path) -> PenstockError:
    """The error a user should see for a failed query. Penstock's own errors pass unchanged."""
    if isinstance(error, PenstockError):
        return error
    text = str(error)
    lines = _said(text)
    ours = _OURS.findall(text)
    if ours and (kind := getattr(errors, ours[-1][0], None)):  # raised in a worker; only its words came through
        _, what, cause, next_command = ours[-1]
        return cast(PenstockError, kind(what, cause=cause or None, next_command=next_command or f"read {log}"))
    if STOP_MARK in text:
        said = text.split(STOP_MARK, 1)[1].split("\n", maxsplit=1)[0].strip()
        return RuleStopped(
            f"a record broke a rule that stops the pipeline: {said}",
            cause="the rule says `otherwise: stop`; the batch is not finished and will run again",
            next_command="mend the producer or the rule, then: penstock run FILE",
        )
    if speaks_of_a_value(error):  # the engine quotes it; what a record says must not decide what happened
        return EngineFailed("the engine failed", cause=blame(text) or _cause(lines), next_command=f"read {log}")
    other_state = _first(lines, _OTHER_STATE)
    if other_state:
        return CheckpointForeign(
            "the state in the checkpoint does not fit the steps",
            cause=other_state,
            next_command="bring back the steps and the columns they read; or begin anew: another `checkpoint:`, and "
            "sinks of its own",
        )
    gone = _first(lines, _OFFSETS_GONE)
    if gone:
        return OffsetsVanished(
            "offsets that were not read yet are no longer in Kafka",
            cause=gone,
            next_command="raise the topic's retention; the lost range is in the engine's log: " + str(log),
        )
    away = _first(lines, _KAFKA_AWAY)
    if away:
        return KafkaUnreachable("Kafka did not answer", cause=away, next_command="penstock ps")
    return EngineFailed("the engine failed", cause=_cause(lines), next_command=f"read {log}")


def _said(text: str) -> list[str]:
    """The lines that say something: no stack frames."""
    return [line.strip() for line in text.split("\n") if line.strip() and not _JAVA_NOISE.match(line)]


def _first(lines: list[str], signs: tuple[str, ...]) -> str:
    return next((_bare(line)[:300] for line in lines if any(s in line for s in signs)), "")


def _cause(lines: list[str]) -> str:
    causes = [line for line in lines if line.startswith(("Caused by:", ": "))]  # py4j begins the cause with a colon
    return _bare(causes[-1] if causes else lines[0] if lines else "unknown")[:500]


def _bare(line: str) -> str:
    return line.removeprefix("Caused by:").removeprefix(":").strip()
