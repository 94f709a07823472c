"""What a cluster holds: topics, their ids, their offsets. Asked by commands and the driver, not per record.

Every function opens its own client, asks, and closes it, unless it is given one that is kept.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import KafkaUnreachable, PenstockError, SpecInvalid, TopicMissing, counted
from penstock.kafka.connection import Config
from penstock.kafka.session import ANSWER_S, Kept, Session, is_silent
from penstock.kafka.session import session as _session
from penstock.spec.model import TopicSettings

if TYPE_CHECKING:
    from confluent_kafka import IsolationLevel, KafkaError
    from confluent_kafka.admin._listoffsets import OffsetSpec
    from confluent_kafka.admin._topic import TopicDescription

# Errors a broker answers with when the settings of a new topic are wrong: trying again cannot help.
SETTINGS_REFUSED = {
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_CONFIG",
    "INVALID_TOPIC_EXCEPTION",
    "TOPIC_EXCEPTION",
    "POLICY_VIOLATION",
}
CORRECT = (
    "correct the topic under `kafka: topics:` in the spec, then: penstock apply FILE"  # `check` does not ask Kafka
)
# An empty topic in place of one that was read is refused until somebody says that it is meant.
_MADE_EMPTY = (
    ", which makes a new one without records; then `penstock doctor {spec}` names the command that goes on with it"
)

_QUICK_TRIES = 2  # to be told about topics
_NO_ANSWER = -1001  # -1 is an answer: no record is as new as that
_NOT_THERE = {"_NOENT", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}


@dataclass(frozen=True)
class TopicFacts:
    partitions: int
    topic_id: str
    """Kafka's own id: a topic that was deleted and made again has another one."""
    replication: int


def topics(config: Config, timeout: float = ANSWER_S) -> dict[str, TopicFacts]:
    """Every topic of the cluster but Kafka's internal ones. Creates none, even where brokers auto-create."""
    with _session(config, timeout) as session:
        return _topics(session)


def _topics(session: Session, wanted: Collection[str] | None = None) -> dict[str, TopicFacts]:
    """Facts of all topics, or of those wanted that are there. Only what is listed is described: asking about a topic
    by name could create it."""
    from confluent_kafka import KafkaException

    listed = session.client.list_topics(timeout=session.timeout).topics
    names = [name for name in listed if wanted is None or name in wanted]
    if not names:
        return {}
    found: dict[str, TopicFacts] = {}
    for name, future in _described(session, names).items():
        try:
            topic = session.answer(future)
        except KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":  # deleted since it was listed
                continue
            raise
        if not topic.is_internal:
            copies = len(topic.partitions[0].replicas) if topic.partitions else 0
            found[name] = TopicFacts(len(topic.partitions), str(topic.topic_id), copies)
    return found


def _described(session: Session, names: list[str]) -> dict[str, Future[TopicDescription]]:
    """The client asks one broker about topics, which may be one that has just died and that the others still count for
    some seconds. So there are several tries, each with whichever broker they name then."""
    from confluent_kafka import TopicCollection

    for _ in range(_QUICK_TRIES):
        quickly = session.timeout / (_QUICK_TRIES + 1)
        described = session.client.describe_topics(TopicCollection(names), request_timeout=quickly)
        wait(described.values(), quickly + 1)
        if not any(is_silent(future) for future in described.values()):
            return described
        session.client.list_topics(timeout=session.timeout)
    return session.client.describe_topics(TopicCollection(names), request_timeout=session.timeout)  # it may be slow


def of_those_there(kept: Kept, names: Collection[str]) -> dict[str, TopicFacts]:
    """Facts of the named topics, without those that are gone."""
    with kept.session() as session:
        return _topics(session, names)


