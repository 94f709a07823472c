"""Where reference tables are read from: a file, a Delta table, a database, a compacted topic."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.decode.formats import Place, Prepared, prepare
from penstock.decode.readers import Readers
from penstock.decode.stage import Decode
from penstock.errors import PenstockError, ReferenceUnusable, TopicMissing, first_line
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.record import OffsetRange
from penstock.source import kafka as source
from penstock.spec.enrich import CompactedTopic, FileTable, JdbcTable, ReferenceTable
from penstock.spec.formats import AnyFormat
from penstock.spec.model import Pipeline
from penstock.spec.references import located, resolve
from penstock.spec.source import Read
from penstock.spec.types import Struct, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POSTGRES = "jdbc:postgresql:"


@dataclass(frozen=True)
class TableSources:
    pipeline: Pipeline
    readers: Callable[[], Readers]  # of the schemas that a registry has

    def rows(self, spark: SparkSession, table: ReferenceTable) -> DataFrame:
        """What the table holds now, to be computed."""
        if table.file:
            return _file(spark, self._path(table.file.path), table.file)
        if table.delta:
            return spark.read.format("delta").load(self._path(table.delta.path))
        if table.jdbc:
            return spark.read.format("jdbc").options(**self._jdbc(table.jdbc)).load()
        assert table.kafka is not None  # the model allows exactly one
        return self._topic(spark, table.kafka)

    def said(self, table: ReferenceTable, error: BaseException) -> str:
        """What went wrong, without what may be a secret."""
        text = error.what if isinstance(error, PenstockError) else first_line(_java_says(error) or error)
        if isinstance(error, PenstockError) and error.cause:
            text = f"{text}: {error.cause}"
        for secret in self._secrets(table):
            text = text.replace(secret, "***")
        return text

    def _secrets(self, table: ReferenceTable) -> list[str]:
        if table.jdbc is None:
            return []
        try:
            options = self._jdbc(table.jdbc)
            given = resolve(table.jdbc.url, self.pipeline.base)
        except PenstockError:
            return []
        return [text for text in (given, options["url"], options.get("password")) if text]

    def _path(self, text: str) -> str:
        return str(located(text, self.pipeline.base))

    def _jdbc(self, table: JdbcTable) -> dict[str, str]:
        base = self.pipeline.base
        options = {"url": resolve(table.url, base), "fetchsize": "10000"}
        if options["url"].startswith(("postgresql://", "postgres://")):
            options |= _from_url(options["url"])
        if options["url"].startswith(_POSTGRES):
            options |= {"driver": "org.postgresql.Driver", "connectTimeout": "10", "tcpKeepAlive": "true"}
        if table.query is not None:
            options["query"] = resolve(table.query, base)
        else:
            options["dbtable"] = resolve(table.table or "", base)
        for name in ("user", "password"):
            written = getattr(table, name)
            options |= {name: resolve(written, base)} if written is not None else {}
        return options

    def _topic(self, spark: SparkSession, of: CompactedTopic) -> DataFrame:
        """The newest record of each key, decoded; one that cannot be decoded makes the whole table unusable."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        raw = source.bounded(spark, self.pipeline, self._ranges(of.topic))
        newest = Window.partitionBy("key", "partition").orderBy(F.col("offset").desc())
        latest = Window.partitionBy("key").orderBy(F.col("timestamp").desc(), F.col("partition").desc())
        kept = raw.where("key is not null")
        for window in (newest, latest):  # a key that has moved to another partition is in two of them
            kept = kept.withColumn("nth", F.row_number().over(window)).where("nth = 1").drop("nth")
        decoded = self.decoder(of).rows(kept.where("value is not null"))
        at, why = F.col(record.KAFKA), F.col(record.ERROR)
        bad = decoded.where(why.isNotNull()).select(at["partition"], at["offset"], why["reason"]).head()
        if bad is not None:
            raise ReferenceUnusable(
                f"a record of topic '{of.topic}' cannot be decoded",
                cause=f"{of.topic}-{bad[0]} offset {bad[1]}: {bad[2]}",
            )
        return decoded.drop(record.KAFKA, record.ERROR, record.DELETED)

    def decoder(self, of: CompactedTopic) -> Decode:
        reading = self.readers()
        key = self._prepared(reading, of.topic, "key", of.key) if of.key else None
        value = self._prepared(reading, of.topic, "value", of.value)
        return Decode(of.topic, Read(value=of.value, key=of.key), value, key)

    def _ranges(self, topic: str) -> list[OffsetRange]:
        config = client_config(self.pipeline)
        there = admin.topics(config)
        if topic not in there:
            raise TopicMissing(f"topic '{topic}' is not there", next_command="penstock topics FILE")
        marks = admin.watermarks(config, {topic: there[topic].partitions})
        return [OffsetRange(name, number, first, end) for (name, number), (first, end) in sorted(marks.items())]

    def _prepared(self, reading: Readers, topic: str, part: str, how: AnyFormat) -> Prepared:
        place = Place(self.pipeline.base, f"{topic}-{part}", reading.schema, lambda: reading.registry().by_id)
        return prepare(how, place)


