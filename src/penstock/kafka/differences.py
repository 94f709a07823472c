"""What of a topic is not as the spec says, and what it would mean to change it: pure functions over settings.

Most changes are harmless and are made by `penstock apply`. Some take records away, or the safety of those that are
written: these are made only by `penstock apply --force`. And some Kafka cannot make at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.spec.mistake import near

Fate = Literal["change", "force", "left", "impossible"]
"""What `apply` does: it makes the change; only with --force; it leaves it as it is; it is a mistake in the spec."""

PARTITIONS, REPLICATION = "partitions", "replication"
NOT_KNOWN = "not known to Kafka"

# Settings of which less takes records away or refuses some, and what happens then.
_LESS_LOSES = {
    "retention.ms": "Kafka deletes the records that are older",
    "retention.bytes": "Kafka deletes the oldest records of partitions that are larger",
    "delete.retention.ms": "readers that are slower than that miss deletes",
    "min.compaction.lag.ms": "older records of a key go sooner",
    "max.compaction.lag.ms": "older records of a key go sooner",
    "max.message.bytes": "larger records are refused, also those of programs that write them today",
}
_UNLIMITED = -1
_POLICY_LOSES = {
    "compact": "Kafka deletes all but the newest record of each key, and refuses records without a key",
    "delete": "Kafka deletes records older than retention.ms, also the newest of their key",
}
_VALUE_LOSES = {
    ("unclean.leader.election.enable", "true"): "a copy that lags can become the leader: acknowledged records are lost",
    ("remote.storage.enable", "false"): "what is only in the remote storage is no longer read",
}
_MOVES_KEYS = "new records of a key may go to another partition than its old ones"
_NEEDS_MOVING = "moving copies between brokers is for kafka-reassign-partitions"
_NO_SETTING = "topics have no such setting on these brokers"
_NEVER_FEWER = "Kafka cannot take partitions away"


@dataclass(frozen=True)
class Difference:
    """One setting of a topic that is not as the spec says."""

    topic: str
    setting: str
    found: str
    spec: str
    fate: Fate = "change"
    effect: str = ""  # what the change brings about, or why it is not made


def of_topic(topic: str, spec: Mapping[str, str], found: Mapping[str, str], replication: int) -> list[Difference]:
    """Both sides as text, in Kafka's names and `partitions`, `replication`. Only what the spec names is compared."""
    made = unknown(topic, spec, found)
    for setting, wanted in spec.items():
        if setting in found and not same(found[setting], wanted):
            there = found[setting]
            made.append(Difference(topic, setting, there, wanted, *_judge(setting, there, wanted, replication)))
    return made


def unknown(topic: str, spec: Mapping[str, str], known: Collection[str]) -> list[Difference]:
    """Settings that are not among those of a topic, of which the brokers name all, also those with defaults."""
    made = []
    for setting, wanted in spec.items():
        if setting not in known:
            meant = near(setting, known)
            effect = _NO_SETTING + (f" ({meant})" if meant else "")
            made.append(Difference(topic, setting, NOT_KNOWN, wanted, "impossible", effect))
    return made


def same(found: str, spec: str) -> bool:
    """Whether Kafka means the same by both: case, the way a number is written and the order of a list do not count."""
    a, b = found.strip().lower(), spec.strip().lower()
    numbers = _number(a), _number(b)
    if a == b or (None not in numbers and numbers[0] == numbers[1]):
        return True
    return "," in a and "," in b and _listed(a) == _listed(b)


def _judge(setting: str, found: str, spec: str, replication: int) -> tuple[Fate, str]:
    before, after = _number(found), _number(spec)
    less = before is not None and after is not None and _as_limit(setting, after) < _as_limit(setting, before)
    if setting == PARTITIONS:
        return ("impossible", _NEVER_FEWER) if less else ("change", _MOVES_KEYS)
    if setting == REPLICATION:
        return "left", _NEEDS_MOVING
    if setting == "cleanup.policy":
        added = [_POLICY_LOSES[each] for each in sorted(_listed(spec) - _listed(found)) if each in _POLICY_LOSES]
        return ("force", "; ".join(added)) if added else ("change", "")
    if setting == "min.insync.replicas":
        if less:
            return "force", "acknowledged records are then on fewer brokers"
        if after is not None and after > replication:
            there = "is 1 copy" if replication == 1 else f"are {replication} copies"
            return "force", f"there {there}: Kafka 4 asks for no more than that, older ones refuse writes with acks=all"
    if less and setting in _LESS_LOSES:
        return "force", _LESS_LOSES[setting]
    lost = _VALUE_LOSES.get((setting, spec.strip().lower()))
    return ("force", lost) if lost else ("change", "")


def _as_limit(setting: str, number: float) -> float:
    return float("inf") if setting.startswith("retention.") and number == _UNLIMITED else number


def _number(text: str) -> float | None:
    for kind in (int, float):  # a float cannot hold every long
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _listed(text: str) -> set[str]:
    return {part.strip() for part in text.lower().split(",") if part.strip()}