def require_topics(
    config: Config,
    names: Iterable[str],
    *,
    read: Collection[str] = (),
    spec: str = "FILE",
    timeout: float = ANSWER_S,
    kept: Kept | None = None,
) -> dict[str, TopicFacts]:
    """Facts of the named topics. Raises TopicMissing, naming all the missing. For its advice: `read` are topics that
    the pipeline has read before, so that they were deleted if they are missing; `spec` is its file."""
    wanted = list(names)
    with kept.session() if kept else _session(config, timeout) as session:
        found = _topics(session, set(wanted))
        missing = [name for name in wanted if name not in found]
        there = _topics(session) if missing else found
    if missing:
        said = [_deleted(name) if name in read else _nearest(name, there) for name in missing]
        deleted = any(name in read for name in missing)
        raise TopicMissing(
            f"no topic {', '.join(repr(name) for name in missing)}",
            cause="; ".join(said) + f" (cluster {config['bootstrap.servers']})",
            next_command=f"penstock apply {spec}" + _MADE_EMPTY.format(spec=spec) * deleted,
            facts={"missing": missing},
        )
    return {name: found[name] for name in wanted}


def _deleted(name: str) -> str:
    return f"'{name}' was read before and is not there any more: what was not read of it is gone"


def _nearest(name: str, there: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(there), n=1)
    return f"'{name}' does not exist; did you mean '{near[0]}'?" if near else f"'{name}' does not exist"


