"""Codes and exit statuses are what scripts match on: they stay, and the tree in the docstring is the tree."""

from __future__ import annotations

import json
import re

import pytest

from penstock import errors
from penstock.errors import (
    CompilerFailed,
    DiskFull,
    EngineBusy,
    ExecutorLost,
    KafkaUnreachable,
    PenstockError,
    RegistryUnreachable,
    SeekRefused,
    SinkBusy,
    TopicMissing,
    TransactionOpen,
    naming,
)

# Written out a second time on purpose: a released code or status must not change with the docstring it stands in.
RETRYABLE = {
    CompilerFailed,
    DiskFull,
    EngineBusy,
    ExecutorLost,
    KafkaUnreachable,
    RegistryUnreachable,
    SinkBusy,
    TransactionOpen,
}
RELEASED = {
    2: {
        "spec-invalid",
        "spec-unreadable",
        "reference-missing",
        "bad-argument",
        "not-in-real-time",
        "schema-invalid",
        "schema-incompatible",
    },
    3: {
        "java-missing",
        "jars-unavailable",
        "not-writable",
        "disk-full",
        "kafka-unreachable",
        "transaction-open",
        "topic-missing",
        "server-failed",
        "reference-unusable",
        "registry-unreachable",
        "registry-refused",
        "subject-missing",
        "schema-missing",
        "compiler-failed",
    },
    4: {
        "already-running",
        "ledger-missing",
        "ledger-damaged",
        "checkpoint-missing",
        "checkpoint-foreign",
        "table-of-another-query",
        "offsets-vanished",
        "offsets-went-back",
        "table-differs",
        "topic-recreated",
        "start-not-there",
        "batch-unbalanced",
        "dead-letter-budget",
        "rule-stopped",
        "batch-too-large",
        "seek-refused",
        "backup-damaged",
    },
    5: {"engine-failed", "step-failed", "engine-busy", "out-of-memory", "executor-lost", "sink-busy", "sink-failed"},
    70: {"defect"},
}


def classes() -> list[type[PenstockError]]:
    return [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, PenstockError)]


def concrete() -> list[type[PenstockError]]:
    return [c for c in classes() if "code" in vars(c) and c is not PenstockError]


def drawn() -> dict[str, tuple[str, str | None, int, bool]]:
    """Class -> parent, code, exit status, retryable, as the docstring of the module draws them."""
    tree: dict[str, tuple[str, str | None, int, bool]] = {}
    group, status = "", 0
    for line in str(errors.__doc__).splitlines():
        match = re.fullmatch(r" {4}(│ {3}| {4})?[├└]── (\w+) +(?:exit (\d+)|([a-z-]+))(.*)", line)
        if match is None:
            continue
        below, name, exits, code, rest = match.groups()
        if below is None:
            group, status = name, int(exits)
        tree[name] = (group if below else "PenstockError", code, status, "(retryable)" in rest)
    return tree


def test_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    tree = drawn()
    assert tree.keys() == {c.__name__ for c in classes()} - {"PenstockError"}
    for name, (parent, code, status, retryable) in tree.items():
        found = getattr(errors, name)
        assert [base.__name__ for base in found.__bases__] == [parent], name
        assert (found.exit_status, found.retryable) == (status, retryable), name
        assert code is None or found.code == code, name


def test_released_codes_keep_their_exit_status() -> None:
    found = {c.code: c.exit_status for c in concrete()}
    for status, codes in RELEASED.items():
        assert {code: found.get(code) for code in codes} == dict.fromkeys(codes, status)


def test_codes_are_unique_kebab_case_words() -> None:
    codes = [c.code for c in concrete()]
    assert len(codes) == len(set(codes))
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_no_error_exits_as_if_a_command_had_worked() -> None:
    assert {c.exit_status for c in concrete()}.isdisjoint({0, 1})


@pytest.mark.parametrize("error", concrete(), ids=lambda c: c.__name__)
def test_error_as_data_has_stable_keys_and_survives_json(error: type[PenstockError]) -> None:
    bare = error("it broke").as_dict()
    assert bare == {
        "code": error.code,
        "what": "it broke",
        "cause": None,
        "next": None,
        "retryable": error in RETRYABLE,
        "exit_status": error.exit_status,
    }
    assert json.loads(json.dumps(bare)) == bare


def test_error_as_data_carries_cause_next_command_and_facts() -> None:
    said = TopicMissing("no topic", cause="deleted", next_command="penstock apply", facts={"topic": "t"}).as_dict()
    assert (said["cause"], said["next"], said["facts"]) == ("deleted", "penstock apply", {"topic": "t"})


def test_text_of_an_error_is_what_happened() -> None:
    assert str(TopicMissing("no topic", cause="deleted")) == "no topic"


def test_every_command_that_can_be_chosen_names_the_spec() -> None:
    error = SeekRefused("no", next_command="penstock run FILE", facts={"alternatives": ["a: penstock run FILE --to X"]})
    error.naming("payments.yaml")
    assert error.as_dict()["next"] == "penstock run payments.yaml"
    assert error.as_dict()["facts"] == {"alternatives": ["a: penstock run payments.yaml --to X"]}


def test_spec_is_named_in_commands_and_nowhere_else() -> None:
    said = {
        "next": ("penstock run FILE; or: penstock plan FILE --json", 7),
        "topic": "FILE",
        "why": "`FILE` is no topic",
    }
    assert naming(said, "a b.yaml") == {
        **said,
        "next": ("penstock run a b.yaml; or: penstock plan a b.yaml --json", 7),
    }
