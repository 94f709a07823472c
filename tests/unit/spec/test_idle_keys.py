"""A key that would do nothing is a mistake; where it does something it is none."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec.idle_keys import idle_keys
from penstock.spec.source import Source

INLINE = {"fields": {"id": "bigint"}}


def wrong(part: str, how: dict[str, Any]) -> list[str]:
    source = Source.model_validate({"topics": {"orders": {"value": {"format": "string"}, part: how}}})
    found = list(idle_keys(source))
    assert all(where[:4] == ("source", "topics", "orders", part) for where, _, _ in found)
    return [str(where[-1]) for where, _, _ in found]


@pytest.mark.parametrize(
    ("part", "how", "idle"),
    [
        ("key", {"format": "string", "tombstones": "drop"}, ["tombstones"]),
        ("value", {"format": "avro", "schema": "a.avsc", "version": 2, "subject": "s"}, ["version", "subject"]),
        ("value", {"format": "protobuf", "schema": "a.proto", "subject": "s"}, ["subject"]),
        ("value", {"format": "avro", "schema": "a.avsc", "wire": "raw", "unreadable": "stop"}, ["unreadable"]),
        ("value", {"format": "json", "schema": INLINE, "version": 3, "unreadable": "stop"}, None),
        ("key", {"format": "json", "schema": INLINE, "unreadable": "stop"}, ["unreadable"]),
    ],
)
def test_key_that_does_nothing_is_a_mistake(part: str, how: dict[str, Any], idle: list[str] | None) -> None:
    assert wrong(part, how) == (idle or ["version", "unreadable"])


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("value", {"format": "string", "tombstones": "drop"}),
        ("value", {"format": "json", "schema": INLINE, "version": "latest", "unreadable": "dead-letter"}),
        ("value", {"format": "avro", "version": 2, "subject": "s", "unreadable": "stop"}),
        ("value", {"format": "avro", "schema": "a.avsc", "unreadable": "stop"}),
        ("key", {"format": "protobuf", "version": 1, "unreadable": "stop"}),
        ("key", {"format": "json", "unreadable": "stop"}),
    ],
)
def test_key_that_does_something_is_none(part: str, how: dict[str, Any]) -> None:
    assert wrong(part, how) == []
