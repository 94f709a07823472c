"""`penstock`: one place where commands are gathered and where every error becomes words and an exit status."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from penstock.cli import output
from penstock.errors import BadArgument, Defect, PenstockError

app = typer.Typer(
    name="penstock",
    help="Production Kafka <-> Spark pipelines from one declarative spec.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        import penstock

        output.say(penstock.__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    _: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)] = False,
) -> None:
    if debug:
        os.environ["PENSTOCK_DEBUG"] = "1"


_COMMANDS = (
    "check",
    "schema",
    "test",
    "plan",
    "apply",
    "topics",
    "groups",
    "tail",
    "produce",
    "run",
    "split",
    "verify",
    "lag",
    "doctor",
    "events",
    "dlq",
    "dlq_replay",
    "jars",
    "servers",
    "registry",
    "checkpoint",
)


def register() -> None:
    """Import the command modules. Each one adds its commands to `app` and imports nothing heavy."""
    for name in _COMMANDS:
        importlib.import_module(f"penstock.cli.{name}")


def entry() -> None:
    """The command. It ends as Python does, except for the last step: there the interpreter is taken apart while threads
    of native libraries (Arrow's, for one) may still call into it, and they abort the process after all was said."""
    status: object = None
    try:
        main()
    except SystemExit as end:
        status = end.code
    threading._shutdown()  # type: ignore[attr-defined]  # other threads of Python's end first, as they always do
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def main() -> None:
    if not sys.argv[1:]:
        sys.argv.append("--help")
    try:
        register()
        sys.exit(app(standalone_mode=False))
    except PenstockError as error:
        _end(error)
    except TyperException as error:
        said = error.format_message()
        _end(BadArgument(said[0].lower() + said[1:].rstrip("."), next_command="penstock --help"))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # a defect of ours: still words and a status, the traceback is one flag away
        _end(_of_the_machine(error) or _defect(error))


def _of_the_machine(error: Exception) -> PenstockError | None:
    """What may fail any command, and is no fault of it."""
    from penstock.checkpoint.disk import Disks, raised_by_a_full_disk

    if "pyspark" in sys.modules:
        from penstock.spark import death

        if died := death.of_engine():
            return died
    full = raised_by_a_full_disk(error)
    if full is None:
        return None
    places = {"what is written": Path(full.filename or ".")}
    output_file = Path("/proc/self/fd/1")  # Python does not say of a file that was open already which one it is
    if not full.filename and output_file.is_file():
        places["the output"] = output_file
    return Disks(places).full(str(full), then="the same command")


def _defect(error: Exception) -> Defect:
    return Defect(
        f"{type(error).__name__}: {error}".split("\n")[0],
        cause="this is a defect in Penstock",
        next_command="run it again with: penstock --debug ...",
    )


def _end(error: PenstockError) -> None:
    if os.environ.get("PENSTOCK_DEBUG"):
        traceback.print_exc()
    for word in sys.argv[1:]:
        if word.endswith((".yaml", ".yml")):
            if error.facts:
                from penstock.spec.place import locate

                locate(error, Path(word))
            error.naming(word)
    output.report(error, as_json="--json" in sys.argv)
    sys.exit(error.exit_status)


if __name__ == "__main__":
    entry()
