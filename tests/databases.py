"""A PostgreSQL schema of a test's own, and the batches that are written into it."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from penstock.record import Batch
from penstock.sinks.postgres import PostgresSink

KAFKA = "_kafka struct<topic:string,partition:int,offset:bigint,timestamp:timestamp>"
_THEN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def at(offset: int, partition: int = 0, seconds: int = 0) -> tuple[str, int, int, dt.datetime]:
    """Where a row came from."""
    return ("t", partition, offset, _THEN + dt.timedelta(seconds=seconds))


def batch(number: int = 0, query: str = "q") -> Batch:
    return Batch("pipe", query, number)


@dataclass
class Database:
    """One schema, and a connection that sees what any other client sees."""

    url: str
    schema: str
    connection: psycopg.Connection[Any]
    spark: SparkSession

    def sink(self, table: str = "things", key: tuple[str, ...] = ("id",), **more: Any) -> PostgresSink:
        return PostgresSink(**{"name": "db", "url": self.url, "table": f"{self.schema}.{table}", "key": key, **more})

    def reconnect(self, url: str) -> None:
        """After the server was started again."""
        self.url, self.connection = url, psycopg.connect(url, autocommit=True)

    def frame(self, rows: list[Any], columns: Any) -> DataFrame:
        return self.spark.createDataFrame(rows, columns).coalesce(2)

    def run(self, statement: str) -> list[Any]:
        cursor = self.connection.execute(statement.replace("SCHEMA", self.schema))
        return cursor.fetchall() if cursor.description else []

    def columns(self, table: str = "things") -> dict[str, str]:
        return dict(
            self.run(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute "
                f"where attrelid = 'SCHEMA.{table}'::regclass and attnum > 0 order by attnum"
            )
        )

    def staging(self) -> list[str]:
        found = self.run(
            "select relname from pg_class c join pg_namespace n on n.oid = relnamespace "
            "where nspname = 'SCHEMA' and starts_with(relname, 'penstock_staging') and relkind = 'r'"
        )
        return [name for (name,) in found]


@contextmanager
def database(url: str, spark: SparkSession) -> Iterator[Database]:
    schema = f"s{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}")
        yield Database(url, schema, connection, spark)
