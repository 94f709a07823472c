"""Topics made what a spec says: those that are missing are created, those that differ are changed, none is deleted.

    1. Settings that cannot be are a mistake in the spec: nothing is done.
    2. The brokers are asked whether they would take every change: if not, nothing is done.
    3. Missing topics are created.
    4. Partitions are added, and waited for until each has a leader.
    5. Configuration is altered, key by key, and waited for: what the spec does not name stays as it is.

A crash between any two leaves a topic that differs in less than before; the same command does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import KafkaUnreachable, PenstockError, SpecInvalid
from penstock.kafka import admin, differences
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import Config
from penstock.kafka.differences import NOT_KNOWN, PARTITIONS, REPLICATION, Difference
from penstock.kafka.session import ANSWER_S, Session, session
from penstock.spec.model import Pipeline
from penstock.spec.topics import topics_to_make

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin._config import ConfigResource


@dataclass(frozen=True)
class Reshaped:
    """What `apply` did. `there`: the topics of the spec as they are now."""

    created: list[str]
    changed: list[Difference]
    left: list[Difference]
    there: dict[str, TopicFacts]


def apply(config: Config, pipeline: Pipeline, *, force: bool = False) -> Reshaped:
    """Raises SpecInvalid for what Kafka cannot do or refuses, before anything is changed."""
    wanted = topics_to_make(pipeline)
    found = compare(config, pipeline, admin.topics(config))
    impossible = [each for each in found if each.fate == "impossible"]
    if impossible:
        raise SpecInvalid(
            "; ".join(_impossible(each) for each in impossible),
            cause="; ".join(dict.fromkeys(each.effect for each in impossible)) + "; nothing was changed",
            next_command="correct the topic under `kafka: topics:` in the spec, or read and write another topic",
            facts={"topics": [each.topic for each in impossible]},
        )
    changing = [each for each in found if each.fate == "change" or (force and each.fate == "force")]
    with session(config) as opened:
        _ask(opened, changing, rehearse=True)
        created = admin.create_missing(config, wanted)
        _ask(opened, changing, rehearse=False)
        _await_partitions(opened, changing)
    _await_configs(config, changing)
    now = admin.topics(config)
    return Reshaped(
        created,
        changing,
        [each for each in found if each not in changing],
        {name: now[name] for name in wanted if name in now},
    )


def compare(config: Config, pipeline: Pipeline, there: Mapping[str, TopicFacts]) -> list[Difference]:
    """Settings that the spec gives a topic, and that it does not have. What the spec leaves out may be anything. Of a
    topic that is missing: settings that no topic of the cluster has."""
    given = {name: of for name, of in topics_to_make(pipeline).items() if name in pipeline.kafka.topics}
    configs = admin.topic_configs(config, [name for name, of in given.items() if of.config and name in there])
    made = []
    for name, settings in given.items():
        said = pipeline.kafka.topics[name]
        spec = {key: str(settings.config[key]) for key in said.config}
        if name not in there:
            known = (next(iter(configs.values()), None) or _config_of_any(config, there)) if spec else None
            made += differences.unknown(name, spec, known) if known else []
            continue
        facts = there[name]
        sizes = {
            part: str(getattr(settings, part)) for part in (PARTITIONS, REPLICATION) if part in said.model_fields_set
        }
        found = {part: str(getattr(facts, part)) for part in (PARTITIONS, REPLICATION)} | configs.get(name, {})
        made += differences.of_topic(name, sizes | spec, found, facts.replication)
    return made


def _config_of_any(config: Config, there: Mapping[str, TopicFacts]) -> dict[str, str]:
    """The configuration of some topic, whose names every topic has; empty where none may be looked at."""
    try:
        return next(iter(admin.topic_configs(config, [*there][:1]).values()), {})
    except PenstockError:
        return {}


def _impossible(each: Difference) -> str:
    if each.found == NOT_KNOWN:
        return f"topic '{each.topic}' cannot have '{each.setting}', which is {NOT_KNOWN}"
    return f"topic '{each.topic}' has {each.found} {each.setting}, and cannot have {each.spec}"


def _ask(opened: Session, changing: list[Difference], *, rehearse: bool) -> None:
    """Add partitions and alter configuration, or only ask whether that would be taken."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewPartitions

    more = [NewPartitions(each.topic, int(each.spec)) for each in changing if each.setting == PARTITIONS]
    altered = _resources([each for each in changing if each.setting != PARTITIONS])
    options = {"request_timeout": opened.timeout, "validate_only": rehearse}
    asked = list(opened.client.create_partitions(more, **options).items()) if more else []
    if altered:
        answers = opened.client.incremental_alter_configs(altered, **options)
        asked += [(of.name, future) for of, future in answers.items()]
    refused: dict[str, KafkaError] = {}
    for name, future in asked:
        try:
            opened.answer(future)
        except KafkaException as error:
            if error.args[0].name() not in admin.SETTINGS_REFUSED:
                raise
            refused[name] = error.args[0]
    if refused:
        raise SpecInvalid(
            f"topic {', '.join(repr(name) for name in refused)} cannot be changed to what the spec says",
            cause="; ".join(f"{name}: {error.name()}: {error.str()}" for name, error in refused.items())
            + ("; nothing was changed" if rehearse else ""),
            next_command=admin.CORRECT,
            facts={"refused": {name: error.name() for name, error in refused.items()}},
        )


def _resources(changing: list[Difference]) -> list[ConfigResource]:
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

    by_topic: dict[str, list[ConfigEntry]] = {}
    for each in changing:
        entry = ConfigEntry(each.setting, each.spec, incremental_operation=AlterConfigOpType.SET)
        by_topic.setdefault(each.topic, []).append(entry)
    return [
        ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        for name, entries in by_topic.items()
    ]


def _await_partitions(opened: Session, changing: list[Difference]) -> None:
    """The controller knows new partitions before the brokers do: until then nobody writes to them."""
    wanted = {each.topic: int(each.spec) for each in changing if each.setting == PARTITIONS}
    until = time.monotonic() + opened.timeout
    while wanted:
        known = opened.client.list_topics(timeout=opened.timeout).topics
        led = {name: sum(p.leader >= 0 for p in known[name].partitions.values()) for name in wanted if name in known}
        if all(led.get(name, 0) >= number for name, number in wanted.items()):
            return
        if time.monotonic() > until:
            raise KafkaUnreachable(
                "new partitions have no leader yet",
                cause="; ".join(f"{name}: {led.get(name, 0)} of {number}" for name, number in wanted.items()),
                next_command="penstock topics FILE",
            )
        time.sleep(0.05)


def _await_configs(config: Config, changing: list[Difference]) -> None:
    """The controller has taken the changes before a broker that is asked shows them. It has taken them, so this gives
    up in silence."""
    wanted = [each for each in changing if each.setting != PARTITIONS]
    until = time.monotonic() + ANSWER_S
    while wanted and time.monotonic() < until:
        now = admin.topic_configs(config, {each.topic for each in wanted})
        wanted = [each for each in wanted if not differences.same(now[each.topic].get(each.setting, ""), each.spec)]
        time.sleep(0.05 * bool(wanted))
