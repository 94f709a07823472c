"""The cache of schemas on disk, without a registry."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from penstock.registry.client.cache import SchemaCache
from penstock.registry.client.registry import RegisteredSchema, RegistrySettings, SchemaRegistry

USED = RegisteredSchema(1, "PROTOBUF", 'syntax = "proto3"; // ü\n')
SCHEMA = RegisteredSchema(2, "PROTOBUF", 'import "a";', (("a", USED), ("b", RegisteredSchema(3, "PROTOBUF", "", ()))))
URL = "http://127.0.0.1:1/apis/ccompat/v7"


def test_schema_comes_back_equal_with_its_references(tmp_path: Path) -> None:
    SchemaCache(tmp_path, URL).put(SCHEMA)
    assert SchemaCache(tmp_path, URL).get(2) == SCHEMA
    assert SchemaCache(tmp_path, URL).get(1) is None
    assert [path.name for path in tmp_path.rglob("*.*")] == ["2.json"]


def test_registries_do_not_mix_and_two_spellings_of_one_address_are_one(tmp_path: Path) -> None:
    SchemaCache(tmp_path, "http://One:80/a/").put(SCHEMA)
    assert SchemaCache(tmp_path, "HTTP://one:80/a").get(2) == SCHEMA
    for other in ("http://two:80/a", "https://one:80/a", "http://one:81/a", "http://one:80/A"):
        assert SchemaCache(tmp_path, other).get(2) is None


def test_file_moved_in_from_another_registry_is_not_believed(tmp_path: Path) -> None:
    one, two = SchemaCache(tmp_path, "http://one"), SchemaCache(tmp_path, "http://two")
    one.put(SCHEMA)
    two.directory.mkdir()
    (one.directory / "2.json").rename(two.directory / "2.json")
    assert two.get(2) is None


def test_cached_id_is_served_with_nobody_to_ask_and_no_http_library(tmp_path: Path) -> None:
    SchemaCache(tmp_path, URL).put(SCHEMA)
    asked = SchemaRegistry(RegistrySettings(URL, timeout=0.5), tmp_path).by_id
    assert asked(2) == SCHEMA


def test_disk_that_cannot_be_written_costs_the_cache_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file where the directory should be: unlike permissions, it stops root too."""
    cache = SchemaCache(tmp_path, URL)
    cache.directory.write_text("in the way")
    with caplog.at_level(logging.WARNING, "penstock.registry.client.cache"):
        cache.put(SCHEMA)
    assert cache.get(2) is None
    assert "cannot be kept" in caplog.text


def test_crash_while_writing_leaves_no_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_self: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    cache = SchemaCache(tmp_path, URL)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            cache.put(SCHEMA)
    assert os.listdir(cache.directory) == []  # noqa: PTH208
    assert cache.get(2) is None
