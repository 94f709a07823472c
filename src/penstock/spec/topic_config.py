"""The topic settings of Apache Kafka, so that `check` can name a misspelled one without a broker.

Brokers have the last word: `plan` and `apply` ask them (`kafka/reshape.py`). Newer ones and those of other vendors know
more than this list, so a name that is not in it is only warned of, unless it is surely one of these, misspelled.
"""

from __future__ import annotations

import difflib
import re

from penstock.spec.mistake import nearest

VERSION = "4.3"

KNOWN = (
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)

UNTIL_4 = ("message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms")
"""What only older brokers have, or take without effect."""

_MISSPELLED = 0.8  # how alike a word and its misspelling are: `retentin` and `retention` 0.94, `min` and `max` 0.33


def misspelled(name: str) -> str | None:
    """The setting that a name was surely to be: word by word the same, but for a letter. A setting that is not listed
    here has a word of its own."""
    if name.startswith("log.") and name.removeprefix("log.") in KNOWN:
        return name.removeprefix("log.")  # as brokers call what holds for all topics
    words = _words(name)
    alike = [known for known in KNOWN if _same_words(words, _words(known))]
    return nearest(name, alike)


def is_known(name: str) -> bool:
    return name in KNOWN or name in UNTIL_4


def _words(name: str) -> list[str]:
    return re.split(r"[._-]", name.lower())


def _same_words(words: list[str], known: list[str]) -> bool:
    ratios = (difflib.SequenceMatcher(None, a, b).ratio() for a, b in zip(words, known, strict=False))
    return len(words) == len(known) and all(ratio >= _MISSPELLED for ratio in ratios)
