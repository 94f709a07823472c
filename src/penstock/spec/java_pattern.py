"""Regular expressions that Python and Java read the same way.

`check` and `plan` match topic names with Python, Spark with Java. What one of them does not know, or takes for
something else, would read other topics than were shown, or end a run at its start.
"""

from __future__ import annotations

import re

_ESCAPES = set("dDwWsSbBAZtnrfxu123456789")
_ESCAPES_IN_CLASS = set("dDwWsStnrfxu")
_GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|[ims]+(?:-[ims]+)?[:)])")
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")


def differs(pattern: str) -> str | None:
    """The first piece of a pattern that Java does not read as Python does; None where there is none. The pattern must
    be one that Python takes."""
    at, inside = 0, False
    while at < len(pattern):
        rest = pattern[at:]
        if rest[0] == "\\":
            known = _ESCAPES_IN_CLASS if inside else _ESCAPES
            if rest[1].isalnum() and rest[1] not in known:
                return rest[:2]
            at += 2
            continue
        if inside:
            if rest[0] == "[" or rest.startswith("&&"):  # Java has classes within classes
                return rest[:2]
            inside = rest[0] != "]"
        elif rest[0] == "[":
            opened = 2 if rest.startswith("[^") else 1
            if rest[opened : opened + 1] in ("]", "["):
                return rest[: opened + 1]
            at, inside = at + opened, True
            continue
        elif rest.startswith("(?") and not _GROUP.match(rest):
            return rest[:3]
        elif rest[0] == "{" and not _REPEAT.match(rest):  # Python takes it for a letter, or for `{0,`
            return rest[: rest.find("}") + 1] or rest[:1]
        at += 1
    return None
