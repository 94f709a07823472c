"""Records on their way to the one task that sends them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.sinks.kafka import packets
from penstock.sinks.kafka.packets import closed, opened
from penstock.sinks.kafka.worker import Letter, Parcel

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
REFUSED = [{"topic": "in", "partition": 0, "offset": 3, "class": "too-large", "reason": "it is"}]
LETTER = Letter(("in", 0, 3), "in.DLT", None, b"\0", [("a", None), ("a", b"1")], 7)


def records(*values: bytes | None) -> pa.RecordBatch:
    size = len(values)
    columns = {
        "topic": pa.array(["out"] * size),
        "partition": pa.nulls(size, pa.int32()),
        "key": pa.array([b"k"] * size),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[{"key": "h", "value": None}]] * size, _HEADERS),
        "at_topic": pa.array(["in"] * size),  # only there to say where a row came from that cannot be sent
    }
    return pa.RecordBatch.from_pydict(columns)


def test_everything_arrives_once_in_its_order_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "_LARGEST", 3_000)
    values = [None, *(bytes([n]) * 500 for n in range(40))]
    made = list(closed(Parcel(records(*values), REFUSED, [LETTER])))
    assert len(made) > 3
    assert max(map(len, made)) < 2 * 3_000
    parcels = [opened(packet) for packet in made]
    assert [value for parcel in parcels for value in parcel.records.column("value").to_pylist()] == values
    assert parcels[0].records.drop_columns("value").to_pylist()[0] == {
        "topic": "out", "partition": None, "key": b"k", "headers": [{"key": "h", "value": None}],
    }  # fmt: skip
    assert [refused for parcel in parcels for refused in parcel.refused] == REFUSED
    assert [letter for parcel in parcels for letter in parcel.letters] == [LETTER]


def test_packet_holds_only_its_part_of_a_slice() -> None:
    many = records(*(b"x" * 1_000 for _ in range(1_000)))
    (packet,) = closed(Parcel(many.slice(10, 2), []))
    assert len(packet) < 20_000


def test_what_died_travels_also_where_nothing_passed() -> None:
    (packet,) = closed(Parcel(records(), [], [LETTER]))
    assert (opened(packet).letters, opened(packet).records.num_rows) == ([LETTER], 0)
    assert list(closed(Parcel(records(), []))) == []
