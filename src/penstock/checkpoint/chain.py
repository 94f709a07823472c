"""How the lines of a ledger are tied together: each ends in the hash of the line before it and a hash of its own.

    {"pipeline": ..., "after": "<hash of the line before>", "hash": "<hash of all that stands left of this field>"}

So a line that was changed, removed, moved or repeated shows in the files alone, also where one file follows another.
What a crash cut off is no line: the next append follows the last whole one. Lines of older versions have no hashes;
the first line that has follows all of them together, and ties them down from then on.

This finds accidents and edits by hand. Whoever recomputes every hash can forge a ledger: nothing here is secret.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

FIELDS = ("after", "hash")
START = "0" * 32
"""The hash before the first line."""

_TIES = re.compile(rb',"after":"([0-9a-f]{32})","hash":"([0-9a-f]{32})"\}')
_LENGTH = len(b',"after":"","hash":""}') + 64
_OWN = len(b',"hash":""}') + 32


@dataclass(frozen=True, slots=True)
class Ties:
    after: str
    hash: str


def tied(line: bytes, after: str) -> bytes:
    """A JSON object, on one line, tied to the line before it."""
    left = b'%s,"after":"%s"' % (line.rstrip().removesuffix(b"}"), after.encode())
    return b'%s,"hash":"%s"}' % (left, _hash(left).encode())


def ties_of(line: bytes) -> Ties | None:
    """None: an older version wrote the line, or it was cut off."""
    found = _TIES.fullmatch(line, max(0, len(line) - _LENGTH))
    return Ties(found[1].decode(), found[2].decode()) if found else None


def was_changed(line: bytes, ties: Ties | None = None) -> bool:
    """Whether a line with hashes is not as it was written. `ties`: its own, where they are known."""
    ties = ties or ties_of(line)
    return ties is not None and _hash(line[:-_OWN]) != ties.hash


def over_untied(after: str, lines: Iterable[bytes]) -> str:
    """What the first line with hashes follows: the lines of older versions, and all that crashes left between them."""
    for line in lines:
        after = _hash(after.encode() + line)
    return after


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
