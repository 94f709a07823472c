"""Brokers and the servers beside them, started by one command: all of them, or none that did not run before."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.local.broker import Cluster
from penstock.local.process import deferred_signals
from penstock.local.single import OnProgress, SingleServer
from penstock.spark import jars


def up_together(
    cluster: Cluster, others: Sequence[SingleServer], on_progress: OnProgress | None = None
) -> tuple[str, list[str]]:
    """Brokers, then the others in their order: bootstrap and URLs. Called by `penstock up`.

    When one fails, or a signal comes, those that were started before it are stopped too. Downloads come before all
    that, while a signal still simply ends the command.
    """
    jars.ensure(["broker"], on_progress)
    for other in others:
        other.programs(on_progress)
    with deferred_signals() as signals:
        everyone: list[Cluster | SingleServer] = [*others, cluster]
        idle = [each for each in everyone if not any(server.pid for server in each.status())]
        try:
            bootstrap, urls = cluster.up(on_progress), []
            for other in others:
                signals.check()
                urls.append(other.up(on_progress))
        except BaseException:
            for each in idle:
                each.down()
            raise
    return bootstrap, urls