def _java_says(error: BaseException) -> str:
    """What lies at the bottom of an exception that came from Java."""
    cause: Any = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()) if cause is not None else ""


def _file(spark: SparkSession, path: str, of: FileTable) -> DataFrame:
    from pyspark.sql import functions as F

    if of.schema_ is None:
        return spark.read.parquet(path)
    struct = of.schema_.struct()
    if of.format == "json":
        rows = spark.read.schema(struct.columns()).option("mode", "FAILFAST").json(path)
    else:
        text = spark.read.option("header", "true").option("mode", "FAILFAST").csv(path)
        _require(text, struct, path)
        rows = text.select(*(F.col(quoted(m.name)).cast(m.type.ddl()).alias(m.name) for m in struct.members))
    for member in struct.members:
        if member.required:
            said = F.raise_error(F.lit(f"'{member.name}' is required, and null in a row")).cast(member.type.ddl())
            rows = rows.withColumn(member.name, F.coalesce(F.col(quoted(member.name)), said))
    return rows


def _require(rows: DataFrame, struct: Struct, path: str) -> None:
    there = {name.lower() for name in rows.columns}
    missing = [member.name for member in struct.members if member.name.lower() not in there]
    if missing:
        raise ReferenceUnusable(
            f"{path} has no column '{missing[0]}'", cause=f"its first line names {', '.join(rows.columns)}"
        )


def _from_url(url: str) -> dict[str, str]:
    """A URL as PostgreSQL's own tools take it, for JDBC."""
    from urllib.parse import urlencode

    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        raise ReferenceUnusable("its `url` is not one of PostgreSQL") from None
    user = {name: given.pop(name) for name in list(given) if name in ("user", "password")}
    host, port = given.pop("host", "localhost"), given.pop("port", "5432")
    database = given.pop("dbname", user.get("user", ""))
    if "password" not in user and "passfile" in given:
        user |= _from_file(Path(given["passfile"]), (host, port, database, user.get("user", "")))
    more = {name: value for name, value in given.items() if name in ("sslmode", "sslrootcert", "sslcert", "sslkey")}
    return {"url": f"{_POSTGRES}//{host}:{port}/{database}" + (f"?{urlencode(more)}" if more else ""), **user}


def _from_file(file: Path, of: tuple[str, ...]) -> dict[str, str]:
    """The password in a file as PostgreSQL's tools have it: host:port:database:user:password, `*` for any."""
    try:
        lines = file.expanduser().read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        parts = [part.replace("\\:", ":").replace("\\\\", "\\") for part in re.split(r"(?<!\\):", line, maxsplit=4)]
        if len(parts) == 5 and all(part in ("*", wanted) for part, wanted in zip(parts, of, strict=False)):
            return {"password": parts[4]}
    return {}
