"""pydantic's errors as mistakes a person can act on: one per cause, at the key or value that is wrong.

`load` calls `mistakes` with the document it validated. What the cause is, where the model has unions, is settled in
`causes`; here it is put into words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import ErrorDetails

from penstock.spec import secrets, shape, spark_options, words
from penstock.spec.causes import Cause, causes, keys_at, keys_of_kind
from penstock.spec.cross import CrossMistake
from penstock.spec.lines import Document
from penstock.spec.mistake import Mistake, Path, dotted, instead, near
from penstock.spec.python_step import NAMED
from penstock.spec.sinks import CATALOG_NAME, ICEBERG_TABLE
from penstock.spec.start import milliseconds

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_OUR_OWN = {
    "type": "bad-type",
    "duration": "bad-duration",
    "path": "bad-path",
    "one_kind": "one-kind",
    "time": "bad-time",
    "pattern": "bad-pattern",
    "bound": "bad-range",
    "stateful": "bad-step",
}
_PATTERNS = {
    words.NAME: "lower case letters, digits, '-' and '_', with a letter first, at most 63",
    words.VIEW_NAME: "letters, digits and '_', with a letter first, at most 128",
    words.TOPIC_NAME: "letters, digits, '.', '_' and '-', at most 249",
    NAMED: "`module:function` or `module:Class`, such as steps:with_risk",
    CATALOG_NAME: "lower case letters, digits and '_', with a letter first, at most 63",
    ICEBERG_TABLE: "namespace.name, of letters, digits and '_'",
    words.DEAD_LETTER_TOPIC: "letters, digits, '.', '_', '-' and '{topic}'",
}


def mistakes(errors: Iterable[ErrorDetails], document: Document, root: shape.Part) -> Iterator[Mistake]:
    """One mistake per cause, in the order pydantic found them; what does not fit together comes first."""
    single = []
    for error in errors:
        if "mistakes" in error.get("ctx", {}):
            yield from cross_mistakes(error["ctx"]["mistakes"], document)
        else:
            single.append(error)
    for cause in causes(single, document.data, root, _OUR_OWN):
        yield _mistake(cause, document, root)


def cross_mistakes(found: Iterable[CrossMistake], document: Document) -> Iterator[Mistake]:
    for path, message, allowed in found:
        is_key = len(path) > 1 and path[0] in ("contract", "source") and isinstance(path[-1], str)
        spot = document.key_spot(path) if is_key else document.value_spot(path)
        hint = instead(re.findall(r"'([^']*)'", message)[-1], allowed) if allowed else None
        yield Mistake(document.file, spot.line, spot.column, dotted(path), "names", message, hint)


def _mistake(cause: Cause, document: Document, root: shape.Part) -> Mistake:
    path, error = cause.path, cause.errors[0]
    value = error["input"]
    kind = error["type"]
    spot = document.value_spot(path)
    hint: str | None = None
    match kind:
        case "missing":
            code, message = "missing-key", f"'{path[-1]}' is missing"
            spot = document.key_spot(path[:-1])
        case "extra_forbidden":
            kind_of, allowed = keys_of_kind(root, path[:-1], document.data)
            code, message = "unknown-key", f"unknown key '{path[-1]}'" + (f" of {kind_of}" if kind_of else "")
            hint = _comma_hint(path[-1], value) or _of_spark(path, value, root, allowed)
            hint = hint or instead(str(path[-1]), allowed)
            spot = document.key_spot(path)
        case "string_pattern_mismatch":
            code, message = "bad-name", f"{_shown(path[-1] if cause.key else value, path)} is not allowed"
            hint = _of_spark(path, value, root) if cause.key else None
            hint = hint or f"allowed: {_PATTERNS.get(error['ctx']['pattern'], error['ctx']['pattern'])}"
            spot = document.key_spot(path) if cause.key else spot
        case _ if kind in _OUR_OWN:
            code, message, hint = _OUR_OWN[kind], error["msg"], error.get("ctx", {}).get("hint")
            if isinstance(value, dict) and (*path, "type") in document.values:
                path = (*path, "type")
                spot = document.value_spot(path)
        case "string_too_short" | "too_short":
            code, message = "empty", "must not be empty"
        case "string_too_long":
            code, message = "too-long", f"{_shown(value, path)} is too long"
            hint = f"characters allowed: {error['ctx']['max_length']:,}"
        case "greater_than_equal" | "less_than_equal":
            code, message = "out-of-range", f"{_shown(value, path)} is not allowed"
            bound = error["ctx"]["ge" if kind.startswith("g") else "le"]
            hint = f"at {'least' if kind.startswith('g') else 'most'} {bound:,}"
        case _:
            code, message, hint = _not_one_of(path, cause.errors, document, root)
    return Mistake(document.file, spot.line, spot.column, dotted(path), code, message, hint)


def _not_one_of(
    path: Path, errors: list[ErrorDetails], document: Document, root: shape.Part
) -> tuple[str, str, str | None]:
    """A value of the wrong kind, or not one of the words that are allowed."""
    words: list[str] = []
    kinds: list[str] = []
    for error in errors:
        if error["type"] == "literal_error":
            expected = str(error["ctx"]["expected"])
            words += re.findall(r"'([^']*)'", expected) or re.findall(r"\w+", expected.replace(" or ", " "))
        elif error["type"] == "model_type" and len(errors) > 1:
            kinds.append(f"a mapping with {' or '.join(repr(key) for key in keys_at(root, path))}")
        else:
            kinds += ["a type"] if error.get("ctx", {}).get("class_name") == "Field" else []
            kinds.append(_EXPECTED.get(error["type"], error["msg"]))
    value = errors[0]["input"]
    written = document.value_spot(path).written
    if words and isinstance(value, str):
        hint = near(value, words) or spark_options.word(value, path)
        hint = hint or f"allowed: {', '.join(dict.fromkeys([*words, *kinds]))}"
        if "timestamp" in keys_at(root, path) and _is_time(value):
            hint = f'write {{timestamp: "{value}"}}'
        return "not-allowed", f"{_shown(value, path)} is not allowed", hint
    if "a number" in kinds:
        kinds.remove("a whole number")
    *first, last = dict.fromkeys([*(f"'{word}'" for word in words), *kinds])
    wanted = f"{', '.join(first)} or {last}" if first else last
    return (
        "wrong-type",
        f"expected {wanted}, found {_found(value, path)}",
        _conversion(value, kinds, written, path) or _of_spark(path, value, root),
    )


def _of_spark(path: Path, value: Any, root: shape.Part, allowed: Iterable[str] = ()) -> str | None:
    """For a key that is unknown, and for one that was taken for a name."""
    if "source" not in shape.keys(root):
        return None  # not a spec
    named = shape.parts_at(root, path) if not isinstance(value, dict) else ()
    if allowed or named:
        return spark_options.meant(str(path[-1]), path, allowed) or spark_options.meant_within(value, path)
    return None


def _is_time(text: str) -> bool:
    try:
        milliseconds(text)
    except ValueError:
        return False
    return True


def _conversion(value: Any, kinds: list[str], written: str, path: Path) -> str | None:
    """How to write what was probably meant."""
    if value is None:
        return "give it a value, or leave the key out"
    if "text" in kinds and isinstance(value, int | float) and not secrets.is_secret(path):
        return f'write "{written}" in quotes'
    if isinstance(value, str) and kinds == ["a whole number"]:
        digits = value.replace("_", "").replace(",", "").strip()
        return f"write {digits} without quotes or separators" if re.fullmatch(r"[0-9]{1,30}", digits) else None
    if isinstance(value, str) and kinds == ["true or false"]:
        meant = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
        word = meant.get(value.lower(), value.lower())
        return f"write {word} without quotes" if word in ("true", "false") else None
    if isinstance(value, str) and kinds == ["a list"]:
        return f"write [{value}]" if re.fullmatch(r"\w{1,40}", value) else None
    return None


def _comma_hint(key: str | int, value: Any) -> str | None:
    """`{type: decimal(12,2)}` is two keys to YAML: `type` and `2)`."""
    if value is None and str(key).endswith((")", ">")):
        return 'inside braces a comma ends the value: quote it, as in {type: "decimal(12,2)"}'
    return None


def _found(value: Any, path: Path) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {_shown(value, path)}"
        case str():
            return f"the text {_shown(value, path)}"
        case list():
            return "a list"
    return "a mapping"


def _shown(value: Any, path: Path) -> str:
    """The value in a message: short, and not at all where it may be a secret."""
    if secrets.is_secret(path):
        return "the value"
    text = " ".join(str(value).split())
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"'{text}'" if isinstance(value, str) else text
