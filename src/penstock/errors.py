"""Every error a user can meet, in one tree.

    PenstockError
    ├── UsageError                 exit 2   the command line or the spec is wrong; nothing was started
    │   ├── SpecInvalid            spec-invalid
    │   ├── SpecUnreadable         spec-unreadable
    │   ├── ReferenceMissing       reference-missing      (${env:...} or ${file:...} that is not there)
    │   ├── BadArgument            bad-argument
    │   ├── NotInRealTime          not-in-real-time       (a pipeline or a command that real-time mode has no way for)
    │   ├── SchemaInvalid          schema-invalid         (the registry cannot read a schema)
    │   └── SchemaIncompatible     schema-incompatible    (the registry refuses a schema for its subject)
    ├── EnvironmentFault           exit 3   something outside the pipeline is missing or unreachable
    │   ├── JavaMissing            java-missing
    │   ├── JarsUnavailable        jars-unavailable
    │   ├── NotWritable            not-writable
    │   ├── DiskFull               disk-full              (retryable)
    │   ├── KafkaUnreachable       kafka-unreachable      (retryable)
    │   ├── TransactionOpen        transaction-open       (retryable)
    │   ├── TopicMissing           topic-missing
    │   ├── RegistryUnreachable    registry-unreachable   (retryable)
    │   ├── RegistryRefused        registry-refused       (it answers, and not as a registry does or not to us)
    │   ├── SubjectMissing         subject-missing
    │   ├── SchemaMissing          schema-missing         (no such version, no such id)
    │   ├── CompilerFailed         compiler-failed        (retryable)
    │   ├── ReferenceUnusable      reference-unusable     (a table that rows are looked up in)
    │   └── ServerFailed           server-failed          (a local server did not start or stop)
    ├── Stopped                    exit 4   the pipeline refuses to go on: a fact it needs is missing
    │   ├── AlreadyRunning         already-running
    │   ├── LedgerMissing          ledger-missing
    │   ├── LedgerDamaged          ledger-damaged         (lines of it are not as they were written)
    │   ├── CheckpointMissing      checkpoint-missing
    │   ├── CheckpointForeign      checkpoint-foreign
    │   ├── TableOfAnotherQuery    table-of-another-query
    │   ├── TableDiffers           table-differs          (it has lost batches, or is ahead of the checkpoint)
    │   ├── OffsetsVanished        offsets-vanished       (they expired unread)
    │   ├── OffsetsWentBack        offsets-went-back      (a partition ends before the offset it was read up to)
    │   ├── TopicRecreated         topic-recreated
    │   ├── StartNotThere          start-not-there        (Kafka does not hold the position that is asked for)
    │   ├── BatchUnbalanced        batch-unbalanced
    │   ├── SeekRefused            seek-refused           (a sink or the state would not agree with it)
    │   ├── BackupDamaged          backup-damaged         (it does not hold what its manifest says)
    │   ├── DeadLetterBudget       dead-letter-budget     (more records of a batch die than the spec allows)
    │   ├── Fenced                 fenced                 (another process writes under the same name)
    │   ├── BatchTooLarge          batch-too-large        (the driver died of it twice)
    │   └── RuleStopped            rule-stopped
    ├── RunFailed                  exit 5   the engine, a step or a sink failed while running
    │   ├── EngineFailed           engine-failed
    │   ├── EngineBusy             engine-busy            (retryable)
    │   ├── OutOfMemory            out-of-memory          (the engine, or a Python worker of it)
    │   ├── ExecutorLost           executor-lost          (retryable)
    │   ├── StepFailed             step-failed
    │   ├── SinkBusy               sink-busy              (retryable)
    │   └── SinkFailed             sink-failed
    └── Defect                     exit 70  a bug in Penstock itself

Two exit statuses are kept for commands that worked and found something: 1 for `verify` that is not complete and for
`test` with cases that failed; 6 for `verify` where all is accounted for, and records were lost.

An error is four things: what happened, the cause, the next command, and a stable code that scripts and tests
match on. `retryable` says whether the same call can succeed later without anybody changing anything.
Prose may change between releases; codes and exit statuses do not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar

RECORDS_LOST = 6
"""Exit status of `verify`: the ledger accounts for every offset, and says that records were lost."""
WITHOUT_THEM = "set `on_data_loss: continue` to go on without them; the ledger then says which they were"
"""What helps where offsets expired unread."""
NEW_TOPICS = "new-topics"  # no error, but accepted like one: topics that a pattern holds back
ANEW = "give the pipeline a new `checkpoint:`, and read the topics from their start"
"""What helps where the offsets of the checkpoint mean nothing any more, and it cannot be moved."""


MARK_VARIABLE = "PENSTOCK_ERROR_MARK"
MARK = os.environ.get(MARK_VARIABLE) or os.urandom(16).hex()
"""Stands before what Penstock itself says in the text of an engine's exception. Such texts quote values of records, and
a record can say whatever our errors say. It cannot know this, which is random: drawn by the driver, and told to the
Python workers in their environment."""


def first_line(said: object) -> str:
    """The first line that says something of a long message."""
    return next((line.strip() for line in str(said or "").split("\n") if line.strip()), "")


def counted(number: int, word: str, plural: str | None = None) -> str:
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes. PySpark keeps a cause in a place of its own, and makes some errors their own cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "_cause", None) or error.__cause__


_COMMAND = re.compile(r"(penstock [^`\n]*?)\bFILE\b")


def naming(said: Any, file: object) -> Any:
    """A text, or all the texts of a document, with the spec's path where a command only says FILE."""
    if isinstance(said, dict):
        return {name: naming(each, file) for name, each in said.items()}
    if isinstance(said, list | tuple):
        return type(said)(naming(each, file) for each in said)
    return _COMMAND.sub(lambda of: f"{of[1]}{file}", said) if isinstance(said, str) else said


