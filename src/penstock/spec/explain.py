"""pydantic's errors as mistakes a person can act on: one per cause, at the key or value that is wrong.

`load` calls `mistakes` with the document it validated. pydantic reports a union once per branch, and its
places name those branches; here a place is walked along the data, so that branch names fall away and the
branches meet again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_core import ErrorDetails

from penstock.spec import secrets, shape, words
from penstock.spec.cross import CrossMistake
from penstock.spec.lines import Document
from penstock.spec.mistake import Mistake, Path, dotted, instead, near, nearest
from penstock.spec.python_step import FUNCTION

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
    FUNCTION: "`module:function`, such as steps:with_risk",
    words.DEAD_LETTER_TOPIC: "letters, digits, '.', '_', '-' and '{topic}'",
}


_TAG = "format"  # the key that tells the kinds of a union of parts apart


@dataclass
class _Cause:
    """The errors of one place; more than one when the place is a union."""

    errors: list[ErrorDetails] = field(default_factory=list)
    key: bool = False


def mistakes(errors: Iterable[ErrorDetails], document: Document, root: shape.Part) -> Iterator[Mistake]:
    """One mistake per cause, in the order pydantic found them."""
    causes: dict[Path, _Cause] = {}
    deeper: set[Path] = set()
    of_another: set[Path] = set()
    for error in map(_named_tag, errors):
        if "mistakes" in error.get("ctx", {}):
            yield from cross_mistakes(error["ctx"]["mistakes"], document)
            continue
        path, unions, is_key = _walk(error["loc"], document.data)
        cause = causes.setdefault(path, _Cause(key=is_key))
        cause.errors.append(error)
        other = path[:-1] in unions and not _tagged(error["loc"], document.data, path[:-1])
        if error["type"] == "missing" and other and _has_a_key(document.data, root, path[:-1]):
            of_another.add(path)  # the key that is there belongs to another branch: `{real_time: 1m}` needs no `every`
        if error["type"] == "extra_forbidden" and other and path[-1] in _keys_at(root, path[:-1]):
            of_another.add(path)  # and `every` is not unknown because the branch with `real_time` does not have it
        # A union is settled by the branch that got further into the data.
        deeper.update(union for union in unions if union != path)
    # A mistyped key is one mistake, not also a missing one.
    mistyped = {
        (*path[:-1], nearest(str(path[-1]), _keys_at(root, path[:-1])))
        for path, cause in causes.items()
        if cause.errors[0]["type"] == "extra_forbidden"
    }
    others = {path[:-1] for path, cause in causes.items() if path and (path not in of_another or _more(cause.errors))}
    for path, cause in causes.items():
        of_one = path in of_another and path[:-1] in others  # where nothing else is wrong: keys of two branches at once
        if cause.errors[0]["type"] == "missing" and (path in mistyped or of_one):
            continue
        if of_one and all(error["type"] == "extra_forbidden" for error in cause.errors):
            continue
        # What a validator of ours says is more to the point than that another branch expected text.
        own = [error for error in cause.errors if error["type"] in _OUR_OWN]
        if own or path not in deeper:
            yield _mistake(path, _Cause(own or cause.errors, cause.key), document, root)


def _more(errors: Iterable[ErrorDetails]) -> bool:
    """Whether something is wrong with a value, and not only with which keys there are."""
    return any(error["type"] not in ("missing", "extra_forbidden") for error in errors)


def _tagged(loc: tuple[int | str, ...], data: Any, path: Path) -> bool:
    """Whether the data itself says which branch it is: `format: csv` is read as nothing else."""
    for step in path:
        data = data[step]
    return any(step in data.values() for step in loc if isinstance(step, str))


def _has_a_key(data: Any, root: shape.Part, path: Path) -> bool:
    for step in path:
        data = data[step]
    return any(nearest(str(key), _keys_at(root, path)) is not None for key in data)


def cross_mistakes(found: Iterable[CrossMistake], document: Document) -> Iterator[Mistake]:
    for path, message, allowed in found:
        is_key = len(path) > 1 and path[0] in ("contract", "source") and isinstance(path[-1], str)
        spot = document.key_spot(path) if is_key else document.value_spot(path)
        hint = instead(re.findall(r"'([^']*)'", message)[-1], allowed) if allowed else None
        yield Mistake(document.file, spot.line, spot.column, dotted(path), "names", message, hint)


def _walk(loc: tuple[int | str, ...], data: Any) -> tuple[Path, list[Path], bool]:
    """The place in the data, the unions passed on the way, and whether it is the key that is wrong."""
    path: Path = ()
    unions: list[Path] = []
    for i, step in enumerate(loc):
        inside = isinstance(step, str) if isinstance(data, dict) else isinstance(data, list)
        if inside and (step in data if isinstance(data, dict) else isinstance(step, int) and step < len(data)):
            data = data[step]
            path = (*path, step)
        elif step == "[key]" and i == len(loc) - 1:
            return path, unions, True
        elif isinstance(data, dict) and data.get(_TAG) == step:
            unions.append(path)
        elif i == len(loc) - 1 and isinstance(data, dict) and not _is_branch(step):
            return (*path, step), unions, False  # a key that is not there
        else:
            unions.append(path)
    return path, unions, False


def _named_tag(error: ErrorDetails) -> ErrorDetails:
    """A format that is missing or unknown, as a mistake at the key `format`."""
    tag = {**error, "loc": (*error["loc"], _TAG)}
    if error["type"] == "union_tag_not_found":
        return cast(ErrorDetails, {**tag, "type": "missing"})
    if error["type"] == "union_tag_invalid":
        said = error["ctx"]
        return cast(
            ErrorDetails,
            {**tag, "type": "literal_error", "input": said["tag"], "ctx": {"expected": said["expected_tags"]}},
        )
    return error


def _is_branch(step: str | int) -> bool:
    """Names pydantic gives the branches of the unions in the model; keys are lower case words."""
    text = str(step)
    return text in ("str", "int", "float", "bool") or "[" in text or text[:1].isupper()


def _mistake(path: Path, cause: _Cause, document: Document, root: shape.Part) -> Mistake:
    error = cause.errors[0]
    value = error["input"]
    kind = error["type"]
    spot = document.value_spot(path)
    hint: str | None = None
    match kind:
        case "missing":
            code, message = "missing-key", f"'{path[-1]}' is missing"
            spot = document.key_spot(path[:-1])
        case "extra_forbidden":
            code, message = "unknown-key", f"unknown key '{path[-1]}'"
            hint = _comma_hint(path[-1], value) or instead(str(path[-1]), _keys_at(root, path[:-1]))
            spot = document.key_spot(path)
        case "string_pattern_mismatch":
            code, message = "bad-name", f"{_shown(path[-1] if cause.key else value, path)} is not allowed"
            hint = f"allowed: {_PATTERNS.get(error['ctx']['pattern'], error['ctx']['pattern'])}"
            spot = document.key_spot(path) if cause.key else spot
        case _ if kind in _OUR_OWN:
            code, message = _OUR_OWN[kind], error["msg"]
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
            kinds.append(f"a mapping with {' and '.join(repr(key) for key in _keys_at(root, path))}")
        else:
            kinds += ["a type"] if error.get("ctx", {}).get("class_name") == "Field" else []
            kinds.append(_EXPECTED.get(error["type"], error["msg"]))
    value = errors[0]["input"]
    written = document.value_spot(path).written
    if words and isinstance(value, str):
        hint = near(value, words) or f"allowed: {', '.join([*words, *kinds])}"
        return "not-allowed", f"{_shown(value, path)} is not allowed", hint
    if "a number" in kinds:
        kinds.remove("a whole number")
    *first, last = dict.fromkeys([*(f"'{word}'" for word in words), *kinds])
    wanted = f"{', '.join(first)} or {last}" if first else last
    return (
        "wrong-type",
        f"expected {wanted}, found {_found(value, path)}",
        _conversion(value, kinds, written, path),
    )


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


def _keys_at(root: shape.Part, path: Path) -> list[str]:
    return list(dict.fromkeys(key for part in shape.parts_at(root, path) for key in shape.keys(part)))
