"""Connections to PostgreSQL, and what its errors mean in our words.

A URL may hold a password. It stays inside `Address`: no text of ours quotes it, and neither do PostgreSQL's own,
once the URL is known to be one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import NotWritable, PenstockError, SinkBusy, SinkFailed, SpecInvalid, first_line

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

# What a URL may say otherwise. Without the last four a machine that vanished is noticed after a quarter of an hour.
_DEFAULTS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# Dates, and floats with all their digits, whatever the server's default. Between two Arrow batches a transaction waits
# for Spark.
_SESSION = (
    "set datestyle = 'ISO, YMD'; set timezone = 'UTC'; set extra_float_digits = 1; "
    "set idle_in_transaction_session_timeout = 0"
)
# Answers to a login that stay the same until somebody changes something. They come without an SQLSTATE.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|(role|database) \".*\" does not exist|permission denied|"
    r"not permitted to log in|not currently accepting connections|certificate|does not support SSL",
    re.IGNORECASE,
)
# Away, full, stopping, read-only after a failover, idle for too long, busy.
_PASSING = ("08", "53", "57P", "25006", "25P03", "40", "55P03")
_CONFLICTS = (pg.SerializationFailure, pg.DeadlockDetected, pg.LockNotAvailable)
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # between attempts at a transaction that met another one


@dataclass(frozen=True)
class Address:
    """Where a database is, and how to log in."""

    url: str = field(repr=False)

    def check(self, sink: str) -> None:
        """libpq quotes parts of what it cannot parse: its words are not passed on."""
        if not self._is_one():
            raise SpecInvalid(
                f"sink '{sink}': its `url` is not one of PostgreSQL",
                cause="it looks like postgresql://user:password@host:port/database; in user and password, characters "
                "such as @ : / % are written as %40 %3A %2F %25",
                next_command=f"correct `url` of sink '{sink}'",
            )

    def _is_one(self) -> bool:
        try:
            given = {name: str(value) for name, value in conninfo_to_dict(self.url).items()}
        except psycopg.Error:
            return False
        # A password with @ or / in it that was not encoded: parts of it now pass for a host, a port or a database.
        misread = "@" in given.get("host", "")[1:] or ("://" in self.url and "@" in given.get("dbname", ""))
        return not misread and (given.get("port", "").replace(",", "") or "0").isdigit()

    def connect(self, sink: str) -> Connection:
        given = conninfo_to_dict(self.url)
        ours = {name: value for name, value in _DEFAULTS.items() if name not in given}
        connection = psycopg.connect(
            make_conninfo(self.url, **ours),
            autocommit=True,
            prepare_threshold=None,  # a pooler between us and the server may not know what was prepared
            client_encoding="utf8",
            application_name=str(given.get("application_name") or f"penstock {sink}"),
        )
        connection.execute(_SESSION)
        return connection

    def __str__(self) -> str:
        given = conninfo_to_dict(self.url)
        host = given.get("host") or given.get("hostaddr") or "localhost"
        return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or given.get('user') or ''}"


@contextmanager
def speaking(sink: str, address: Address, doing: str) -> Iterator[None]:
    """What PostgreSQL raises inside is said in our words."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(sink, address, doing, error) from error


@contextmanager
def connected(sink: str, address: Address, doing: str) -> Iterator[Connection]:
    address.check(sink)
    with speaking(sink, address, doing):
        connection = address.connect(sink)
        try:
            yield connection
        finally:
            connection.close()


def translated(sink: str, address: Address, doing: str, error: psycopg.Error) -> PenstockError:
    cause = said(error)
    if isinstance(error, pg.InsufficientPrivilege):
        return NotWritable(
            f"sink '{sink}' may not {doing}",
            cause=cause,
            next_command=f"grant the user of sink '{sink}' what it lacks in {address}",
        )
    if _refused(error):
        return NotWritable(
            f"sink '{sink}' cannot log in to PostgreSQL at {address}",
            cause=cause,
            next_command=f"correct `url` of sink '{sink}', or the rights of its user",
        )
    if isinstance(error, _CONFLICTS) or (isinstance(error, pg.UndefinedTable) and "penstock_staging" in cause):
        return SinkBusy(
            f"sink '{sink}': other transactions at {address} are in the way",
            cause=cause,
            next_command="nothing: the batch is run again",
        )
    if passes(error):
        return SinkBusy(
            f"sink '{sink}': PostgreSQL at {address} did not answer",
            cause=cause,
            next_command="nothing, if it comes back: the batch is run again",
        )
    return SinkFailed(f"sink '{sink}' could not {doing}", cause=cause, next_command=f"look at {address}")


def passes(error: psycopg.Error) -> bool:
    """Whether the same may succeed later, without anybody changing anything."""
    state = error.sqlstate or ""
    away = isinstance(error, psycopg.OperationalError) and not state and not _refused(error)
    return away or state.startswith(_PASSING)


def _refused(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError) and not error.sqlstate and bool(_REFUSED.search(str(error)))


def said(error: psycopg.Error) -> str:
    """PostgreSQL's message, and the line of detail it may have."""
    main = error.diag.message_primary or first_line(error)
    return f"{main} ({error.diag.message_detail})" if error.diag.message_detail else main


def retried(attempt: Callable[[], Result]) -> Result:
    """Run a whole transaction again when another one was in its way: nothing of it has happened."""
    for pause in _PAUSES_S:
        try:
            return attempt()
        except _CONFLICTS:
            time.sleep(pause * random.uniform(0.5, 1.5))  # two that met would meet again at the same pace
    return attempt()
