"""Which keys of free-form settings hold secrets, and which values show one. Used by lint and by messages."""

from __future__ import annotations

import itertools
import re

from penstock.spec.mistake import Path

_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "jaas", "apikey"}
)
_KINDS_OF_KEY = frozenset({"access", "account", "api", "encryption", "private", "secret", "session", "shared"})
# The last word says what the value is: a place, a name or a number about a secret is not a secret.
_ABOUT = frozenset(
    {"class", "count", "dir", "enabled", "expiry", "file", "interval", "lifetime", "location", "mechanism"}
    | {"ms", "name", "path", "period", "provider", "providers", "renewal", "required", "service", "size"}
    | {"timeout", "type", "uri", "url"}
)
_IN_VALUE = re.compile(
    r"://[^/@\s:]+:(?!\$\{)[^/@\s]+@"  # user:password@host
    r"|(?:password|passwd|secret|token)\s*=\s*(?!\$\{)[^\s\"']"  # -Dx.password=... and alike
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|LoginModule\s+required",
    re.IGNORECASE,
)


def is_secret(path: Path) -> bool:
    """Whether the key at the end of `path` names a secret: `ssl.key.password`, `fs.s3a.secret.key`,
    `keyPassword`.
    """
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key).lower())
    if not words or words[-1] in _ABOUT:
        return False
    pairs = itertools.pairwise(words)
    return not _WORDS.isdisjoint(words) or any(a in _KINDS_OF_KEY and b == "key" for a, b in pairs)


def shows_secret(value: str) -> bool:
    """Whether a text holds a literal secret, whatever its key is called."""
    return bool(_IN_VALUE.search(value))