class PenstockError(Exception):
    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        what: str,
        *,
        cause: str | None = None,
        next_command: str | None = None,
        facts: dict[str, object] | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.next_command = next_command
        self.facts = facts or {}
        if MARK_VARIABLE in os.environ:  # a worker's error comes back to the driver as the text of its traceback
            said = {"code": self.code, "what": what, "cause": cause, "next": next_command, "facts": self.facts}
            self.add_note(f"{MARK} {json.dumps(said, default=str)}")
            return
        for name, text in (("cause", cause), ("next", next_command)):
            if text:
                self.add_note(f"{name}: {text}")

    def naming(self, file: object) -> None:
        """Name the spec in the next command, and in others that can be chosen."""
        self.next_command = naming(self.next_command, file)
        if "alternatives" in self.facts:
            self.facts["alternatives"] = naming(self.facts["alternatives"], file)

    def as_dict(self) -> dict[str, object]:
        """What `--json` prints, and what tests compare."""
        return {
            "code": self.code,
            "what": self.what,
            "cause": self.cause,
            "next": self.next_command,
            "retryable": self.retryable,
            "exit_status": self.exit_status,
            **({"facts": self.facts} if self.facts else {}),
        }


class UsageError(PenstockError):
    exit_status = 2


class SpecInvalid(UsageError):
    code = "spec-invalid"


class SpecUnreadable(UsageError):
    code = "spec-unreadable"


class ReferenceMissing(UsageError):
    code = "reference-missing"


class BadArgument(UsageError):
    code = "bad-argument"


class NotInRealTime(UsageError):
    code = "not-in-real-time"


class SchemaInvalid(UsageError):
    code = "schema-invalid"


class SchemaIncompatible(UsageError):
    code = "schema-incompatible"


class EnvironmentFault(PenstockError):
    exit_status = 3


class JavaMissing(EnvironmentFault):
    code = "java-missing"


class JarsUnavailable(EnvironmentFault):
    code = "jars-unavailable"


class NotWritable(EnvironmentFault):
    code = "not-writable"


class DiskFull(EnvironmentFault):
    """What could not be written is written again with its batch, once there is room."""

    code = "disk-full"
    retryable = True


