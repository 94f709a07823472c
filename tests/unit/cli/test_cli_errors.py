"""How a command that fails ends: words or a JSON document, an exit status, and no traceback unless asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.cli.output import known_codes

# A process of its own, with one more command that fails in the way a test says.
PROGRAM = """
import os, signal, sys, time
from penstock.cli import main
from penstock.cli.output import AsJson
from penstock.errors import TopicMissing

def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

@main.app.command()
def fail(as_json: AsJson = False) -> None:
    {failure}

{before}
sys.argv = ["penstock", *{arguments!r}]
main.main()
"""
SPEC = """
name: a
kafka: {bootstrap: "localhost:9092"}
registry: {url: "http://localhost:1"}
source: {topics: {t: {value: {format: string}}}}
sinks: {out: {from: t, delta: {path: lake}}}
"""
DEFECT = "raise RuntimeError('first line\\nsecond line')"
MISSING = "raise TopicMissing('no topic \\x1b[31m', cause='deleted', next_command='penstock apply', facts={'n': 1})"


def ended(failure: str, *arguments: str, before: str = "", expected: int) -> tuple[str, str]:
    """Standard output and standard error of `penstock <arguments>`."""
    program = PROGRAM.format(failure=failure, arguments=arguments, before=before)
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DEBUG"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50, env=environment
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_error_becomes_three_lines_on_standard_error_and_its_exit_status() -> None:
    said = "error[topic-missing]: no topic \\x1b[31m\n  cause: deleted\n  next:  penstock apply\n"
    assert ended(MISSING, "fail", expected=3) == ("", said)


def test_next_command_names_the_file_that_was_given(tmp_path: Path) -> None:
    spec = tmp_path / "odd \\1.yaml"
    spec.write_text(SPEC)
    _, err = ended("pass", "registry", "mode", str(spec), "BOGUS", expected=2)
    assert err.splitlines()[-1] == f"  next:  penstock registry mode {spec} shows the one that is set"


def test_error_with_json_is_one_document_on_standard_output_and_nothing_on_standard_error() -> None:
    out, err = ended(MISSING, "fail", "--json", expected=3)
    assert err == ""
    assert json.loads(out) == {
        "error": {
            "code": "topic-missing",
            "what": "no topic \x1b[31m",
            "cause": "deleted",
            "next": "penstock apply",
            "retryable": False,
            "exit_status": 3,
            "facts": {"n": 1},
        }
    }


def test_unexpected_exception_is_a_defect_in_words_without_a_traceback() -> None:
    out, err = ended(DEFECT, "fail", expected=70)
    assert out == ""
    assert err.splitlines() == [
        "error[defect]: RuntimeError: first line",
        "  cause: this is a defect in Penstock",
        "  next:  run it again with: penstock --debug ...",
    ]


def test_unexpected_exception_under_debug_shows_the_traceback_before_the_same_words() -> None:
    _, err = ended(DEFECT, "--debug", "fail", expected=70)
    traceback, _, words = err.partition("error[defect]: RuntimeError: first line\n")
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert "in fail\n" in traceback
    assert "second line" in traceback
    assert words.startswith("  cause: ")


def test_traceback_under_debug_does_not_spoil_the_json_document() -> None:
    out, err = ended(DEFECT, "--debug", "fail", "--json", expected=70)
    assert json.loads(out)["error"]["code"] == "defect"
    assert err.startswith("Traceback (most recent call last):\n")
    assert "error[defect]" not in err


def test_exception_while_commands_are_loaded_is_a_defect_too() -> None:
    _, err = ended("pass", "fail", before="main._COMMANDS = ('no_such_command',)", expected=70)
    assert err.startswith("error[defect]: ModuleNotFoundError: ")


def test_interrupted_command_exits_130_in_silence() -> None:
    assert ended("interrupted()", "fail", expected=130) == ("", "")


def test_interrupt_while_commands_are_loaded_exits_130_in_silence() -> None:
    assert ended("pass", "fail", before="main.register = interrupted", expected=130) == ("", "")


def test_command_line_that_is_wrong_is_an_error_like_any_other() -> None:
    out, err = ended("pass", "verify", expected=2)
    assert (out, err.splitlines()[0]) == ("", "error[bad-argument]: missing argument 'FILE'")
    for arguments in (["verify", "--json"], ["nothing", "--json"], ["fail", "--json", "--no-such-option"]):
        out, err = ended("pass", *arguments, expected=2)
        assert (json.loads(out)["error"]["code"], err) == ("bad-argument", "")


def test_penstock_without_a_command_prints_its_help() -> None:
    out, err = ended("pass", expected=0)
    assert "verify" in out
    assert err == ""


def test_code_that_nothing_stops_with_is_not_accepted_in_silence() -> None:
    _, err = ended("pass", "run", "x.yaml", "--accept", "ledger-damagd", expected=2)
    assert "did you mean 'ledger-damaged'?" in err
    assert known_codes(["new-topics", "table-differs"]) == ["new-topics", "table-differs"]
