"""A dead letter as a line of JSON, byte for byte: key, value and the values of headers in base64.

What `dlq export` writes, and how a replay writes down the letters it has chosen.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import fields
from typing import Any

from penstock.deadletters.dead_letter import DeadLetter

_FIELDS = tuple(field.name for field in fields(DeadLetter))


def to_fields(letter: DeadLetter) -> dict[str, Any]:
    return {
        **{name: getattr(letter, name) for name in _FIELDS},
        "key": _text(letter.key),
        "value": _text(letter.value),
        "headers": [[name, _text(value)] for name, value in letter.headers],
    }


def to_line(letter: DeadLetter, **more: Any) -> str:
    """`more`: what else stands on the line; `from_line` passes over it."""
    return json.dumps({**more, **to_fields(letter)}, ensure_ascii=True, separators=(",", ":")) + "\n"


def from_line(line: str) -> DeadLetter:
    said: dict[str, Any] = json.loads(line)
    given = {name: said[name] for name in _FIELDS}
    given["key"], given["value"] = _bytes(said["key"]), _bytes(said["value"])
    given["headers"] = [(name, _bytes(value)) for name, value in said["headers"]]
    return DeadLetter(**given)


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
