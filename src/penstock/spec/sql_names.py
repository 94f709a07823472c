"""The views that a SQL query reads, as far as they are sure without an engine.

Only plain names after `from` and `join` count. Whatever could be something else (a function, a table of a catalog, a
name from `with`, the `from` of `extract(year from day)`) is left out: what is missed here is found by `plan`.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>r?'(?:[^'\\]|\\.|'')*'|r?\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_QUERY = ("select", "with", "from", "table", "values", "(")
_NOT_A_NAME = ("lateral", "values", "unnest", "select", "table", "stream", "only")


def names(sql: str) -> list[str]:
    """In the order they are written, each once; empty where the query is not surely understood."""
    tokens = [(kind, text) for kind, text in _tokens(sql) if kind != "space"]
    piped = any(text == "|" and _is(tokens, at + 1, ">") for at, (_, text) in enumerate(tokens))
    if piped or ("other", "$") in tokens:  # the pipe syntax; variables, which can stand for anything
        return []
    defined = _defined(tokens)
    found: dict[str, None] = {}
    for at, name in _read(tokens):
        if name.lower() not in defined and not _goes_on(tokens, at):
            found.setdefault(name)
    return list(found)


def may_read(sql: str, name: str) -> bool:
    """Whether a query may read a view or a table: its name is there, and not as a text or as a column of something."""
    tokens = [(kind, text) for kind, text in _tokens(sql) if kind != "space"]
    return any(
        (text if kind == "word" else text[1:-1]).lower() == name.lower() and not _is(tokens, at - 1, ".")
        for at, (kind, text) in enumerate(tokens)
        if kind in ("word", "quoted")
    )


def _tokens(sql: str) -> list[tuple[str, str]]:
    return [(found.lastgroup or "", found[0]) for found in _TOKEN.finditer(sql)]


def _read(tokens: list[tuple[str, str]]) -> list[tuple[int, str]]:
    """Names right after `from` or `join`, where a query is being written."""
    opened = [True]  # per open parenthesis, the text itself first: whether a query is inside
    found = []
    for at, (kind, text) in enumerate(tokens):
        word = text.lower() if kind == "word" else ""
        if text == "(" and kind == "other":
            opened.append(at + 1 < len(tokens) and tokens[at + 1][1].lower() in _QUERY)
        elif text == ")" and kind == "other" and len(opened) > 1:
            opened.pop()
        elif word in ("from", "join") and opened[-1] and not _is(tokens, at - 1, "distinct") and at + 1 < len(tokens):
            written, name = tokens[at + 1]
            if written == "quoted" and "." not in name:
                found.append((at + 1, name[1:-1].replace("``", "`")))
            elif written == "word" and name.lower() not in _NOT_A_NAME:
                found.append((at + 1, name))
    return found


def _defined(tokens: list[tuple[str, str]]) -> set[str]:
    """Names that `with` may define: any name before `as (`, with or without a list of columns."""
    found = set()
    for at, (kind, text) in enumerate(tokens):
        if kind == "word" and text.lower() == "as" and _is(tokens, at + 1, "("):
            before = at - 1
            if _is(tokens, before, ")"):
                while before > 0 and not _is(tokens, before, "("):
                    before -= 1
                before -= 1
            if before >= 0:
                found.add(tokens[before][1].strip("`").lower())
    return found


def _goes_on(tokens: list[tuple[str, str]], at: int) -> bool:
    """A function's arguments, or the next part of a longer name."""
    return _is(tokens, at + 1, "(") or _is(tokens, at + 1, ".")


def _is(tokens: list[tuple[str, str]], at: int, word: str) -> bool:
    return 0 <= at < len(tokens) and tokens[at][1].lower() == word
