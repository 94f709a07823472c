"""Reasons of dead letters, grouped by what is wrong and not by the record it is wrong with."""

from __future__ import annotations

import re


def pattern(reason: str) -> str:
    """A reason without what differs from record to record: values, numbers, quoted text."""
    reason = re.sub(r"; (the value is|begins with) .*", "", reason, flags=re.DOTALL)
    reason = re.sub(r"; (\w+) = .*", r" (by \1)", reason, flags=re.DOTALL)
    reason = re.sub(r": .* is not a ", ": … is not a ", reason, flags=re.DOTALL)
    reason = re.sub(r"\[\d+\]", "[…]", reason)
    reason = re.sub(r"\(\d+ bytes\)", "(… bytes)", reason)
    reason = re.sub(r"has [\d,]+ bytes", "has … bytes", reason)
    reason = re.sub(r"The value '.*' of the type", "The value … of the type", reason, flags=re.DOTALL)
    return re.sub(r"(position|byte) (0x)?[0-9a-f]+", r"\1 …", reason)
