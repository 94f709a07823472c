"""By batch: records are made by all tasks and sent by one. They travel to it in packets, many records in one row of the
engine: what a row costs on its way out of a worker, through the shuffle and into another is paid per packet."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.record import OUTGOING
from penstock.sinks.kafka.encoding import Encode
from penstock.sinks.kafka.worker import Parcel, Work, packed, sent
from penstock.workers import forget_archives

PACKET = "packet binary"
_LARGEST = 8 * 1024 * 1024  # bytes, or one record: several are in memory at once, in two processes of a task


def closed(parcel: Parcel) -> Iterator[bytes]:
    """What is to be sent, and what was refused, as bytes; none where there is neither."""
    records = parcel.records.select(list(OUTGOING))
    parts = -(-records.nbytes // _LARGEST) or 1
    rows = -(-records.num_rows // parts) or 1
    refused, letters = parcel.refused, parcel.letters
    for at in range(0, records.num_rows or bool(refused or letters), rows):
        # Not as a pickle itself: of a slice that would hold everything it is a slice of.
        with pa.BufferOutputStream() as out:
            with pa.ipc.new_stream(out, records.schema) as stream:
                stream.write_batch(records.slice(at, rows))
            yield pickle.dumps((out.getvalue(), refused, letters), protocol=5)
        refused, letters = [], []


def opened(packet: Any) -> Parcel:
    stream, refused, letters = pickle.loads(packet)
    return Parcel(pa.ipc.open_stream(stream).read_next_batch(), refused, letters)


@dataclass(frozen=True)
class PackBatch:
    """In every task: rows become records, and these packets."""

    encode: Encode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        for batch in batches:
            for packet in closed(packed(self.encode, batch)[0]):
                yield pa.RecordBatch.from_pydict({"packet": [packet]})


@dataclass(frozen=True)
class SendPackets:
    """In one task: all records of a batch, in one transaction; the batch's number is the mark."""

    work: Work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        yield from self.sent(packet.as_buffer() for batch in batches for packet in batch.column("packet"))

    def sent(self, packets: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        return sent(self.work, map(opened, packets), trim=False)
