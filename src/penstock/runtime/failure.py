"""What the engine's exceptions mean. Spark wraps everything several times; the user gets the cause in our words."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import EngineFailed, KafkaUnreachable, OffsetsVanished, PenstockError, RuleStopped
from penstock.transform.contract import STOP_MARK

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
_JAVA_NOISE = re.compile(r"^\s*(at |\.\.\. \d+ more|Caused by: java\.lang\.Thread)")


def translate(error: BaseException, log: Path) -> PenstockError:
    """The error a user should see for a failed query. Penstock's own errors pass unchanged."""
    if isinstance(error, PenstockError):
        return error
    text = str(error)
    if STOP_MARK in text:
        said = text.split(STOP_MARK, 1)[1].split("\n", maxsplit=1)[0].strip()
        return RuleStopped(
            f"a record broke a rule that stops the pipeline: {said}",
            cause="the rule says `otherwise: stop`; nothing of this batch was written",
            next_command="mend the producer or the rule, then: penstock run FILE",
        )
    if any(sign in text for sign in _OFFSETS_GONE):
        return OffsetsVanished(
            "offsets that were not read yet are no longer in Kafka",
            cause=_first_line(text, _OFFSETS_GONE),
            next_command="raise the topic's retention; the lost range is in the engine's log: " + str(log),
        )
    if any(sign in text for sign in _KAFKA_AWAY):
        return KafkaUnreachable(
            "Kafka did not answer", cause=_first_line(text, _KAFKA_AWAY), next_command="penstock ps"
        )
    return EngineFailed("the engine failed", cause=_cause(text), next_command=f"read {log}")


def _first_line(text: str, signs: tuple[str, ...]) -> str:
    return next((line.strip()[:300] for line in text.split("\n") if any(s in line for s in signs)), "")


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip() and not _JAVA_NOISE.match(line)]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1].removeprefix("Caused by:").strip() if causes else lines[0] if lines else "unknown")[:500]
