"""Positions as an operator writes them: `earliest`, `latest`, a time, or `topic:partition=offset,...`."""

from __future__ import annotations

from penstock.errors import BadArgument, StartNotThere
from penstock.spec.start import EARLIEST, LATEST, StartAt, milliseconds


def parsed(text: str, others: str) -> StartAt:
    """`others`: where partitions are that the text does not name."""
    if text in ("earliest", "latest"):
        return StartAt.model_validate({"offsets": {}, "others": text})
    try:
        if "=" in text:
            offsets: dict[str, dict[int, int]] = {}
            for part in text.split(","):
                place, _, offset = part.partition("=")
                topic, _, partition = place.rpartition(":")
                offsets.setdefault(topic.strip(), {})[int(partition)] = int(offset)
            return StartAt.model_validate({"offsets": offsets, "others": others})
        time_ = milliseconds(text)
    except ValueError:
        raise BadArgument(
            f"'{text}' is no position",
            cause="expected earliest, latest, a time such as 2026-11-01T00:00:00Z, or topic:partition=offset,...",
            next_command="give it in one of these forms",
        ) from None
    return StartAt.model_validate({"timestamp": time_, "others": others, "no_such_record": "latest"})


def within(mark: tuple[int, int], offset: int, where: tuple[str, int]) -> int:
    """The offset that a position stands for, which Kafka must hold. `mark`: the first one it holds, and the end."""
    low, high = mark
    if offset >= 0 and not low <= offset <= high:
        raise StartNotThere(
            f"{where[0]}-{where[1]} has no offset {offset}",
            cause=f"Kafka holds offsets {low} to {high} of it",
            next_command="choose a range that is there, or `earliest` and `latest`",
        )
    return {EARLIEST: low, LATEST: high}.get(offset, offset)


def readable(mark: tuple[int, int], stable: int, offset: int, where: tuple[str, int]) -> int:
    """As `within`, for where reading ends, or goes on: not past a record of a transaction that is open, because nobody
    can read on from there before it ends. `stable`: the first such record, or the end; that is what the end means."""
    at = stable if offset == LATEST else within(mark, offset, where)
    if at > stable:
        raise BadArgument(
            f"{where[0]}-{where[1]} cannot be read up to offset {at} yet",
            cause=f"a producer has a transaction open, the first record of it is at offset {stable}",
            next_command="wait until it has ended, or give `latest`: what can be read now",
        )
    return at
