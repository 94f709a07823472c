"""What a model cannot see: secrets written out, broken or unset references, settings without effect.

`load` calls `lint` with the plain data of a spec, also when the model has already found mistakes in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path as Directory
from typing import Any

from penstock.spec import references, secrets, spark_options, topic_config
from penstock.spec.lines import Document
from penstock.spec.mistake import Mistake, Path, dotted, near

# In SQL `${` can be Spark's own substitution or part of a regular expression: only references count there.
_SQL = ("sql", "rule", "matches", "query")
_ONLY = "secrets only as ${env:NAME} or ${file:path}"
_OF_EXECUTORS = [("spark", "conf", f"spark.executor.{which}JavaOptions") for which in ("default", "extra")]


def lint(document: Document, base: Directory) -> Iterator[Mistake]:
    yield from _references(document, base)
    yield from _secrets(document)
    yield from _without_effect(document)
    yield from _unknown_topic_settings(document)


def _references(document: Document, base: Directory) -> Iterator[Mistake]:
    for path, value in _scalars(document.data):
        if not isinstance(value, str) or "$" not in value:
            continue
        if path[-1:] not in [(key,) for key in _SQL]:
            for written, hint in references.broken(value):
                yield _at(document, path, "bad-reference", f"'{written}' is not a reference", hint)
        for reference in references.find(value):
            if why := references.missing(reference, base):
                mistake = _at(document, path, "reference-unset", f"{why}, so {reference} has no value here yet")
                yield dataclasses.replace(mistake, level="warning")


def _secrets(document: Document) -> Iterator[Mistake]:
    for path, value in _scalars(document.data):
        free = path[:2] == ("spark", "conf") or (path[:2] == ("kafka", "topics") and "config" in path[3:4])
        free = (
            free
            or path[:1] == ("registry",)
            or (path[:1] in (("sinks",), ("references",)) and path[-1:] == ("password",))
        )
        key = str(path[-1]) if path else ""
        if free and key.lower().endswith("sasl.jaas.config"):
            message = f"'{key}' is refused: Penstock builds it from mechanism, user and secret"
            yield _at(document, path, "literal-secret", message)
        elif path in _OF_EXECUTORS and _refers(value):  # masters and workers write them out; there is no other way
            message = f"the value would stand on the command line of every executor, where '{key}' goes"
            hint = "put such options in a file on each machine that only its user can read, and name it: '@/path/to/it'"
            yield _at(document, path, "exposed-secret", message, hint)
        elif free and secrets.is_secret(path) and not isinstance(value, bool | None) and not _refers(value):
            yield _at(document, path, "literal-secret", f"'{key}' holds a literal secret", _ONLY)
        elif isinstance(value, str) and path[-1:] not in [(k,) for k in _SQL] and secrets.shows_secret(value):
            yield _at(document, path, "literal-secret", "the text holds a literal secret", _ONLY)


def _without_effect(document: Document) -> Iterator[Mistake]:
    yield from _options_in_conf(document)
    yield from _unused_topics(document)


def _options_in_conf(document: Document) -> Iterator[Mistake]:
    """Spark reads options of a source or a sink from nowhere else, and says nothing."""
    conf = _get(document.data, ("spark", "conf"))
    for name in conf if isinstance(conf, dict) else ():
        path = ("spark", "conf", name)
        if spark_options.is_option(name):
            message = f"'{name}' does nothing in `spark.conf`"
            yield _warning(document, path, message, spark_options.meant(name, path, ()))


def _unused_topics(document: Document) -> Iterator[Mistake]:
    data = document.data
    settings, read = _get(data, ("kafka", "topics")), _get(data, ("source", "topics"))
    if not isinstance(settings, dict) or not isinstance(read, dict):
        return
    pattern = _get(data, ("dead_letters", "kafka", "topic"))
    pattern = pattern if isinstance(pattern, str) else "{topic}.DLT"
    parts = [part for name in ("sinks", "references") if isinstance(part := _get(data, (name,)), dict)]
    if any(_get(each, ("kafka", "topic_column")) for part in parts for each in part.values()):
        return  # records say which topics are written
    named = [_get(each, ("kafka", "topic")) for part in parts for each in part.values()]
    used = [*read, *(pattern.replace("{topic}", topic) for topic in read), *(t for t in named if isinstance(t, str))]
    for topic in settings:
        if topic not in used:
            path = ("kafka", "topics", topic)
            message = f"the spec names topic '{topic}' nowhere else; `penstock apply` makes it all the same"
            yield _warning(document, path, message, near(topic, used))


def _unknown_topic_settings(document: Document) -> Iterator[Mistake]:
    topics = _get(document.data, ("kafka", "topics"))
    for topic, settings in topics.items() if isinstance(topics, dict) else ():
        config = _get(settings, ("config",))
        for name in config if isinstance(config, dict) else ():
            if not isinstance(name, str) or topic_config.is_known(name):
                continue
            path = ("kafka", "topics", topic, "config", name)
            if meant := topic_config.misspelled(name):
                yield _of_key(
                    document, path, "unknown-setting", f"Kafka has no topic setting '{name}'", near(name, [meant])
                )
            else:
                message = (
                    f"Apache Kafka {topic_config.VERSION} has no topic setting '{name}'; `penstock plan` asks yours"
                )
                hint = near(name, topic_config.KNOWN)
                yield dataclasses.replace(_of_key(document, path, "unknown-setting", message, hint), level="warning")


def _refers(value: Any) -> bool:
    return isinstance(value, str) and bool(references.find(value))


def _at(document: Document, path: Path, code: str, message: str, hint: str | None = None) -> Mistake:
    spot = document.value_spot(path)
    return Mistake(document.file, spot.line, spot.column, dotted(path), code, message, hint)


def _of_key(document: Document, path: Path, code: str, message: str, hint: str | None) -> Mistake:
    spot = document.key_spot(path)
    return Mistake(document.file, spot.line, spot.column, dotted(path), code, message, hint)


def _warning(document: Document, path: Path, message: str, hint: str | None) -> Mistake:
    return dataclasses.replace(_of_key(document, path, "no-effect", message, hint), level="warning")


def _get(data: Any, path: Path) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


def _scalars(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _scalars(value, (*path, key))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from _scalars(value, (*path, i))
    else:
        yield path, data
