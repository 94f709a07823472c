"""The servers of a run: one broker, and a registry and a database if a case needs them. The topics, each made once."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType

from bench.order import Order
from bench.report import say
from bench.shapes import PARTITIONS, Produced, Shape, produce
from penstock.kafka import admin, connection
from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from penstock.local.registry import LocalRegistry
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry
from penstock.spec.model import TopicSettings


class Servers:
    def __init__(self, directory: Path, records: int) -> None:
        self._directory, self._records = directory, records
        self._cluster = Cluster(directory / "servers", brokers=1)
        self._registry = LocalRegistry(directory / "servers")
        self._postgres = LocalPostgres(directory / "servers")
        self._produced: dict[str, Produced] = {}
        self.bootstrap = self.registry = self.postgres = ""

    def __enter__(self) -> Servers:
        """What an earlier run left there, running or not, goes."""
        self._down()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self.bootstrap = self._cluster.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._down()

    def _down(self) -> None:
        for server in (self._postgres, self._registry, self._cluster):
            server.down()

    def topic(self, name: str) -> Produced:
        if name not in self._produced:
            shape = Shape(name)
            if shape.needs_registry and not self.registry:
                self.registry = self._registry.up()
                with SchemaRegistry(RegistrySettings(self.registry)) as client:
                    client.set_mode("NONE")  # twenty schemas of one subject need not be compatible
            count = shape.count(self._records)
            say(f"producing {count:,} records: {name}")
            self._produced[name] = produce(connection.connect_to(self.bootstrap), shape, count, self.registry)
        return self._produced[name]

    def database(self) -> str:
        if not self.postgres:
            self.postgres = self._postgres.up()
        return self.postgres

    def make_room(self, order: Order) -> None:
        """What an order writes to is there before the clock starts."""
        order.home.mkdir(parents=True)
        if order.work.startswith("kafka"):
            config = connection.connect_to(self.bootstrap)
            admin.create_missing(config, {order.out: TopicSettings(partitions=PARTITIONS)})

    def clear(self, order: Order) -> None:
        """What it wrote goes, so that the disk holds one round at a time. Called when all of it has been judged."""
        if order.work.startswith("kafka"):
            client = connection.admin(connection.connect_to(self.bootstrap))
            for done in client.delete_topics([order.out]).values():
                done.result(30)
        for part in (order.lake, order.iceberg, order.home / "checkpoint"):
            shutil.rmtree(part, ignore_errors=True)
