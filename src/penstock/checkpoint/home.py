"""The directory a pipeline lives in: Spark's own checkpoint, our ledger, logs, and the lock that keeps it single.

<checkpoint>/spark/    Spark's checkpoint: offset log, commit log, metadata. Of a stream we only read it.
<checkpoint>/ledger/   what happened to every offset (checkpoint.ledger)
<checkpoint>/schemas/  schemas of the registry by id, so that an outage of it does not stop known ones
<checkpoint>/references/  copies of reference tables, and which of them the newest batch began with
<checkpoint>/events/   what happened, for onlookers (observe.events)
<checkpoint>/logs/     what the engine said
<checkpoint>/backfill/ a directory like this one for each bounded run, its `spark/` written by us
<checkpoint>/attempts.json  the batch that is run again, and how often its driver died (checkpoint.attempts)
<checkpoint>/backups/  copies that `penstock checkpoint` makes before it changes something
<checkpoint>/spec.json what the spec said when the pipeline was last started, in short
<checkpoint>/fork.json where this pipeline was forked from, if it was
<checkpoint>/replay/   a directory like this one for each replay of dead letters; which letters have come home is known
                       from here, so it belongs into a backup
<checkpoint>/restoring there while a restore exchanges the files; nothing starts then
<checkpoint>/lock      held while the pipeline runs
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock.errors import AlreadyRunning, NotWritable
from penstock.spec.model import Pipeline
from penstock.spec.references import located

ANOTHER = "give this pipeline another `checkpoint:`"


@dataclass(frozen=True)
class Home:
    path: Path

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        return cls(located(pipeline.checkpoint or f".penstock/{pipeline.name}", pipeline.base))

    def backfill(self, name: str) -> Home:
        return Home(self.path / "backfill" / name)

    def backfills(self) -> list[str]:
        directory = self.path / "backfill"
        return sorted(d.name for d in directory.iterdir() if d.is_dir()) if directory.is_dir() else []

    def replay(self, name: str) -> Home:
        return Home(self.path / "replay" / name)

    @property
    def spark(self) -> Path:
        return self.path / "spark"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger"

    @property
    def schemas(self) -> Path:
        return self.path / "schemas"

    @property
    def references(self) -> Path:
        return self.path / "references"

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def backups(self) -> Path:
        return self.path / "backups"

    @property
    def restoring(self) -> Path:
        return self.path / "restoring"

    @property
    def lock(self) -> Path:
        """Written when it is taken."""
        return self.path / "lock"

    @contextmanager
    def held(self, instead: str | None = None) -> Iterator[None]:
        """Make the directories and hold the lock. `instead`: what helps whoever finds it held, beside stopping the
        process that does."""
        with self._locked(self.path, self.ledger, self.logs, instead=instead):
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of a directory that is no pipeline's own."""
        with self._locked(self.path):
            yield

    @contextmanager
    def _locked(self, *directories: Path, instead: str | None = None) -> Iterator[None]:
        """The lock dies with the process, however it dies."""
        try:
            for directory in directories:
                directory.mkdir(parents=True, exist_ok=True)
            lock = self.lock.open("a+")
        except OSError as error:
            raise NotWritable(
                f"cannot write to the checkpoint directory {self.path}",
                cause=error.strerror or str(error),
                next_command=f"make {error.filename or self.path} a writable directory, or change `checkpoint:`",
            ) from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise AlreadyRunning(
                    f"a pipeline is already running on {self.path}",
                    cause=f"process {lock.read().strip() or 'unknown'} holds the lock",
                    next_command=f"stop that process, or {instead}" if instead else "stop that process first",
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield
