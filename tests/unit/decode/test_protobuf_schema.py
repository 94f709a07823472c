"""Descriptors from text, from what registries hold and from descriptor sets; and what is not let in."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.errors import CompilerFailed
from penstock.registry.client.registry import RegisteredSchema
from penstock.registry.protobuf.message import (
    MessageSchema,
    SchemaMistake,
    files_of,
    from_descriptor_set,
    from_registered,
    from_text,
)
from penstock.registry.protobuf.shape import struct_of

MONEY = 'syntax="proto3"; package money; message Money { int64 units = 1; string currency = 2; }'
PAYMENT = """
// import "not/really.proto";
syntax = "proto3";
package pay;
import "shared/money.proto";
import 'google/protobuf/timestamp.proto';
import "google/type/date.proto";
message Payment { money.Money amount = 1; google.protobuf.Timestamp at = 2; google.type.Date day = 3; }
message Refund { message Reason { string text = 1; } Reason reason = 1; }
"""
COLUMNS = (
    "`amount` struct<`units`:bigint,`currency`:string>, `at` timestamp, `day` struct<`year`:int,`month`:int,`day`:int>"
)


def base64_of(text: str, **references: str) -> str:
    imports = {name.replace("__", "/") + ".proto": t for name, t in references.items()}
    files = from_text(text, FIRST[text], imports).files
    file = FileDescriptorProto.FromString(files[-1])
    return base64.b64encode(file.SerializeToString()).decode()


FIRST = {MONEY: "Money", PAYMENT: "Payment"}


def with_name(name: str, schema: RegisteredSchema, text: str) -> RegisteredSchema:
    return RegisteredSchema(2, "PROTOBUF", text, ((name, schema),))


def columns(schema: MessageSchema) -> str:
    return struct_of(schema.descriptor()).columns()


def test_text_with_imports_has_the_fields_of_all_its_files() -> None:
    schema = from_text(PAYMENT, "Payment", {"shared/money.proto": MONEY})
    assert schema.message == "pay.Payment"
    assert columns(schema) == COLUMNS


@pytest.mark.parametrize("money_as_text", [True, False])
@pytest.mark.parametrize("payment_as_text", [True, False])
def test_registered_schemas_are_text_or_base64_in_any_mixture(money_as_text: bool, payment_as_text: bool) -> None:
    money = RegisteredSchema(1, "PROTOBUF", MONEY if money_as_text else base64_of(MONEY))
    text = PAYMENT if payment_as_text else base64_of(PAYMENT, shared__money=MONEY)
    assert columns(from_registered(with_name("shared/money.proto", money, text), "pay.Payment")) == COLUMNS


def test_schema_that_confluents_serializer_registers_is_read() -> None:
    from confluent_kafka.schema_registry.common.protobuf import _schema_to_str
    from google.protobuf import timestamp_pb2

    text = _schema_to_str(timestamp_pb2.DESCRIPTOR)
    assert columns(from_registered(RegisteredSchema(1, "PROTOBUF", text))) == "`seconds` bigint, `nanos` int"


def test_confluents_own_types_need_no_reference() -> None:
    text = 'syntax="proto3"; import "confluent/types/decimal.proto"; message A { confluent.type.Decimal d = 1; }'
    assert "`precision`:bigint" in columns(from_text(text))


@pytest.mark.parametrize("leave_out", ["", "google/"])
def test_descriptor_set_in_any_order_with_or_without_googles_files(leave_out: str) -> None:
    files = [
        FileDescriptorProto.FromString(f) for f in from_text(PAYMENT, "Payment", {"shared/money.proto": MONEY}).files
    ]
    kept = [f for f in reversed(files) if not (leave_out and f.name.startswith(leave_out))]
    data = FileDescriptorSet(file=kept).SerializeToString()
    assert columns(from_descriptor_set(data, "Payment")) == COLUMNS
    assert from_descriptor_set(data, "money.Money").message == "money.Money"


@pytest.mark.parametrize(
    ("data", "message", "said"),
    [
        (b"\xff\xff", "A", "not a descriptor set"),
        (b"", "A", "no message 'A'"),
        (
            FileDescriptorSet(file=[FileDescriptorProto(name="a", dependency=["gone"])]).SerializeToString(),
            "A",
            "no message",
        ),
    ],
)
def test_descriptor_set_that_is_none_or_has_no_such_message_is_refused(data: bytes, message: str, said: str) -> None:
    with pytest.raises(SchemaMistake, match=said):
        from_descriptor_set(data, message)


def test_message_is_found_by_full_name_by_short_name_or_as_the_only_one() -> None:
    imports = {"shared/money.proto": MONEY}
    assert from_text(MONEY).message == "money.Money"
    assert from_text(PAYMENT, "Refund.Reason", imports).message == "pay.Refund.Reason"
    with pytest.raises(SchemaMistake, match=r"name the message; it has: pay.Payment, pay.Refund, pay.Refund.Reason"):
        from_text(PAYMENT, None, imports)
    with pytest.raises(SchemaMistake, match="no message 'Paiment'"):
        from_text(PAYMENT, "Paiment", imports)


def test_two_schemas_may_mean_different_things_by_the_same_names() -> None:
    other = 'syntax="proto3"; package money; message Money { string text = 1; }'
    first, second = from_text(MONEY), from_text(other)
    assert (columns(first), columns(second)) == ("`units` bigint, `currency` string", "`text` string")
    decoded = [ProtobufDecoder(s)(pa.array([b"\x0a\x01a"], pa.binary())) for s in (first, second)]
    assert [d.columns[0].to_pylist() for d in decoded] == [[0], ["a"]]


def test_schema_survives_the_pickle_that_takes_it_to_the_workers() -> None:
    schema = pickle.loads(pickle.dumps(from_text(PAYMENT, "Payment", {"shared/money.proto": MONEY})))
    assert columns(schema) == COLUMNS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has: none"),
        ("message A {", "missing '}'"),
        ('syntax="proto3"; message A { B b = 1; }', '"B" is not defined'),
        ('syntax="proto3"; message A { int32 a = 1; int32 b = 1; }', "already been used"),
        ('syntax="proto3"; import "gone.proto"; message A { int32 a = 1; }', "gone.proto"),
        ('syntax="proto3"; import "google/protobuf/gone.proto"; message A { int32 a = 1; }', "gone.proto"),
        ('syntax="proto3"; import "_penstock_.proto"; message A { int32 a = 1; }', "recursively imports itself"),
        ("\ud800", "protoc"),
        ("eA==", "protoc"),
    ],
)
def test_text_that_is_no_schema_is_refused_with_what_protoc_says(text: str, said: str) -> None:
    with pytest.raises(SchemaMistake, match=said):
        from_text(text)


def test_files_of_this_machine_cannot_be_imported(tmp_path: Path) -> None:
    secret = tmp_path / "secret.proto"
    secret.write_text('syntax="proto3"; message Secret { int32 x = 1; }')
    for name in (
        str(secret),
        f"../{tmp_path.name}/secret.proto",
        f"../../../../../../..{secret}",
        "imports",
        "/etc/passwd",
    ):
        with pytest.raises(SchemaMistake, match=r"not found|not allowed"):
            from_text(f'syntax="proto3"; import "{name}"; message A {{ Secret s = 1; }}')


@pytest.mark.parametrize(
    "name", ["../../evil.proto", "/etc/evil.proto", "-I/", "@args", "grpc_tools/protoc.py", "a\nb", "", "x" * 5000]
)
def test_name_of_a_reference_never_becomes_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    schema = RegisteredSchema(1, "PROTOBUF", 'syntax="proto3"; message A { int32 a = 1; }')
    files = files_of(
        with_name(name, schema, f'syntax="proto3"; message B {{ int32 b = 1; }} // {len(name)} {name[:9]!r}')
    )
    assert FileDescriptorProto.FromString(files[-1]).message_type[0].name == "B"
    assert list(tmp_path.rglob("*")) == []


def test_files_that_import_each_other_are_refused() -> None:
    texts = {"a.proto": 'import "b.proto";', "b.proto": 'import "a.proto";'}
    with pytest.raises(SchemaMistake, match=r"a.proto -> b.proto -> a.proto"):
        from_text('import "a.proto"; message M { optional int32 x = 1; }', "M", texts)


def test_one_file_in_two_versions_is_refused() -> None:
    money, other = RegisteredSchema(1, "PROTOBUF", MONEY), RegisteredSchema(2, "PROTOBUF", MONEY.replace("units", "u"))
    middle = with_name("m.proto", other, 'syntax="proto3"; import "m.proto"; message X { money.Money m = 1; }')
    top = RegisteredSchema(
        3,
        "PROTOBUF",
        'syntax="proto3"; import "m.proto"; import "x.proto"; message Y { X x = 1; money.Money m = 2; }',
        (("m.proto", money), ("x.proto", middle)),
    )
    with pytest.raises(SchemaMistake, match="two versions"):
        files_of(top)


def test_schema_of_another_kind_is_refused() -> None:
    with pytest.raises(SchemaMistake, match="AVRO"):
        from_registered(RegisteredSchema(1, "AVRO", '"string"'))


@pytest.mark.parametrize("interpreter", ["/bin/false", "/nowhere/python"])
def test_compiler_that_does_not_run_is_no_fault_of_the_schema(
    interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", interpreter)
    with pytest.raises(CompilerFailed) as raised:
        from_text('syntax="proto3"; message NeverCompiledBefore { int32 a = 1; }')
    assert raised.value.retryable
    assert raised.value.cause
