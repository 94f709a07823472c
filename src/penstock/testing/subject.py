"""What the author of a sink gives to the conformance suite: the sink, a reader beside it, and what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from penstock.sinks.contract import Sink

TOPIC = "conformance"
"""The topic that rows say they came from. Only a sink that asks Kafka needs it to exist, with this many partitions:"""
PARTITIONS = 2
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"


@dataclass(frozen=True)
class Traits:
    """What is declared about a sink. What it promises about replays is not declared here: its `guarantee` says it."""

    upserts: bool = False
    """Whether it was made to replace rows by column `id`, and to delete those whose `_deleted` is true."""
    visible_by: Literal["batch", "row"] = "batch"
    """What a reader sees whole or not at all. By row: it may see a part of a batch, never one that is taken back."""
    refuses: Mapping[str, object] = field(default_factory=dict)
    """Values of columns (`text string`, `n int`) by which it must reject a row, and take the others. An upserting sink
    needs none: it rejects a row whose `id` is null."""
    excused: Mapping[str, str] = field(default_factory=dict)
    """Checks that do not apply, by name, and why. Replays and crashes cannot be excused."""


class Subject(Protocol):
    """One place that a sink writes to, empty when a check begins.

    It is pickled and sent to a process that is then killed, so it holds addresses, not connections; and its class can
    be imported.
    """

    @property
    def traits(self) -> Traits: ...

    def sink(self) -> Sink:
        """A new sink over the place, as a start of the pipeline makes it. Called many times."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """What a reader sees that is not the sink, now: none when there is nothing yet. Called from other threads while
        a batch is written, too. A column that is null may be left out."""

    def as_read(self, value: Any) -> Any:
        """What its reader makes of a value that was written: the same, unless the format has another form of it."""


def is_exactly_once(subject: Subject) -> bool:
    """What the sink itself promises decides what it is held to."""
    return subject.sink().guarantee.startswith(EXACTLY_ONCE)
