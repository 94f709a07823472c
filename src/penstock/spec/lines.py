"""YAML text into plain data, with the line and column of every key and every value.

Called by `load` for specs and schema files. It works on the parser's events and builds the data itself,
because the rules here are stricter than any loader's: YAML 1.2 scalars only (`on`, `off`, `no` are text), one
document, no tags, no key twice, no merge keys, bounded depth and bounded alias expansion. Keys are always
text: in a spec they are names. Every breach becomes a Mistake; nothing is raised, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from penstock.spec.mistake import Mistake, Path, dotted

# The pure-Python scanner reads about 200 KB a second: more than this is not a spec.
MOST_CHARACTERS = 1_000_000
# Deeper than any spec, and shallow enough for every recursive walk over the data.
MOST_DEPTH = 50
# Aliases can make nine short lines into a billion values.
MOST_VALUES = 100_000

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {"": None, "~": None} | {
    spelled: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelled in (word, word.title(), word.upper())
}


@dataclass(frozen=True)
class Spot:
    """Where something is written (both from 1), and for a scalar how."""

    line: int
    column: int
    written: str = ""


@dataclass
class Document:
    """A file as data. `data` is None when nothing could be read; then `mistakes` says why."""

    file: str
    data: Any = None
    mistakes: list[Mistake] = field(default_factory=list)
    keys: dict[Path, Spot] = field(default_factory=dict)
    values: dict[Path, Spot] = field(default_factory=dict)

    def add(self, code: str, at: Path | Spot, message: str, hint: str | None = None, path: Path = ()) -> None:
        spot = at if isinstance(at, Spot) else self.value_spot(at)
        shown = path if isinstance(at, Spot) else at
        self.mistakes.append(Mistake(self.file, spot.line, spot.column, dotted(shown), code, message, hint))

    def value_spot(self, path: Path) -> Spot:
        """The value at `path`, or the nearest thing above it that is written."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Spot(1, 1))

    def key_spot(self, path: Path) -> Spot:
        """The key at `path`; a list item and the top of the file have none, there it is the value."""
        while path and path not in self.keys and path not in self.values:
            path = path[:-1]
        return self.keys.get(path) or self.value_spot(path)


@dataclass
class _Scalar:
    spot: Spot
    value: Any


@dataclass
class _Mapping:
    spot: Spot
    entries: list[tuple[_Scalar, _Node]]


@dataclass
class _Sequence:
    spot: Spot
    items: list[_Node]


_Node = _Scalar | _Mapping | _Sequence


class _RefusedError(Exception):
    """Reading cannot go on; the mistake is already noted."""


def parse(text: str, file: str) -> Document:
    document = Document(file)
    try:
        _check_characters(document, text)
        root = _Reader(document, text).document()
        if root is None:
            document.add("empty", Spot(1, 1), "the file is empty")
        else:
            data = _Unfolding(document).unfold(root, (), 0)
            document.data = data
    except _RefusedError:
        document.data = None
    return document


