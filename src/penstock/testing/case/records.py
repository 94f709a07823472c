"""The records of a case as Kafka would hold them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.errors import PenstockError
from penstock.spec.case import BYTES, Bytes, Case, Record
from penstock.spec.case_load import TestFile
from penstock.spec.mistake import Mistake
from penstock.spec.mistake import Path as At
from penstock.spec.source import Read
from penstock.testing.case.bytes_of import DoesNotFit, Place, encoded
from penstock.testing.case.registry import FileRegistry

_FIRST_MS = round(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True)
class Sent:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    timestamp_type: int = 0  # CreateTime


class _Refused(Exception):
    def __init__(self, at: At, why: str) -> None:
        super().__init__(why)
        self.at, self.why = at, why


def batches(tests: TestFile, case: Case, registry: FileRegistry) -> list[list[Sent]]:
    """The records of each batch, in the order of the file. Raises SpecInvalid with every value that cannot be one."""
    mistakes: list[Mistake] = []
    made: list[list[Sent]] = []
    ends: dict[tuple[str, int], int] = {}
    top: At = ("cases", tests.number(case), "given")
    count = 0
    for number, batch in enumerate(case.batches):
        made.append([])
        for topic, records in batch.items():
            for i, record in enumerate(records):
                at = (*top, *([number] if isinstance(case.given, list) else []), topic, i)
                try:
                    sent = _sent(tests, topic, record, at, registry, ends, _FIRST_MS + 1000 * count)
                except _Refused as refused:
                    mistakes.append(tests.mistake(refused.at, "bad-record", refused.why))
                    continue
                count += 1
                ends[topic, sent.partition] = sent.offset + 1
                made[-1].append(sent)
    tests.refuse(mistakes)
    return made


def _sent(
    tests: TestFile,
    topic: str,
    record: Record,
    at: At,
    registry: FileRegistry,
    ends: dict[tuple[str, int], int],
    time_ms: int,
) -> Sent:
    default = tests.cases.defaults.get(topic, Record())
    source = tests.pipeline.source
    read = source.reads()[source.view_of(topic)]
    named = None if source.pattern else topic
    base = tests.pipeline.base
    partition = _first(record.partition, default.partition, 0)
    end = ends.get((topic, partition), 0)
    offset = _first(record.offset, end)
    if offset < end:
        raise _Refused(
            (*at, "offset"), f"offset {offset} of partition {partition} is below {end}: offsets of a partition grow"
        )
    return Sent(
        topic,
        partition,
        offset,
        key=_key(record, default, read, Place(base, registry, f"{named}-key" if named else None), at),
        value=_value(record, default, read, Place(base, registry, f"{named}-value" if named else None), at),
        headers=[*_headers({**default.headers, **record.headers}, (*at, "headers"))],
        timestamp_ms=_first(record.time, default.time, time_ms),
    )


def _first(*given: int | None) -> int:
    return next(each for each in given if each is not None)


def _value(record: Record, default: Record, read: Read, place: Place, at: At) -> bytes | None:
    if record.given in BYTES:
        return _bytes(str(record.given), str(getattr(record, str(record.given))), (*at, str(record.given)))
    if record.given is None and default.given in BYTES:
        return _bytes(str(default.given), str(getattr(default, str(default.given))), at)
    value = record.value if record.given else default.value
    if value is None:
        return None
    if record.given and isinstance(value, dict) and isinstance(default.value, dict):
        value = {**default.value, **value}
    if isinstance(value, dict):
        for i, name in enumerate(record.without):
            if name not in value:
                raise _Refused((*at, "without", i), f"the value has no field '{name}'")
        value = {name: each for name, each in value.items() if name not in record.without}
    try:
        return encoded(read.value, value, place, _version(record, default))
    except DoesNotFit as why:
        raise _Refused((*at, "value"), f"it cannot be written as {read.value.format}: {why}") from None
    except PenstockError as error:
        raise _Refused((*at, "value"), _said(error)) from None


def _version(record: Record, default: Record) -> int | None:
    return record.version if record.version is not None else default.version


def _key(record: Record, default: Record, read: Read, place: Place, at: At) -> bytes | None:
    of = record if "key" in record.model_fields_set or record.raw_key is not None else default
    if of.raw_key is not None:
        return _raw(of.raw_key, (*at, "raw_key"))
    if of.key is None:
        return None
    try:
        return encoded(read.key, of.key, place)
    except DoesNotFit as why:
        format_ = read.key.format if read.key else "text"
        raise _Refused((*at, "key"), f"it cannot be written as {format_}: {why}") from None
    except PenstockError as error:
        raise _Refused((*at, "key"), _said(error)) from None


def _headers(headers: dict[str, Any], at: At) -> Iterator[tuple[str, bytes | None]]:
    for name, value in headers.items():
        yield name, _raw(value, (*at, name)) if isinstance(value, Bytes) else None if value is None else value.encode()


def _raw(given: Bytes, at: At) -> bytes:
    kind = next(name for name in BYTES if getattr(given, name) is not None)
    return _bytes(kind, getattr(given, kind), (*at, kind))


def _bytes(kind: str, written: str, at: At) -> bytes:
    try:
        if kind == "hex":
            return bytes.fromhex(written)
        return base64.b64decode(written, validate=True) if kind == "base64" else written.encode()
    except (ValueError, binascii.Error):
        raise _Refused(at, f"'{written}' is not {'base64' if kind == 'base64' else 'hexadecimal'}") from None


def _said(error: PenstockError) -> str:
    return "; ".join(said for said in (error.what, error.cause, error.next_command) if said)
