"""What people do to a pipeline beside running it, in its event log: so that somebody who looks later can see why
positions moved, or where rows came from.

The ledger and the checkpoint are the truth of it. An event is written after the deed, is not synced, and where it
cannot be written the deed is done all the same. The pipeline may be running meanwhile, and write events of its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock.checkpoint.home import Home
from penstock.observe.events import Deed, EventLog
from penstock.spec.model import Pipeline


def note(pipeline: Pipeline, deed: Deed, /, **facts: Any) -> None:
    if pipeline.observe.events:
        with suppress(OSError):
            EventLog(Home.of(pipeline).events).append(deed, **facts)