def _check_characters(document: Document, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        document.add("too-large", Spot(1, 1), f"the file has more than {MOST_CHARACTERS:,} characters")
        raise _RefusedError
    if bad := _UNPRINTABLE.search(text):
        before = text[: bad.start()]
        spot = Spot(before.count("\n") + 1, bad.start() - before.rfind("\n"))
        document.add("syntax", spot, f"the character U+{ord(bad[0]):04X} is not allowed in YAML")
        raise _RefusedError


class _Reader:
    """Events into a tree in which an alias is the very node it stands for."""

    def __init__(self, document: Document, text: str) -> None:
        self.noted = document
        self.events = self.parsed(text)
        self.anchors: dict[str, _Node] = {}

    def parsed(self, text: str) -> Iterator[Event]:
        reached = Spot(1, 1)
        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                reached = Spot(event.end_mark.line + 1, event.end_mark.column + 1)
                yield event
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            spot = Spot(mark.line + 1, mark.column + 1) if mark else reached
            self.noted.add("syntax", spot, f"not YAML: {_sentence(error)}", _syntax_hint(error))
            raise _RefusedError from None
        except (
            YAMLError,
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ):
            # The scanner lets plain Python errors out for a few malformed escapes and directives.
            self.noted.add("syntax", reached, "not YAML: what follows cannot be read")
            raise _RefusedError from None

    def document(self) -> _Node | None:
        root: _Node | None = None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    self.noted.add("documents", _spot(event), "one file holds one document; a second one starts here")
                    return root
                root = self.node(next(self.events), 0)
        # Nothing but comments is read as one empty scalar.
        return None if isinstance(root, _Scalar) and root.value is None else root

    def node(self, event: Event, depth: int) -> _Node:
        if depth > MOST_DEPTH:
            self.noted.add("too-deep", _spot(event), f"nested more than {MOST_DEPTH} levels deep")
            raise _RefusedError
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                self.noted.add("alias", _spot(event), f"no anchor '&{event.anchor}' ends before this alias")
                raise _RefusedError
            return self.anchors[event.anchor]
        assert isinstance(event, NodeEvent)  # the parser puts nothing else where a node begins
        if tag := getattr(event, "ctag", None):
            self.noted.add("tag", _spot(event), f"the tag '{tag}' is not allowed; a spec has no tags")
        node: _Node
        if isinstance(event, MappingStartEvent):
            node = _Mapping(_spot(event), list(self.entries(depth)))
        elif isinstance(event, SequenceStartEvent):
            node = _Sequence(_spot(event), list(self.items(depth)))
        else:
            assert isinstance(event, ScalarEvent)
            node = self.scalar(event)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def entries(self, depth: int) -> Iterator[tuple[_Scalar, _Node]]:
        for event in self.events:
            if isinstance(event, MappingEndEvent):
                return
            key = self.node(event, depth + 1)
            value = self.node(next(self.events), depth + 1)
            if isinstance(key, _Scalar):
                yield key, value
            else:
                self.noted.add("key", key.spot, "a key must be text, not a list or a mapping")

    def items(self, depth: int) -> Iterator[_Node]:
        for event in self.events:
            if isinstance(event, SequenceEndEvent):
                return
            yield self.node(event, depth + 1)

    def scalar(self, event: ScalarEvent) -> _Scalar:
        text = str(event.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            # JSON writes a character past U+FFFF as two escapes; one half alone is no character.
            try:
                text = text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                self.noted.add("syntax", _spot(event), "half of a surrogate pair is not a character")
                text = text.encode("utf-8", "replace").decode()
        plain = event.style is None and event.ctag is None
        return _Scalar(_spot(event, text), _resolved(text) if plain else text)


class _Unfolding:
    """The tree into dicts and lists, aliases written out, noting where each path is written."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def unfold(self, node: _Node, path: Path, depth: int) -> Any:
        self.count += 1
        if self.count > MOST_VALUES or depth > MOST_DEPTH:
            self.document.add(
                "alias",
                node.spot,
                f"aliases make this more than {MOST_VALUES:,} values or {MOST_DEPTH} levels",
            )
            raise _RefusedError
        self.document.values[path] = node.spot
        if isinstance(node, _Scalar):
            return node.value
        if isinstance(node, _Sequence):
            return [self.unfold(item, (*path, i), depth + 1) for i, item in enumerate(node.items)]
        data: dict[str, Any] = {}
        for key, value in node.entries:
            name = key.spot.written
            here = (*path, name)
            if name == "<<":
                self.document.add(
                    "merge-key", key.spot, "merge keys (<<) are not YAML 1.2; write the keys out", path=here
                )
            elif name in data:
                first = self.document.keys[here].line
                self.document.add(
                    "duplicate-key", key.spot, f"'{name}' is given twice, first on line {first}", path=here
                )
            else:
                self.document.keys[here] = key.spot
                data[name] = self.unfold(value, here, depth + 1)
                if data[name] is None and not value.spot.written:
                    # The parser places a value that is not there where it gave up looking: on a later line.
                    self.document.values[here] = key.spot
        return data


def _resolved(text: str) -> Any:
    """A plain scalar by YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        digits, radix = (text[2:], {"o": 8, "x": 16}[text[1]]) if text[1:2] in ("o", "x") else (text, 10)
        # Past this many digits Python refuses to convert; no number in a spec is that long.
        return int(digits, radix) if len(digits) < 1000 else text
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _spot(event: Event, written: str = "") -> Spot:
    return Spot(event.start_mark.line + 1, event.start_mark.column + 1, written)


def _sentence(error: MarkedYAMLError) -> str:
    """The parser's problem and its context, without the quoted source: that may hold a secret."""
    parts = [part for part in (error.context, error.problem) if part]
    return ", ".join(" ".join(part.split()) for part in parts) or "syntax error"


def _syntax_hint(error: MarkedYAMLError) -> str | None:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in problem:
        return "check the indentation, or quote a text that holds ': '"
    if "'%'" in problem or "'@'" in problem or "'`'" in problem:
        return "quote the text"
    return None
