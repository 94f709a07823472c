"""`penstock jars`: what the jar cache holds, and filling it ahead of time."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.spark import jars as jar_cache
from penstock.spark import java, recorded


@app.command()
def jars(
    fetch: Annotated[bool, typer.Option("--fetch", help="Download what is missing.")] = False,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group; can be given more than once.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash the cache again; what is damaged is removed.")] = False,
    record: Annotated[
        bool,
        typer.Option("--record", help="Record Spark's classes, once: later starts are faster."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the pinned jars and whether they are cached; fetch or verify them."""
    damaged: list[str] = []
    if verify:
        broken = jar_cache.corrupt(group)
        damaged = [jar.file_name for jar in broken]
        if broken:
            jar_cache.discard(broken)
    if fetch:
        # SIGTERM as an exception: the download is ended and its temporary directory removed on the way out.
        signal.signal(signal.SIGTERM, _terminate)
        wanted = group if group is not None else sorted({jar.group for jar in jar_cache.pinned()})
        jar_cache.ensure(wanted, on_progress=output.note)
    classes = recorded.record(java.find()) if record else None
    rows = jar_cache.pinned(group)
    data = {
        "cache": str(jar_cache.cache_dir()),
        **({"damaged": damaged} if verify else {}),
        **({"recorded": str(classes)} if classes else {}),
        "jars": [
            {
                "group": jar.group,
                "artifact": f"{jar.org}:{jar.artifact}",
                "version": jar.version,
                "size": jar.size,
                "cached": jar.cached,
            }
            for jar in rows
        ],
    }

    def human() -> None:
        output.say(f"cache: {jar_cache.cache_dir()}")
        for jar in rows:
            state = "cached" if jar.cached else "-"
            name = f"{jar.artifact} {jar.version}"
            output.say(f"{jar.group:<9} {name:<56} {jar.size / 1e6:>8.2f} MB  {state}")
        if verify:
            output.say(f"damaged, removed: {', '.join(damaged)}" if damaged else "every cached jar is whole")
        if classes:
            output.say(f"Spark's classes are recorded: {classes}")

    output.emit(data, as_json, human)
    if damaged and not fetch:
        raise typer.Exit(3)


def _terminate(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