def create_missing(config: Config, wanted: Mapping[str, TopicSettings]) -> list[str]:
    """Create the topics that are not there; return their names once every one of them can be written to.

    Topics that exist are left as they are, whatever their settings. Called again after a crash it creates the
    rest.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    with _session(config) as session:
        there = _topics(session)
        new = [
            NewTopic(name, of.partitions, of.replication, config={k: str(v) for k, v in of.config.items()})
            for name, of in wanted.items()
            if name not in there
        ]
        if not new:
            return []
        created: list[str] = []
        refused: dict[str, KafkaError] = {}
        for name, future in session.client.create_topics(new, request_timeout=session.timeout).items():
            try:
                session.answer(future)
                created.append(name)
            except KafkaException as error:
                # Somebody else was quicker: it is there, which is what was asked for.
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    refused[name] = error.args[0]
        if refused:
            raise _not_created(refused, created)
        _wait_for(session, created)
        return created


def _not_created(refused: Mapping[str, KafkaError], created: list[str]) -> PenstockError:
    settings = all(error.name() in SETTINGS_REFUSED for error in refused.values())
    kind = SpecInvalid if settings else TopicMissing
    return kind(
        f"topic {', '.join(repr(name) for name in refused)} could not be created",
        cause="; ".join(f"{name}: {error.name()}: {error.str()}" for name, error in refused.items()),
        next_command=CORRECT if settings else "penstock apply FILE",
        facts={"created": created, "refused": {name: error.name() for name, error in refused.items()}},
    )


def _wait_for(session: Session, created: list[str]) -> None:
    """The controller knows a new topic before the brokers do: until then a producer is told no."""
    until = time.monotonic() + session.timeout
    while time.monotonic() < until:
        known = session.client.list_topics(timeout=session.timeout).topics
        if all(name in known and all(p.leader >= 0 for p in known[name].partitions.values()) for name in created):
            return
        time.sleep(0.05)


def groups(config: Config) -> list[str]:
    """The names of all consumer groups."""
    with _session(config) as session:
        found = session.answer(session.client.list_consumer_groups(request_timeout=session.timeout))
        return sorted(group.group_id for group in found.valid)


def watermarks(config: Config, partitions: Mapping[str, int]) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset kept and next offset to be written, for every partition of `{topic: partitions}`.

    Uncommitted transactions count: these are offsets, not records. Raises TopicMissing for a topic that is
    gone.
    """
    from confluent_kafka.admin._listoffsets import OffsetSpec

    if not partitions:
        return {}
    with _session(config) as session:
        low = _offsets(session, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = _offsets(session, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {where: (low[where], high[where]) for where in low}


def first_offsets(
    config: Config, partitions: Mapping[str, int], *, kept: Kept | None = None
) -> dict[tuple[str, int], int]:
    """The first offset that Kafka still holds of every partition of `{topic: partitions}`."""
    from confluent_kafka.admin._listoffsets import OffsetSpec

    if not partitions:
        return {}
    with kept.session() if kept else _session(config) as session:
        return _offsets(session, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def stable_ends(config: Config, partitions: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """How far committed readers get in every partition: to its end, or to the first record of a transaction that is
    still open."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin._listoffsets import OffsetSpec

    if not partitions:
        return {}
    with _session(config) as session:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return _offsets(session, partitions, latest, isolation_level=IsolationLevel.READ_COMMITTED)


def partition_counts(config: Config, names: Iterable[str]) -> dict[str, int]:
    """How many partitions each topic has, as `watermarks` wants it."""
    return {name: facts.partitions for name, facts in require_topics(config, names).items()}


def topic_configs(config: Config, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configuration of each topic, in Kafka's own names; also what it has by default."""
    from confluent_kafka.admin._config import ConfigResource

    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    if not asked:
        return {}
    with _session(config) as session:
        answers = session.client.describe_configs(asked, request_timeout=session.timeout)
        found = {of.name: session.answer(future) for of, future in answers.items()}
    return {name: {key: str(entry.value) for key, entry in entries.items()} for name, entries in found.items()}


def creates_topics(config: Config) -> bool:
    """Whether brokers make a topic when somebody writes to it; also where they do not say."""
    from confluent_kafka.admin._config import ConfigResource

    try:
        with _session(config) as session:
            brokers = session.client.list_topics(timeout=session.timeout).brokers
            asked = [ConfigResource(ConfigResource.Type.BROKER, str(next(iter(brokers))))]
            (found,) = session.client.describe_configs(asked, request_timeout=session.timeout).values()
            said = session.answer(found)
    except PenstockError:  # a right of its own, which a producer need not have
        return True
    entry = said.get("auto.create.topics.enable")
    return entry is None or str(entry.value).lower() != "false"


def compacted(config: Config, names: Iterable[str]) -> set[str]:
    """Those of the topics in which Kafka removes records that a newer one of the same key replaced."""
    found = topic_configs(config, names)
    return {name for name, entries in found.items() if "compact" in entries["cleanup.policy"]}


def offsets_at(config: Config, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int | None]:
    """The first offset of each partition whose record is not older than the time (ms); None when all are older."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin._listoffsets import OffsetSpec

    if not times:
        return {}
    asked = {TopicPartition(t, p): OffsetSpec.for_timestamp(ms) for (t, p), ms in times.items()}
    with _session(config) as session:
        answers = session.client.list_offsets(asked, request_timeout=session.timeout)
        found = {(w.topic, w.partition): session.answer(future).offset for w, future in answers.items()}
    require_answers(found)
    return {where: None if offset < 0 else offset for where, offset in found.items()}


def _offsets(
    session: Session, partitions: Mapping[str, int], spec: OffsetSpec, **more: IsolationLevel
) -> dict[tuple[str, int], int]:
    from confluent_kafka import KafkaException, TopicPartition

    asked = {TopicPartition(topic, p): spec for topic, n in partitions.items() for p in range(n)}
    answers: dict[tuple[str, int], int] = {}
    for where, future in session.client.list_offsets(asked, request_timeout=session.timeout, **more).items():
        try:
            answers[where.topic, where.partition] = session.answer(future).offset
        except KafkaException as error:
            if error.args[0].name() in _NOT_THERE:
                _name_what_is_gone(session, partitions)
            raise
    require_answers(answers)
    return answers


def require_answers(offsets: Mapping[tuple[str, int], int]) -> None:
    """Raises KafkaUnreachable where a leader has just died: the client then calls a number an offset that is none."""
    silent = [f"{topic}-{partition}" for (topic, partition), offset in offsets.items() if offset <= _NO_ANSWER]
    if silent:
        raise KafkaUnreachable(
            f"no answer from {len(silent)} of {counted(len(offsets), 'partition')}",
            cause=f"their leaders may have just died: {', '.join(silent[:10])}",
            next_command="penstock topics FILE",
            facts={"partitions": silent},
        )


def _name_what_is_gone(session: Session, partitions: Mapping[str, int]) -> None:
    """The client fails a whole request with "no leaders found", whichever partition it is about."""
    there = _topics(session)
    gone = [name for name, n in partitions.items() if name not in there or there[name].partitions < n]
    if gone:
        raise TopicMissing(
            f"topic {', '.join(repr(name) for name in gone)} is gone or has lost partitions",
            cause="; ".join(
                f"{name}: {there[name].partitions if name in there else 0} of {counted(partitions[name], 'partition')}"
                for name in gone
            ),
            next_command="penstock apply FILE",
            facts={"missing": gone},
        )
