"""Which cluster a command looks at: that of a spec, or one known by its address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import BadArgument
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from penstock.kafka.connection import Config

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [NAME]...", help="The spec, unless --bootstrap is given; then names (*, ? fit any)."
    ),
]
Bootstrap = Annotated[str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="A cluster without a spec.")]


@dataclass(frozen=True)
class Chosen:
    config: Config
    names: list[str]
    pipeline: Pipeline | None

    @property
    def servers(self) -> str:
        return self.config["bootstrap.servers"]


def chosen(words: list[str] | None, bootstrap: str | None) -> Chosen:
    from penstock.kafka import connection

    given = words or []
    if bootstrap is not None:
        return Chosen(connection.connect_to(bootstrap), given, None)
    if not given:
        raise BadArgument(
            "which cluster?", cause="neither a spec nor --bootstrap is given", next_command="penstock topics FILE"
        )
    pipeline = Pipeline.load(Path(given[0]))
    return Chosen(connection.client_config(pipeline), given[1:], pipeline)


def topics_of_spec(at: Chosen) -> list[str] | None:
    """The topics the spec speaks of, also those that its pattern fits now; None without a spec."""
    from penstock.kafka import admin
    from penstock.spec.topics import topics_of

    if at.pipeline is None:
        return None
    named = list(topics_of(at.pipeline))
    if at.pipeline.source.pattern:
        named += [name for name in admin.topics(at.config) if at.pipeline.source.reads_topic(name)]
    return list(dict.fromkeys(named))
