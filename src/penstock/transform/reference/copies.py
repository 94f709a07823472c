"""Copies of reference tables on the disk.

<directory>/<name>/<number>/   a copy as Parquet, with `_copy.json` beside the files; whole, or not there
<directory>/batch.json         the copies that the newest batch began with
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files import put, sync_all, sync_directory
from penstock.record import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FACTS = "_copy.json"  # Spark does not read files whose names begin with `_`
_BATCH = "batch.json"


@dataclass(frozen=True)
class Copy:
    path: str
    number: int
    made_of: str  # what the spec said of the table
    taken: float  # seconds since 1970
    rows: int
    size: int  # bytes, without compression
    schema: dict[str, Any]

    def frame(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql.types import StructType

        return spark.read.schema(StructType.fromJson(self.schema)).parquet(self.path)


@dataclass(frozen=True)
class Begun:
    """What a batch began with: the number of the copy of each table."""

    query: str
    batch: int
    tables: dict[str, int]


@dataclass(frozen=True)
class Copies:
    directory: Path

    def newest(self, name: str, made_of: str) -> Copy | None:
        """Of what the spec says now: a copy of another place is no older copy of this one."""
        found = (self.copy(name, number) for number in sorted(self._numbers(name), reverse=True))
        return next((copy for copy in found if copy is not None and copy.made_of == made_of), None)

    def copy(self, name: str, number: int) -> Copy | None:
        path = self.directory / name / str(number)
        with suppress(OSError, ValueError, TypeError):
            return Copy(**{**json.loads((path / _FACTS).read_text()), "path": str(path)})
        return None

    def staged(self, name: str) -> tuple[int, Path]:
        """The number of the next copy, and where its files are to be written; that directory is not there yet."""
        home = self.directory / name
        home.mkdir(parents=True, exist_ok=True)
        number = max(self._numbers(name), default=0) + 1
        staged = home / f".{number}.new"
        shutil.rmtree(staged, ignore_errors=True)
        return number, staged

    def publish(self, staged: Path, copy: Copy) -> Copy:
        """When this returns it is on the disk; after a crash before that it is not there."""
        place = staged.with_name(str(copy.number))
        (staged / _FACTS).write_text(json.dumps(asdict(copy)))
        sync_all(staged)
        staged.rename(place)
        sync_directory(place.parent)
        return Copy(**{**asdict(copy), "path": str(place)})

    def begin(self, batch: Batch, used: dict[str, Copy]) -> None:
        begun = Begun(batch.query, batch.id, {name: copy.number for name, copy in used.items()})
        put(self.directory / _BATCH, json.dumps(asdict(begun)).encode())

    def begun(self) -> Begun | None:
        """The newest batch that began; None where it is not known, or its copies are gone."""
        try:
            raw = json.loads((self.directory / _BATCH).read_text())
            found = Begun(str(raw["query"]), int(raw["batch"]), {str(k): int(n) for k, n in raw["tables"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return found if all(self.copy(*each) for each in found.tables.items()) else None

    def remove_all_but(self, name: str, kept: Iterable[int]) -> None:
        for number in set(self._numbers(name)) - set(kept):
            shutil.rmtree(self.directory / name / str(number), ignore_errors=True)

    def _numbers(self, name: str) -> list[int]:
        home = self.directory / name
        return [int(place.name) for place in home.iterdir() if place.name.isdigit()] if home.is_dir() else []
