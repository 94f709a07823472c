"""The registry's wire format around another one: a zero byte, the id of the writer's schema, then the record."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock import record
from penstock.decode.arrow.decoded import NULL, Decoded, Decoder, empty
from penstock.errors import counted
from penstock.record import Failure
from penstock.registry.client.schema import Kind, Lookup, why_unknown

HEADER = 5  # the magic byte 0 and the id of the writer's schema, big-endian


def no_header(first: int, size: int) -> Failure:
    """What is wrong with the first byte of a value, or with its size."""
    if first != 0:
        return Failure(record.MALFORMED, f"does not begin with the magic byte 0 but with 0x{first:02x}")
    return Failure(
        record.MALFORMED, f"{counted(size, 'byte')} {'is' if size == 1 else 'are'} too short for a schema id"
    )


class WithHeader:
    """Takes the header off and checks that the registry knows the schema. The rest is the inner decoder's."""

    def __init__(self, make: Callable[[], Decoder], kind: Kind, lookup: Lookup) -> None:
        self._inner, self._kind, self._lookup = make(), kind, lookup
        self._known: dict[int, Failure | None] = {}

    def __call__(self, values: pa.Array) -> Decoded:
        raw = values.to_pylist()
        failures: dict[int, Failure] = {}
        ids: list[int | None] = []
        unknown: dict[int, Failure] = {}  # for this call: by the next one they may be registered
        for i, value in enumerate(raw):
            schema_id, failure = self._id_of(value, unknown)
            ids.append(schema_id)
            if failure is not None:
                failures[i] = failure
        bodies = pa.array([None if v is None or i in failures else v[HEADER:] for i, v in enumerate(raw)], pa.binary())
        decoded = self._inner(bodies)
        return Decoded(decoded.columns, {**decoded.failures, **failures}, pa.array(ids, pa.int32()))

    def _id_of(self, value: bytes | None, unknown: dict[int, Failure]) -> tuple[int | None, Failure | None]:
        if value is None:
            return None, NULL
        if not value:
            return None, empty()
        if value[0] != 0 or len(value) < HEADER:
            return None, no_header(value[0], len(value))
        schema_id = int.from_bytes(value[1:HEADER], "big", signed=True)
        if schema_id in unknown:
            return schema_id, unknown[schema_id]
        if schema_id not in self._known:
            found = self._lookup(schema_id)
            if found is None:
                unknown[schema_id] = Failure(record.UNKNOWN_SCHEMA, why_unknown(self._lookup, schema_id))
                return schema_id, unknown[schema_id]
            other = found.kind != self._kind
            said = f"schema {schema_id} is {found.kind}, not {self._kind}"
            self._known[schema_id] = Failure(record.INCOMPATIBLE_SCHEMA, said) if other else None
        return schema_id, self._known[schema_id]
