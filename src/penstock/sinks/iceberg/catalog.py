"""Where Iceberg keeps its tables: a directory, or a directory and a database that names the current state of each.

The settings are given to a running session: Spark opens a catalog when it is first used. A password is resolved then,
and taken out of the session's settings once the catalog is open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from penstock.errors import SinkBusy, SinkFailed, SpecInvalid
from penstock.sinks.iceberg.files import local
from penstock.spark.write_errors import engine_errors, said_by
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Secret = Callable[[], str]
_SPARK = "org.apache.iceberg.spark.SparkCatalog"
_NO_TABLE = ("penstock", "none")
_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")


class Catalog(Protocol):
    @property
    def name(self) -> str:
        """As in SQL: `<name>.<namespace>.<table>`. A database catalog keeps its tables under this name too."""

    @property
    def warehouse(self) -> Path: ...

    def settings(self) -> dict[str, str]:
        """What Spark is told, without secrets."""

    def secrets(self) -> dict[str, str]:
        """What Spark is told until the catalog is open."""

    def metadata(self, table: tuple[str, ...]) -> Path | None:
        """The file that describes the current state of a table, found without Spark; None: there is no such table."""


@dataclass(frozen=True)
class HadoopCatalog:
    """A directory and nothing else. Two processes that commit at the same moment are not kept apart by it: that takes a
    file system whose rename refuses to replace a file."""

    warehouse: Path
    name: str = "iceberg"

    def settings(self) -> dict[str, str]:
        return {"type": "hadoop", "warehouse": str(self.warehouse.absolute())}

    def secrets(self) -> dict[str, str]:
        return {}

    def metadata(self, table: tuple[str, ...]) -> Path | None:
        # The newest file is the state: the hint beside it is written afterwards, and may be behind.
        directory = self.warehouse.joinpath(*table, "metadata")
        found = [(m, path) for path in directory.glob("v*.metadata.json*") if (m := _METADATA.fullmatch(path.name))]
        return max(found, key=lambda pair: int(pair[0][1]))[1] if found else None


@dataclass(frozen=True)
class JdbcCatalog:
    """A PostgreSQL database says which metadata file is current, in one row per table, and changes it by compare and
    swap: of two commits at the same moment one loses."""

    uri: Secret = field(repr=False)  # jdbc:postgresql://host:port/database
    warehouse: Path
    user: Secret | None = field(default=None, repr=False)
    password: Secret | None = field(default=None, repr=False)
    name: str = "iceberg"

    def settings(self) -> dict[str, str]:
        # V1 also holds views; without it Iceberg warns at every start.
        return {"type": "jdbc", "warehouse": str(self.warehouse.absolute()), "jdbc.schema-version": "V1"}

    def secrets(self) -> dict[str, str]:
        given = {"uri": self.uri, "jdbc.user": self.user, "jdbc.password": self.password}
        return {name: value() for name, value in given.items() if value}

    def metadata(self, table: tuple[str, ...]) -> Path | None:
        import psycopg

        from penstock.sinks.postgres.connection import passes

        at = urlsplit(self.uri().removeprefix("jdbc:"))
        query = (
            "select metadata_location from iceberg_tables "
            "where catalog_name = %s and table_namespace = %s and table_name = %s"
        )
        try:
            with psycopg.connect(
                host=at.hostname,
                port=at.port or 5432,
                dbname=at.path.removeprefix("/"),
                user=self.user() if self.user else None,
                password=self.password() if self.password else None,
                connect_timeout=10,
            ) as connection:
                row = connection.execute(query, (self.name, ".".join(table[:-1]), table[-1])).fetchone()
        except psycopg.errors.UndefinedTable:  # nobody has used the catalog yet
            return None
        except psycopg.Error as error:
            kind = SinkBusy if passes(error) else SinkFailed
            raise kind(
                f"the database of Iceberg catalog '{self.name}' cannot be asked",
                cause=f"{type(error).__name__} from {at.hostname}:{at.port or 5432}",
                next_command="check that it runs, and the user and password of the catalog",
            ) from None  # the message of a driver may hold what it was given
        return local(str(row[0])) if row else None


# Session and name of the catalogs that are open -> a hash of their settings. Sessions that are cloned from another one
# inherit its settings, and not what they opened; every query has such a session of its own.
_opened: dict[tuple[str, str], int] = {}


def open_in(spark: SparkSession, catalog: Catalog) -> None:
    """Make the catalog known to this session. Does nothing where it is open already, with the same settings."""
    prefix = f"spark.sql.catalog.{catalog.name}"
    # Somebody else may change a table; what is cached of it would then be behind.
    plain = {"": _SPARK, ".cache-enabled": "false", **{f".{n}": v for n, v in catalog.settings().items()}}
    secret = {f".{name}": value for name, value in catalog.secrets().items()}
    opened = spark._jsparkSession.sessionUUID(), catalog.name
    settings = hash(tuple({**plain, **secret}.items()))
    if _opened.get(opened) == settings:
        return
    clash = spark.conf.get(f"{prefix}.warehouse", None) not in (None, plain[".warehouse"])
    if clash:
        raise SpecInvalid(
            f"there are two Iceberg catalogs called '{catalog.name}'",
            cause="their settings differ, and in one session a name stands for one catalog",
            next_command="give one of them another `name`",
        )
    catalog.warehouse.mkdir(parents=True, exist_ok=True)
    try:
        for name, value in {**plain, **secret}.items():
            spark.conf.set(f"{prefix}{name}", value)
        spark.sql(f"show namespaces in {quoted(catalog.name)}")  # opens it
        _opened[opened] = settings
    except engine_errors() as error:
        catalog.metadata(_NO_TABLE)  # says it better where a database does not answer
        said = said_by(error)
        for value in secret.values():
            said = said.replace(value, "***")
        raise SinkFailed(
            f"Iceberg catalog '{catalog.name}' cannot be opened",
            cause=said,
            next_command="check the settings of the catalog",
        ) from None
    finally:
        for name in secret:
            spark.conf.unset(f"{prefix}{name}")
