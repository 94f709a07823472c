"""What the topics hold. A topic is produced once per shape and read by every case that uses the shape."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

import msgspec

from bench import records
from penstock.kafka import admin
from penstock.kafka.connection import Config
from penstock.local import load
from penstock.local.payments import GOOD, Payments, Recipe
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry
from penstock.spec.model import TopicSettings

PARTITIONS = 4
BAD = {"-bad-10": Fraction(1, 10), "-bad-01": Fraction(1, 1000), "-poison": Fraction(1, 1000)}
SHARE = {"payments": Fraction(1), "changes": Fraction(1, 3)}  # of `--records`; writing to a database is slow
DECODE_SHARE = Fraction(5, 6)


@dataclass(frozen=True)
class Shape:
    """`payments`: JSON of about 250 bytes, nested, as `penstock produce` sends it. `changes`: the same about many
    accounts, for upserts by account. `json`, `avro`, `avro-20-ids`, `protobuf`: seven flat fields, for decode alone."""

    name: str

    @property
    def kind(self) -> str:
        return next((self.name.removesuffix(end) for end in BAD if self.name.endswith(end)), self.name)

    @property
    def bad(self) -> Fraction:
        return next((share for end, share in BAD.items() if self.name.endswith(end)), Fraction(0))

    @property
    def needs_registry(self) -> bool:
        return self.kind.startswith(("avro", "protobuf"))

    def count(self, asked: int) -> int:
        return max(1, int(asked * SHARE.get(self.kind, DECODE_SHARE)))


@dataclass(frozen=True)
class Produced:
    """A topic, and what every system must make of it. One that makes less, or more, was not measured."""

    topic: str
    records: int
    bad: int
    rows: int  # that a sink must hold in the end
    times: int | None = None  # upserts: sum of the newest event_time per key, in milliseconds


def produce(config: Config, shape: Shape, count: int, registry: str = "") -> Produced:
    topic = f"bench-{shape.name}"
    admin.create_missing(config, {topic: TopicSettings(partitions=PARTITIONS), f"{topic}.DLT": TopicSettings()})
    if shape.kind not in SHARE:
        headers = _headers(shape, registry) if shape.needs_registry else [b""]
        bad = records.produce(config, topic, shape.kind, count, shape.bad, headers)
        return Produced(topic, count, bad, count - bad)
    # Accounts in proportion: some changes per key, and most keys in every batch, whatever the size of the run.
    accounts = max(1, count // 3) if shape.kind == "changes" else 10_000
    recipe = Recipe(count=count, seed=1, poison=shape.bad, accounts=min(accounts, 1_000_000))
    report = load.produce(config, topic, recipe)
    if not report.complete:
        raise SystemExit(f"{topic}: {report.acknowledged:,} of {count:,} records acknowledged; {report.first_error}")
    good = report.kinds[GOOD]
    if shape.kind == "changes":
        rows, times = _newest(recipe)
        return Produced(topic, count, 0, rows, times)
    return Produced(topic, count, count - good, good - report.void)


class _Change(msgspec.Struct):
    account: str
    status: str
    event_time: datetime


def _newest(recipe: Recipe) -> tuple[int, int]:
    """Keys, and the sum of the newest time of each: two payments of one moment are both right, their time is one."""
    payments, newest, at = Payments(recipe), dict[str, datetime](), 0
    while at < recipe.count:
        part = payments.slice(at, 4096)
        at += len(part.values)
        for value in part.values:
            change = msgspec.json.decode(value or b"", type=_Change)
            if change.status != "VOID":
                newest[change.account] = max(change.event_time, newest.get(change.account, change.event_time))
    return len(newest), sum(round(moment.timestamp() * 1000) for moment in newest.values())


def _headers(shape: Shape, registry: str) -> list[bytes]:
    """Schemas are registered under the name of the topic; what each record begins with is returned."""
    with SchemaRegistry(RegistrySettings(registry)) as client:
        subject = f"bench-{shape.name}-value"
        if shape.kind == "protobuf":
            ids, message = [client.register(subject, "PROTOBUF", records.PROTO)], b"\0"  # the first message of the file
        else:
            texts = records.variants(20 if "ids" in shape.kind else 1)
            ids, message = [client.register(subject, "AVRO", text) for text in texts], b""
            if len(set(ids)) != len(texts):
                raise SystemExit(f"{subject}: the registry takes {len(texts)} schemas for {len(set(ids))}")
    return [b"\0" + number.to_bytes(4, "big") + message for number in ids]
