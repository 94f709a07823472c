"""The ledger of a load run: what became of every record handed to Kafka. Tests use it as their oracle.

One Arrow IPC stream (`pyarrow.ipc.open_stream`), a row per record: number, payment_id, topic, partition,
offset, kind, void, outcome. While the run lasts, a slice of records is written twice:

1. before it is handed to the producer, with the outcome `unknown` and no offset;
2. once every record of it was reported on, with its outcomes.

When the run ends, the file is replaced by one with a single row per record, in order. So after a kill -9 at
any moment the file still holds every record that may have reached Kafka, none is called acknowledged that was
not, and those whose report came too late to be written are `unknown`; `read` takes the last row of each
record. Written data survives the death of the process at once, and the death of the machine after the run (it
is synced at the end).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadArgument, NotWritable
from penstock.local.payments import KINDS

UNKNOWN, ACKNOWLEDGED, FAILED = "unknown", "acknowledged", "failed"
OUTCOMES = (UNKNOWN, ACKNOWLEDGED, FAILED)
"""`failed`: certainly not in the topic. `unknown`: it may be (a time-out, a lost connection, a kill)."""

_WORD = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("payment_id", pa.string()),
        ("topic", _WORD),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("kind", _WORD),
        ("void", pa.bool_()),
        ("outcome", _WORD),
    ]
)


@dataclass
class Rows:
    """What is known about a run of records: arrays as long as the run, positions being record numbers."""

    topic: str
    seed: int
    partitions: Any
    offsets: Any
    """-1 until the record is acknowledged."""
    kinds: Any
    void: Any
    outcomes: Any
    """Positions in OUTCOMES."""

    def table(self, first: int, stop: int) -> pa.RecordBatch:
        n = stop - first
        numbers = pa.array(np.arange(first, stop, dtype=np.int64))
        digits = pc.utf8_lpad(numbers.cast(pa.string()), 9, "0")
        unplaced = self.offsets[first:stop] < 0
        return pa.record_batch(
            [
                numbers,
                pc.binary_join_element_wise(str(self.seed), digits, "-"),
                _words(np.zeros(n, np.int8), (self.topic,)),
                pa.array(self.partitions[first:stop], mask=unplaced),
                pa.array(self.offsets[first:stop], mask=unplaced),
                _words(self.kinds[first:stop], KINDS),
                pa.array(self.void[first:stop]),
                _words(self.outcomes[first:stop], OUTCOMES),
            ],
            schema=SCHEMA,
        )


def _words(positions: Any, words: tuple[str, ...]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(positions, pa.int8()), pa.array(words))


@dataclass
class LedgerFile:
    """Writes the ledger of one run; an older file at the same path is replaced when the run starts."""

    path: Path
    rows: Rows
    _file: IO[bytes] = field(init=False)
    _stream: Any = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what was written is with the operating system, and outlives a kill -9.
            self._file = self.path.open("wb", buffering=0)
        except OSError as error:
            raise _not_writable(self.path, error) from None
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), SCHEMA)

    def write(self, first: int, stop: int) -> None:
        try:
            self._stream.write_batch(self.rows.table(first, stop))
        except OSError as error:
            raise _not_writable(self.path, error) from None

    def finish(self, stop: int) -> None:
        """Replace the file by one row for each record before `stop`."""
        self.close()
        fresh = self.path.with_name(self.path.name + ".new")
        try:
            with fresh.open("wb") as file:
                with pa.ipc.new_stream(file, SCHEMA) as stream:
                    stream.write_table(pa.Table.from_batches([self.rows.table(0, stop)]), max_chunksize=1_000_000)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise _not_writable(self.path, error) from None

    def close(self) -> None:
        self._file.close()


def _not_writable(path: Path, error: OSError) -> NotWritable:
    return NotWritable(f"the ledger {path} cannot be written", cause=error.strerror or str(error))


def read(path: Path) -> pa.Table:
    """One row per record, in order of number; also from the file of a run that was killed or goes on."""
    batches = []
    try:
        with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
            while True:
                batches.append(stream.read_next_batch())
    except StopIteration:
        pass
    except FileNotFoundError:
        raise BadArgument(
            f"no ledger {path}", next_command=f"penstock produce FILE --count N --ledger {path}"
        ) from None
    except pa.ArrowInvalid as error:
        # A kill cuts the last batch short. A file that never was a ledger has no batch at all, and not our
        # columns.
        if not batches and path.stat().st_size > 0 and not _begins_as_stream(path):
            raise BadArgument(f"{path} is not a ledger of `penstock produce`", cause=str(error)) from None
    except OSError:  # Arrow's word for a message body that ends too soon
        pass
    table = pa.Table.from_batches(batches, SCHEMA) if batches else SCHEMA.empty_table()
    numbers = table["number"].to_numpy()
    # The last row of a record is the one that counts: np.unique keeps the first, so it looks at them
    # backwards.
    _, from_the_end = np.unique(numbers[::-1], return_index=True)
    return table.take(pa.array(len(numbers) - 1 - from_the_end))


def _begins_as_stream(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\xff\xff\xff\xff"
