"""Records of a case: values written in YAML become bytes that the spec can decode, or a mistake with its line."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.decode.avro.decoder import AvroDecoder
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.errors import SpecInvalid
from penstock.registry.file import message_of
from penstock.spec.case_load import read_tests
from penstock.spec.formats import AnyFormat, AvroFormat, JsonFormat, ProtobufFormat
from penstock.testing.case.bytes_of import DoesNotFit, Place, encoded
from penstock.testing.case.records import Sent, batches
from penstock.testing.case.registry import FileRegistry

SCHEMAS = Path(__file__).parents[3] / "examples" / "formats" / "schemas"
REFUND = AvroFormat(format="avro", schema="refund.avsc", wire="raw")
SPEC = """\
name: orders
kafka: {bootstrap: "${env:NOT_SET}"}
registry: {url: "${env:NOT_SET}"}
source:
  topics:
    orders: {value: {format: json, schema: {fields: {id: bigint}}}, key: {format: avro, subject: ids}}
    lines: {value: {format: csv, schema: {fields: {a: string, b: int}}}}
    refunds: {value: {format: avro}}
sinks:
  lake: {from: orders, delta: {path: lake}}
"""


def place(**schemas: str | list[str]) -> Place:
    return Place(SCHEMAS, FileRegistry.of(SCHEMAS, schemas), "topic-value")


def refused(how: AnyFormat, value: Any) -> str:
    with pytest.raises(DoesNotFit) as raised:
        encoded(how, value, place())
    return str(raised.value)


def test_avro_value_is_read_back_and_what_is_left_out_is_its_default() -> None:
    raw = encoded(REFUND, {"order_id": 1, "amount": Decimal("19.90")}, place())
    decoded = AvroDecoder((SCHEMAS / "refund.avsc").read_text(), None)(pa.array([raw]))
    assert not decoded.failures
    assert [column.to_pylist() for column in decoded.columns] == [[1], [Decimal("19.90")], [None]]


def test_protobuf_value_is_read_back_and_an_empty_one_is_a_message_too() -> None:
    how = ProtobufFormat(format="protobuf", schema="shipment.proto", wire="raw")
    rows = [{"order_id": 7, "parcels": ["a"], "sent_at": "2026-11-01T00:00:00Z"}, {}]
    raw = pa.array([encoded(how, row, place()) for row in rows], pa.binary())
    decoded = ProtobufDecoder(message_of(SCHEMAS, "shipment.proto", None), None)(raw)
    assert decoded.columns[0].to_pylist() == [7, 0]


def test_value_that_does_not_fit_its_schema_says_which_field_and_why() -> None:
    assert "no field 'amont'; it has: order_id, amount, reason" in refused(REFUND, {"order_id": 1, "amont": 2})
    assert "order_id" in refused(REFUND, {"order_id": "one", "amount": 1})
    assert "amount" in refused(REFUND, {"order_id": 1, "amount": Decimal("0.001")})
    assert "amount" in refused(REFUND, {"order_id": 1})  # it has no default
    assert "expected a mapping" in refused(REFUND, "text")


def test_value_is_written_with_the_newest_version_or_the_one_that_is_asked_for() -> None:
    at = place(**{"topic-value": ["order.avsc", "order-2.avsc"]})
    value = {"order_id": 1, "amount": 1, "placed_at": "2026-11-01T00:00:00Z"}
    how = AvroFormat(format="avro")
    assert [encoded(how, value, at, version)[:5] for version in (None, 1)] == [b"\0\0\0\0\2", b"\0\0\0\0\1"]
    assert encoded(JsonFormat(format="json", subject="other"), 1, place(other="customer.json")) == b"\0\0\0\0\0011"
    copy: FileRegistry = pickle.loads(pickle.dumps(at.registry))  # as decoders take it to their workers
    assert copy.by_id(2) == at.registry.by_id(2) is not None
    assert copy.by_id(3) is None


def test_digits_of_a_number_reach_the_record_as_they_are_written() -> None:
    how = JsonFormat(format="json", schema="unused.yaml")
    assert encoded(how, {"a": Decimal("12.10"), "b": 2**70}, place()) == b'{"a":12.10,"b":1180591620717411303424}'


def made(directory: Path, text: str) -> list[list[Sent]]:
    (directory / "orders.yaml").write_text(SPEC)
    file = directory / "orders.test.yaml"
    file.write_text(text)
    tests = read_tests(file)
    return batches(tests, tests.cases.cases[0], FileRegistry.of(directory, tests.cases.schemas))


def test_partitions_offsets_times_and_defaults(tmp_path: Path) -> None:
    first, second = made(
        tmp_path,
        """\
defaults:
  orders: {value: {id: 1, x: y}, partition: 3, headers: {host: a}}
cases:
  - name: a
    given:
      - orders:
          - {}
          - {value: {id: 2}, without: [x], headers: {host: null, more: {base64: AA==}}}
          - {partition: 0, offset: 7, time: "2026-11-01T00:00:00Z"}
      - orders: [{partition: 0, value: null}, {text: "{"}, {raw_key: {hex: "00ff"}}]
        lines: [{value: {b: 2}}, {value: [x, "a,b"]}]
    expect: {}
""",
    )
    assert [(s.partition, s.offset, s.value) for s in first] == [
        (3, 0, b'{"id":1,"x":"y"}'),
        (3, 1, b'{"id":2}'),
        (0, 7, b'{"id":1,"x":"y"}'),
    ]
    assert [s.headers for s in first[:2]] == [[("host", b"a")], [("host", None), ("more", b"\0")]]
    assert [s.timestamp_ms for s in first] == [946_684_800_000, 946_684_801_000, 1_793_491_200_000]
    assert [(s.topic, s.partition, s.offset, s.value) for s in second] == [
        ("orders", 0, 8, None),
        ("orders", 3, 2, b"{"),
        ("orders", 3, 3, b'{"id":1,"x":"y"}'),
        ("lines", 0, 0, b",2"),
        ("lines", 0, 1, b'x,"a,b"'),
    ]
    assert second[2].key == b"\0\xff"


def test_every_record_that_cannot_be_one_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid) as raised:
        made(
            tmp_path,
            """\
cases:
  - name: a
    given:
      orders:
        - {hex: "0g"}
        - {value: {}, without: [x]}
        - {value: {}, offset: 3}
        - {value: {}, offset: 3}
        - {value: {}, key: {id: 1}}
      lines:
        - {value: {c: 1}}
      refunds:
        - {value: {order_id: 1}}
    expect: {}
""",
        )
    found: Any = raised.value.facts["mistakes"]
    assert [(each["line"], each["path"].split("].")[-1]) for each in found] == [
        (5, "hex"),
        (6, "without[0]"),
        (8, "offset"),
        (9, "key"),
        (11, "value"),
        (13, "value"),
    ]
    assert "the tests have no schema of 'ids'" in found[3]["message"]
    assert "schemas: {refunds-value: path.avsc}" in found[5]["message"]
