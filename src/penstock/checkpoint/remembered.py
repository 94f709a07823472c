"""What the spec said when the pipeline was last started, as far as a checkpoint depends on it. In short, and without
anything that could be a secret: `<checkpoint>/spec.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.spec import real_time
from penstock.spec.model import Every, Pipeline
from penstock.spec.sinks import target_of


@dataclass(frozen=True)
class Remembered:
    subscription: str  # by list, by pattern, by partitions
    partitions: dict[str, list[int]]  # of topics of which only some are read
    trigger: str
    on_data_loss: str
    max_offsets: int
    sinks: dict[str, dict[str, str]]  # kind, to
    steps: dict[str, str] = field(default_factory=dict)  # view -> what it does
    rules: dict[str, dict[str, str]] | None = None  # view -> rule -> what it asks for; None: older versions kept none


def of(pipeline: Pipeline) -> Remembered:
    source = pipeline.source
    some = {name: sorted(topic.partitions) for name, topic in source.topics.items() if topic.partitions is not None}
    return Remembered(
        subscription="by pattern" if source.pattern else "by partitions" if some else "by list",
        partitions=some,
        trigger=_trigger(pipeline.trigger),
        on_data_loss=source.on_data_loss,
        max_offsets=pipeline.rate.max_offsets,
        sinks={name: asdict(target_of(sink)) for name, sink in pipeline.sinks.items()},
        steps={step.view: step.text for step in pipeline.transform},
        rules={
            view: {rule.name: f"{rule.text}, otherwise {rule.otherwise}" for rule in rules}
            for view, rules in pipeline.contract.items()
        },
    )


def _trigger(trigger: object) -> str:
    if isinstance(trigger, Every):
        return f"every {trigger.every.total_seconds():g}s"
    return real_time.WORD if real_time.batch_of(trigger) else str(trigger)


def write(home: Home, pipeline: Pipeline) -> None:
    """Called once per start, when nothing stands in its way any more: `plan` compares with what has been run, and not
    with a spec whose start was refused."""
    put(home.path / "spec.json", json.dumps(asdict(of(pipeline)), indent=1).encode())


@dataclass
class Remembering:
    """Writes at the first call. A start is no longer refused once a batch begins, or the run has ended well."""

    home: Home
    pipeline: Pipeline
    done: bool = False

    def __call__(self) -> None:
        if not self.done:
            write(self.home, self.pipeline)
            self.done = True


def read(home: Home) -> Remembered | None:
    """None where nothing was remembered, or by another version: then less can be compared."""
    try:
        raw: dict[str, Any] = json.loads((home.path / "spec.json").read_text())
        return Remembered(**raw)
    except (OSError, ValueError, TypeError):
        return None