class KafkaUnreachable(EnvironmentFault):
    code = "kafka-unreachable"
    retryable = True


class TransactionOpen(EnvironmentFault):
    """Kafka answers. A producer has a transaction open, and what is asked for is decided when that ends."""

    code = "transaction-open"
    retryable = True


class TopicMissing(EnvironmentFault):
    code = "topic-missing"


class RegistryUnreachable(EnvironmentFault):
    """The registry could not be asked: what a schema id means is not known yet. Not a fault of the record."""

    code = "registry-unreachable"
    retryable = True


class RegistryRefused(EnvironmentFault):
    code = "registry-refused"


class SubjectMissing(EnvironmentFault):
    code = "subject-missing"


class SchemaMissing(EnvironmentFault):
    code = "schema-missing"


class CompilerFailed(EnvironmentFault):
    """protoc could not do its work, which says nothing about the schema: no record may be refused for it."""

    code = "compiler-failed"
    retryable = True


class ReferenceUnusable(EnvironmentFault):
    code = "reference-unusable"


class ServerFailed(EnvironmentFault):
    code = "server-failed"


class Stopped(PenstockError):
    exit_status = 4


class AlreadyRunning(Stopped):
    code = "already-running"


class LedgerMissing(Stopped):
    code = "ledger-missing"


class LedgerDamaged(Stopped):
    code = "ledger-damaged"


class CheckpointMissing(Stopped):
    code = "checkpoint-missing"


class CheckpointForeign(Stopped):
    code = "checkpoint-foreign"


class TableOfAnotherQuery(Stopped):
    code = "table-of-another-query"


class TableDiffers(Stopped):
    code = "table-differs"


class OffsetsVanished(Stopped):
    code = "offsets-vanished"


class OffsetsWentBack(Stopped):
    code = "offsets-went-back"


class TopicRecreated(Stopped):
    code = "topic-recreated"


class StartNotThere(Stopped):
    code = "start-not-there"


class BatchUnbalanced(Stopped):
    code = "batch-unbalanced"


class SeekRefused(Stopped):
    code = "seek-refused"


class BackupDamaged(Stopped):
    code = "backup-damaged"


class DeadLetterBudget(Stopped):
    code = "dead-letter-budget"


class Fenced(Stopped):
    code = "fenced"


class BatchTooLarge(Stopped):
    code = "batch-too-large"


class RuleStopped(Stopped):
    code = "rule-stopped"


class RunFailed(PenstockError):
    exit_status = 5


class EngineFailed(RunFailed):
    code = "engine-failed"


class EngineBusy(RunFailed):
    """It has not started a Python worker in time: the machine has too much to do, which passes."""

    code = "engine-busy"
    retryable = True


class OutOfMemory(RunFailed):
    """Not retryable: the batch would come again as it is. The driver counts it (`checkpoint.attempts`)."""

    code = "out-of-memory"


class ExecutorLost(RunFailed):
    """What it had computed was computed again by another one: what was counted on the way is counted twice."""

    code = "executor-lost"
    retryable = True


class StepFailed(RunFailed):
    code = "step-failed"


class SinkBusy(RunFailed):
    code = "sink-busy"
    retryable = True


class SinkFailed(RunFailed):
    code = "sink-failed"


class Defect(PenstockError):
    code = "defect"
    exit_status = 70


_FROM_WORKER = re.compile(rf"^{MARK} (\{{.*\}})$", re.MULTILINE)


def from_worker(text: str) -> PenstockError | None:
    """The error of ours that a Python worker ended with, out of the text of the engine's exception; None: none was."""
    found = _FROM_WORKER.findall(text)
    if not found:
        return None
    said = json.loads(found[-1])
    kind = next(kind for kind in _kinds(PenstockError) if kind.code == said["code"])
    return kind(said["what"], cause=said["cause"], next_command=said["next"], facts=said["facts"])


def _kinds(above: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield above
    for kind in above.__subclasses__():
        yield from _kinds(kind)
