"""How often a registry is asked for schemas that it does not have, or while it is away."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa

from penstock import record
from penstock.decode.arrow.wire import WithHeader
from penstock.decode.json import JsonDecoder
from penstock.errors import RegistryUnreachable
from penstock.registry.client.cache import SchemaCache
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry
from penstock.registry.client.schema import GivenUp, Lookup, RegisteredSchema
from penstock.spec.types import Member, Scalar, Struct

STRUCT = Struct((Member("n", Scalar("int")),))
KNOWN = RegisteredSchema(1, "JSON", "{}")


def values(*ids: int) -> pa.Array:
    return pa.array([b"\0" + i.to_bytes(4, "big") + b'{"n":1}' for i in ids], pa.binary())


def decoder(lookup: Lookup) -> WithHeader:
    return WithHeader(lambda: JsonDecoder(STRUCT), "JSON", lookup)


def test_an_unknown_id_is_asked_for_once_in_a_batch_and_again_in_the_next() -> None:
    asked: list[int] = []
    registered: dict[int, RegisteredSchema] = {1: KNOWN}

    def lookup(schema_id: int) -> RegisteredSchema | None:
        asked.append(schema_id)
        return registered.get(schema_id)

    decode = decoder(lookup)
    failures = decode(values(7, 7, 1, 7, 8, 8)).failures
    assert {i: f.error_class for i, f in failures.items()} == dict.fromkeys([0, 1, 3, 4, 5], record.UNKNOWN_SCHEMA)
    assert failures[5].reason == "the registry has no schema 8"
    assert asked == [7, 1, 8]
    registered[7] = KNOWN
    assert list(decode(values(7, 7, 8)).failures) == [2]
    assert asked == [7, 1, 8, 7, 8]


def test_a_registry_that_is_away_is_waited_for_once_per_task() -> None:
    asked: list[int] = []

    def lookup(schema_id: int) -> RegisteredSchema | None:
        asked.append(schema_id)
        if schema_id == 1:
            return KNOWN
        raise RegistryUnreachable("away")

    decode = decoder(GivenUp(lookup, {2: KNOWN}.get))
    failures = decode(values(1, 7, 7, 8, 2, 9)).failures
    assert list(failures) == [1, 2, 3, 5]
    assert failures[5].reason == "schema 9 is not known here, and the registry does not answer"
    assert list(decode(values(9, 1, 2)).failures) == [0]
    assert asked == [1, 7]


def test_an_id_that_the_registry_denies_is_not_blamed_on_its_silence() -> None:
    decode = decoder(GivenUp({1: KNOWN}.get, {}.get))  # it was given up, and answers again
    assert decode(values(7)).failures[0].reason == "the registry has no schema 7"


def test_what_the_cache_holds_is_known_while_the_registry_is_away(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:1"
    SchemaCache(tmp_path, nobody).put(KNOWN)
    registry = SchemaRegistry(RegistrySettings(nobody, timeout=0.1), tmp_path)
    lookup = pickle.loads(pickle.dumps(GivenUp(registry.by_id, registry.kept)))
    assert lookup(7) is None
    assert lookup(1) == KNOWN
    assert lookup(8) is None
