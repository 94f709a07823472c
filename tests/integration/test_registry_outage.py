"""The registry dies while schemas are needed: what was seen is known, the rest is an error in bounded time."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from penstock.errors import RegistryUnreachable
from penstock.local.registry import LocalRegistry
from penstock.registry.client.registry import Lookup, Reference, RegisteredSchema, RegistrySettings, SchemaRegistry

MONEY = 'syntax = "proto3";\npackage shop;\nmessage Money { int64 units = 1; }\n'
TAX = 'syntax = "proto3";\npackage shop;\nimport "money.proto";\nmessage Tax { Money amount = 1; }\n'


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    """A registry of this module's own: the tests here kill it."""
    server = LocalRegistry(tmp_path_factory.mktemp("mortal"))
    yield server
    server.down()


@pytest.fixture
def client(mortal: LocalRegistry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(RegistrySettings(mortal.up())) as opened:
        yield opened


def register(client: SchemaRegistry, name: str) -> int:
    return client.register(name, "AVRO", json.dumps({"type": "record", "name": name, "fields": []}))


def unreachable_after(ask: Lookup, schema_id: int) -> float:
    started = time.monotonic()
    with pytest.raises(RegistryUnreachable) as raised:
        ask(schema_id)
    assert raised.value.retryable
    assert raised.value.next_command == "penstock up --registry"
    return time.monotonic() - started


def test_known_ids_outlive_the_registry_and_unknown_ones_are_unreachable_in_bounded_time(
    mortal: LocalRegistry, client: SchemaRegistry, tmp_path: Path
) -> None:
    client.register("money", "PROTOBUF", MONEY)
    known = client.register("tax", "PROTOBUF", TAX, [Reference("money.proto", "money", 1)])
    unknown = register(client, "NeverAskedFor")
    settings = RegistrySettings(mortal.url, timeout=4)
    before = SchemaRegistry(settings, tmp_path).by_id(known)
    assert before is not None
    assert dict(before.references)["money.proto"].text == MONEY

    mortal.kill()
    later = SchemaRegistry(settings, tmp_path).by_id  # nothing in memory: as a process that starts during the outage
    assert later(known) == before
    assert unreachable_after(later, unknown) < 6

    # The same when it hangs instead of refusing: the connection is taken, and nothing comes.
    mortal.up()
    mortal.pause()
    try:
        hanging = SchemaRegistry(RegistrySettings(mortal.url, timeout=2), tmp_path).by_id
        assert hanging(known) == before
        assert unreachable_after(hanging, unknown) < 4
    finally:
        mortal.resume()
    # The very same lookup recovers when the registry does.
    found = later(unknown)
    assert found is not None
    assert json.loads(found.text)["name"] == "NeverAskedFor"


def test_unknown_id_is_asked_for_again_and_found_once_it_is_registered(client: SchemaRegistry, tmp_path: Path) -> None:
    asked = SchemaRegistry(RegistrySettings(client.url), tmp_path).by_id
    next_id = register(client, "Before") + 1
    assert asked(next_id) is None
    assert register(client, "After") == next_id
    assert asked(next_id) is not None


def test_damaged_and_foreign_cache_files_are_fetched_again(client: SchemaRegistry, tmp_path: Path) -> None:
    first, second = register(client, "First"), register(client, "Second")
    settings = RegistrySettings(client.url)
    good = SchemaRegistry(settings, tmp_path).by_id(first)
    SchemaRegistry(settings, tmp_path).by_id(second)
    [kept] = tmp_path.glob(f"*/{first}.json")
    whole = kept.read_bytes()
    other = kept.with_name(f"{second}.json").read_bytes()
    damages = [b"", whole[: len(whole) // 2], whole.replace(b"First", b"Worst"), b"[]", b"\xff\xfe", other]
    for damage in damages:
        kept.write_bytes(damage)
        assert SchemaRegistry(settings, tmp_path).by_id(first) == good, damage
        assert json.loads(kept.read_bytes()) == json.loads(whole), "it was not repaired"


def fill(url: str, cache: Path, ids: list[int], start: Barrier, answers: multiprocessing.Queue[bytes]) -> None:
    """In a process of its own: ask for all ids at once with the others, many times over."""
    start.wait(60)
    found: list[RegisteredSchema | None] = []
    for _ in range(20):
        asked = SchemaRegistry(RegistrySettings(url), cache).by_id
        found = [asked(each) for each in ids]
    answers.put(pickle.dumps(found))


def test_processes_that_fill_the_cache_at_once_all_get_whole_schemas(
    mortal: LocalRegistry, client: SchemaRegistry, tmp_path: Path
) -> None:
    ids = [register(client, f"Shared{n}") for n in range(10)]
    spawn = multiprocessing.get_context("spawn")
    start, answers = spawn.Barrier(3), spawn.Queue()
    children = [spawn.Process(target=fill, args=(mortal.url, tmp_path, ids, start, answers)) for _ in range(3)]
    for child in children:
        child.start()
    try:
        found = [pickle.loads(answers.get(timeout=90)) for _ in children]
    finally:
        for child in children:
            child.join(30)
            if child.is_alive():
                child.kill()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert found[0] == found[1] == found[2]
    assert [schema.id for schema in found[0]] == ids
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == sorted(f"{each}.json" for each in ids)
    mortal.kill()
    offline = SchemaRegistry(RegistrySettings(mortal.url, timeout=1), tmp_path).by_id
    assert [offline(each) for each in ids] == found[0]
