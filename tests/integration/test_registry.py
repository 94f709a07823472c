"""The client on a real Apicurio: schemas of all kinds, references, compatibility."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import (
    BadArgument,
    RegistryRefused,
    SchemaIncompatible,
    SchemaInvalid,
    SchemaMissing,
    SubjectMissing,
)
from penstock.local.registry import LocalRegistry
from penstock.registry.client.registry import MODES, Mode, Reference, RegistrySettings, SchemaRegistry


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(RegistrySettings(registry.url)) as opened:
        yield opened


@pytest.fixture
def subject() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}-value"


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "string"}
COUNT = {"name": "count", "type": "int"}
COUNT_OPTIONAL = {**COUNT, "default": 0}

MONEY = 'syntax = "proto3";\npackage shop;\nmessage Money { int64 units = 1; string currency = 2; }\n'
TAX = 'syntax = "proto3";\npackage shop;\nimport "money.proto";\nmessage Tax { Money amount = 1; }\n'
BILL = (
    'syntax = "proto3";\npackage shop;\nimport "money.proto";\nimport "tax.proto";\n'
    "message Bill { string id = 1; Money total = 2; repeated Tax taxes = 3; }\n"
)


def test_avro_schema_comes_back_by_id_by_version_and_as_the_latest(client: SchemaRegistry, subject: str) -> None:
    first = client.register(subject, "AVRO", avro(ID))
    second = client.register(subject, "AVRO", avro(ID, COUNT_OPTIONAL))
    assert client.versions(subject) == [1, 2]
    assert subject in client.subjects()

    schema = client.by_id(first)
    assert schema is not None
    assert (schema.id, schema.kind, schema.references) == (first, "AVRO", ())
    assert json.loads(schema.text) == json.loads(avro(ID))
    assert client.version(subject, 1).schema == schema
    latest = client.latest(subject)
    assert (latest.version, latest.schema.id) == (2, second)


def test_schema_registered_again_keeps_its_id_and_adds_no_version(client: SchemaRegistry, subject: str) -> None:
    first = client.register(subject, "AVRO", avro(ID))
    assert client.register(subject, "AVRO", avro(ID)) == first
    assert client.versions(subject) == [1]


def test_protobuf_references_are_resolved_through_every_level(client: SchemaRegistry, subject: str) -> None:
    money, tax = f"money-{subject}", f"tax-{subject}"
    money_id = client.register(money, "PROTOBUF", MONEY)
    tax_id = client.register(tax, "PROTOBUF", TAX, [Reference("money.proto", money, 1)])
    uses = [Reference("money.proto", money, 1), Reference("tax.proto", tax, 1)]
    bill = client.by_id(client.register(subject, "PROTOBUF", BILL, uses))
    assert bill is not None
    assert (bill.kind, bill.text) == ("PROTOBUF", BILL)
    used = dict(bill.references)
    assert {name: schema.id for name, schema in used.items()} == {"money.proto": money_id, "tax.proto": tax_id}
    assert used["money.proto"].text == MONEY
    assert dict(used["tax.proto"].references)["money.proto"] == used["money.proto"]


def test_reference_to_a_subject_that_is_not_there_is_refused(client: SchemaRegistry, subject: str) -> None:
    with pytest.raises(SchemaInvalid) as raised:
        client.register(subject, "PROTOBUF", TAX, [Reference("money.proto", f"gone-{subject}", 1)])
    assert "reference" in (raised.value.cause or "").lower()


def test_json_schema_and_avro_references_come_back(client: SchemaRegistry, subject: str) -> None:
    text = json.dumps({"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": False})
    schema = client.by_id(client.register(subject, "JSON", text))
    assert schema is not None
    assert (schema.kind, json.loads(schema.text)) == ("JSON", json.loads(text))

    item, order = f"item-{subject}", f"order-{subject}"
    client.register(item, "AVRO", json.dumps({"type": "record", "name": "Item", "namespace": "shop", "fields": [ID]}))
    with_item = avro(ID, {"name": "item", "type": "shop.Item"})
    found = client.by_id(client.register(order, "AVRO", with_item, [Reference("shop.Item", item, 1)]))
    assert found is not None
    assert [(name, json.loads(used.text)["name"]) for name, used in found.references] == [("shop.Item", "Item")]


# As the next version after {id}, {id, count = 0}: an added field without a default cannot be filled in for old data,
# and old code cannot do without a field that had no default.
REQUIRED_ADDED = avro(ID, COUNT_OPTIONAL, {"name": "shop", "type": "string"})
REQUIRED_REMOVED = avro(COUNT_OPTIONAL)
OPTIONAL_REMOVED = avro(ID)
RETYPED = avro({"name": "id", "type": "int"})


@pytest.mark.parametrize(
    ("mode", "taken", "refused"),
    [
        ("BACKWARD", REQUIRED_REMOVED, REQUIRED_ADDED),
        ("FORWARD", REQUIRED_ADDED, REQUIRED_REMOVED),
        ("FULL", OPTIONAL_REMOVED, REQUIRED_REMOVED),
        ("NONE", RETYPED, None),
    ],
)
def test_mode_of_a_subject_decides_what_is_taken(
    client: SchemaRegistry, subject: str, mode: Mode, taken: str, refused: str | None
) -> None:
    client.register(subject, "AVRO", avro(ID))
    client.register(subject, "AVRO", avro(ID, COUNT_OPTIONAL))
    client.set_mode(mode, subject)
    assert client.mode(subject) == mode
    if refused is not None:
        found = client.check(subject, "AVRO", refused)
        assert not found.compatible
        assert found.reasons
        assert all("/fields" in reason for reason in found.reasons), found.reasons
        with pytest.raises(SchemaIncompatible) as raised:
            client.register(subject, "AVRO", refused)
        assert "/fields" in (raised.value.cause or "")
        assert "Exception" not in (raised.value.cause or "")
        assert client.versions(subject) == [1, 2], "asking why has registered it"
    assert client.check(subject, "AVRO", taken).compatible
    client.register(subject, "AVRO", taken)
    assert client.check(subject, "AVRO", taken).compatible


@pytest.mark.parametrize("mode", ["BACKWARD", "FORWARD", "FULL"])
def test_only_a_transitive_mode_compares_with_versions_before_the_last(
    client: SchemaRegistry, subject: str, mode: str
) -> None:
    """`count` went from int to absent to string: each step is fine, the whole way is not."""
    text = {"name": "count", "type": "string", "default": ""}
    client.register(subject, "AVRO", avro(ID, COUNT_OPTIONAL))
    client.register(subject, "AVRO", avro(ID))
    transitive, plain = next(m for m in MODES if m == f"{mode}_TRANSITIVE"), next(m for m in MODES if m == mode)
    client.set_mode(transitive, subject)
    assert client.mode(subject) == transitive
    assert not client.check(subject, "AVRO", avro(ID, text)).compatible
    with pytest.raises(SchemaIncompatible):
        client.register(subject, "AVRO", avro(ID, text))
    client.set_mode(plain, subject)
    assert client.check(subject, "AVRO", avro(ID, text)).compatible
    client.register(subject, "AVRO", avro(ID, text))


def test_protobuf_and_json_are_held_to_the_mode_too(client: SchemaRegistry, subject: str) -> None:
    money, bill = f"money-{subject}", f"bill-{subject}"
    client.register(money, "PROTOBUF", MONEY)
    uses = [Reference("money.proto", money, 1)]
    client.register(bill, "PROTOBUF", TAX, uses)
    client.set_mode("BACKWARD", bill)
    retyped = TAX.replace("Money amount", "string amount")
    assert client.check(bill, "PROTOBUF", TAX + "// a comment\n", uses).compatible
    found = client.check(bill, "PROTOBUF", retyped, uses)
    assert (found.compatible, len(found.reasons)) == (False, 1)
    assert "not backward compatible" in found.reasons[0]
    with pytest.raises(SchemaIncompatible):
        client.register(bill, "PROTOBUF", retyped, uses)

    client.register(subject, "JSON", json.dumps({"type": "object", "properties": {"id": {"type": "string"}}}))
    client.set_mode("FULL", subject)
    other = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
    assert any("/properties/id" in reason for reason in client.check(subject, "JSON", other).reasons)
    with pytest.raises(SchemaIncompatible) as raised:
        client.register(subject, "JSON", other)
    assert "/properties/id" in (raised.value.cause or "")


def test_subject_without_a_mode_of_its_own_has_the_global_one_which_is_backward(
    client: SchemaRegistry, subject: str
) -> None:
    client.register(subject, "AVRO", avro(ID))
    assert client.mode() == "BACKWARD"
    assert client.mode(subject) == "BACKWARD"
    with pytest.raises(SchemaIncompatible):
        client.register(subject, "AVRO", avro(ID, COUNT))


def test_what_is_not_there_is_named_and_an_unknown_id_is_none(client: SchemaRegistry, subject: str) -> None:
    client.register(subject, "AVRO", avro(ID))
    for garbage in (0, 2_000_000_000, 2**31 - 1, -1, 2**31, 2**63, 2**64):
        assert client.by_id(garbage) is None
    mistyped = subject.replace("orders", "oders")
    for ask in (client.latest, client.versions, client.mode, lambda s: client.check(s, "AVRO", avro(ID))):
        with pytest.raises(SubjectMissing) as raised:
            ask(mistyped)
        assert raised.value.cause == f"did you mean '{subject}'?"
    with pytest.raises(SubjectMissing):
        client.set_mode("FULL", mistyped)
    assert mistyped not in client.subjects()
    with pytest.raises(SchemaMissing):
        client.version(subject, 99)


@pytest.mark.parametrize("text", ["{nope", '{"type": "record"}', ""])
def test_text_that_is_no_schema_is_refused_as_invalid(client: SchemaRegistry, subject: str, text: str) -> None:
    with pytest.raises(SchemaInvalid):
        client.register(subject, "AVRO", text)
    assert subject not in client.subjects()


def test_unknown_mode_kind_and_empty_subject_are_bad_arguments(client: SchemaRegistry, subject: str) -> None:
    with pytest.raises(BadArgument):
        client.set_mode("SIDEWAYS")  # type: ignore[arg-type]
    with pytest.raises(BadArgument):
        client.register(subject, "XML", "<a/>")  # type: ignore[arg-type]
    with pytest.raises(BadArgument):
        client.versions("")


def test_subject_with_odd_characters_is_one_subject(client: SchemaRegistry, subject: str) -> None:
    odd = f"{subject} ?a=1&b #ü%2F"
    registered = client.register(odd, "AVRO", avro(ID))
    assert client.latest(odd).schema.id == registered
    assert odd in client.subjects()


def test_address_without_the_api_path_is_refused_and_no_id_is_called_unknown(registry: LocalRegistry) -> None:
    """A wrong address that answers 404 must not make every record of a topic a dead letter."""
    with SchemaRegistry(RegistrySettings(registry.url.replace("/apis/ccompat/v7", ""))) as client:
        with pytest.raises(RegistryRefused):
            client.by_id(1)
        with pytest.raises(RegistryRefused):
            client.subjects()
