"""Payment events for the load generator: the same recipe gives the same records, byte for byte.

Record number n depends on the recipe and on n alone: not on the rate, nor on how many records follow. Numbers
come in blocks of BLOCK drawn with NumPy, and text is put together from pieces made once: 1 us per record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np

from penstock import record
from penstock.errors import BadArgument

BLOCK = 8192

GOOD = "good"
POISON = {
    "truncated": record.MALFORMED,
    "wrong-type": record.WRONG_TYPE,
    "missing-field": record.MISSING_FIELD,
    "negative-amount": record.BROKEN_RULE,
    "empty-value": record.EMPTY_VALUE,
    "null-value": record.NULL_VALUE,
    "invalid-utf8": record.MALFORMED,
    "out-of-range": record.OUT_OF_RANGE,
}
"""Kind of poison -> the error class of the dead letter it becomes (with the contract `amount > 0`)."""
KINDS = (GOOD, *POISON)

BASE_TIME = datetime(2026, 1, 1, tzinfo=UTC)
STEP_MS = 10  # event time between two records, before jitter
LARGEST = 64 * 1024 * 1024  # bytes of a record
LATEST_MS = 2_000  # how far behind its place a record's event time can be

_REQUIRED = ("payment_id", "account", "amount", "currency", "status", "event_time")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK", "JPY")
_STATUSES = ("VOID", "PENDING", "SETTLED")
_STATUS_SHARE = (0.05, 0.15)  # up to here VOID, up to here PENDING, the rest SETTLED
_MERCHANTS = (
    ("Blue Door Coffee", "DE"),
    ("Café Zürich", "CH"),
    ("North Rail", "GB"),
    ('Joe\'s "Diner"', "US"),
    ("Bokhandeln Åsö", "SE"),
    ("Sushi 東京", "JP"),
    ("Kiosk 24", "AT"),
    ("Papelería Sol", "ES"),
)
_TAGS: tuple[tuple[str, ...], ...] = (
    (),
    ("online",),
    ("card",),
    ("online", "card"),
    ("app", "gift"),
    ("refundable",),
)


@dataclass(frozen=True)
class Recipe:
    count: int
    seed: int
    key_skew: float = 0.0
    """The account of rank r has a chance in proportion to 1 / r**key_skew: 0 is even, 1 is Zipf's law."""
    poison: Fraction = Fraction(0)
    """Exactly floor(count * poison) records are poison, spread evenly, the kinds in turn."""
    accounts: int = 10_000
    large: int | None = None
    """Pad good records to this many bytes, inside `tags`."""
    base_time: datetime = BASE_TIME

    def __post_init__(self) -> None:
        for name, low, high in (
            ("count", 1, 10**9),
            ("seed", 0, 2**63 - 1),
            ("key_skew", 0, 10),
            ("poison", 0, 1),
            ("accounts", 1, 1_000_000),
            ("large", 1, LARGEST),
        ):
            if getattr(self, name) is not None and not low <= getattr(self, name) <= high:
                raise BadArgument(
                    f"{name.replace('_', '-')} must be from {low} to {high}",
                    cause=f"it is {getattr(self, name)}",
                )


@dataclass(frozen=True)
class Slice:
    """Records `first` to `first + len(values)` of a recipe."""

    first: int
    keys: list[bytes]
    values: list[bytes | None]
    kinds: Any
    """Array of positions in KINDS."""
    void: Any
    """Array of booleans: a good record that the transform of the example leaves out."""


def payment_id(seed: int, number: int) -> str:
    return f"{seed}-{number:09d}"


@dataclass
class Payments:
    """The records of a recipe, in order, in slices of any size. Holds one block in memory."""

    recipe: Recipe
    _keys: list[bytes] = field(init=False)
    _accounts: list[bytes] = field(init=False)
    _chance: Any = field(init=False)
    _noise: bytes = field(init=False)
    _block: tuple[int, Slice] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        names = [f"acc-{rank:06d}" for rank in range(1, self.recipe.accounts + 1)]
        self._keys = [name.encode() for name in names]
        self._accounts = [f'","account":"{name}","amount":'.encode() for name in names]
        # Must not compress: brokers measure what arrives, and a megabyte of one letter arrives small.
        letters = np.random.Generator(np.random.PCG64(self.recipe.seed))
        noise = letters.integers(97, 123, self.recipe.large or 0)
        self._noise = noise.astype(np.uint8).tobytes()
        weights = np.arange(1, self.recipe.accounts + 1, dtype=np.float64) ** -self.recipe.key_skew
        self._chance = np.cumsum(weights) / weights.sum()

    def slice(self, first: int, size: int) -> Slice:
        """At most `size` records from number `first` on: fewer at the end of a block and of the recipe."""
        index, start = divmod(first, BLOCK)
        if self._block is None or self._block[0] != index:
            self._block = index, self._make(index)
        block = self._block[1]
        stop = min(start + size, BLOCK, start + self.recipe.count - first)
        values = block.values[start:stop]
        if self.recipe.large is not None:
            # Padded here and not in the block: a block of large records would not fit in memory.
            good = block.kinds[start:stop] == 0
            values = [_padded(v, self._noise) if ok else v for v, ok in zip(values, good, strict=True)]
        return Slice(first, block.keys[start:stop], values, block.kinds[start:stop], block.void[start:stop])

    def _make(self, index: int) -> Slice:
        first = index * BLOCK
        numbers = np.arange(first, first + BLOCK, dtype=np.int64)
        dice = np.random.Generator(np.random.PCG64([self.recipe.seed, index])).random((7, BLOCK))
        ranks = np.minimum(np.searchsorted(self._chance, dice[0], side="right"), self.recipe.accounts - 1)
        cents = np.exp(dice[1] * np.log(1_000_000)).astype(np.int64)  # 0.01 to 9999.99, small ones more often
        status = np.searchsorted(_STATUS_SHARE, dice[2], side="right")
        currency = (dice[3] * len(_CURRENCIES)).astype(np.int64)
        ending = (dice[4] * len(_ENDINGS)).astype(np.int64)
        late = (dice[5] ** 4 * LATEST_MS).astype(np.int64)
        times = int(self.recipe.base_time.timestamp() * 1000) + numbers * STEP_MS + LATEST_MS - late
        second = times // 1000 - times[0] // 1000 + LATEST_MS // 1000
        seconds = _seconds(int(times[0]) // 1000 - LATEST_MS // 1000, int(second.max()) + 1)
        chosen = ranks.tolist()
        middles = currency * len(_STATUSES) + status
        columns = (
            _picked(_DIGITS, numbers // 1_000_000),
            _picked(_DIGITS, numbers // 1_000 % 1_000),
            _picked(_DIGITS, numbers % 1_000),
            [self._accounts[rank] for rank in chosen],
            _picked(_UNITS, cents // 100),
            _picked(_CENTS, cents % 100),
            _picked(_MIDDLES, middles),
            _picked(seconds, second),
            _picked(_DIGITS, times % 1000),
            _picked(_ENDINGS, ending),
        )
        head = f'{{"payment_id":"{self.recipe.seed}-'.encode()
        values: list[bytes | None] = [head + b"".join(pieces) for pieces in zip(*columns, strict=True)]
        kinds = self._kinds(numbers)
        for i in np.flatnonzero(kinds).tolist():
            good = values[i]
            assert good is not None
            values[i] = _poisoned(good, KINDS[kinds[i]], first + i, float(dice[6][i]))
        return Slice(first, [self._keys[rank] for rank in chosen], values, kinds, (status == 0) & (kinds == 0))

    def _kinds(self, numbers: Any) -> Any:
        """Position in KINDS per record. The k-th poison is where k first fits into share * number."""
        share = self.recipe.poison.limit_denominator(1_000_000)
        before = numbers * share.numerator // share.denominator
        after = (numbers + 1) * share.numerator // share.denominator
        return np.where(after > before, 1 + before % len(POISON), 0).astype(np.int8)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_DIGITS = [b"%03d" % n for n in range(1_000)]
_UNITS = [b"%d." % n for n in range(10_000)]
_CENTS = [b"%02d" % n for n in range(100)]
_MIDDLES = [f',"currency":"{c}","status":"{s}","event_time":"'.encode() for c in _CURRENCIES for s in _STATUSES]
_ENDINGS = [
    f'Z","merchant":{_compact({"name": name, "country": country})},"tags":{_compact(tags)}}}'.encode()
    for name, country in _MERCHANTS
    for tags in _TAGS
]


def _picked(table: list[bytes], positions: Any) -> list[bytes]:
    return [table[i] for i in positions.tolist()]


def _seconds(first: int, count: int) -> list[bytes]:
    """`2026-01-01T00:00:07.` for each second from `first` on: a block holds few, and formatting is slow."""
    moments = np.datetime64(first, "s") + np.arange(count).astype("timedelta64[s]")
    return [f"{text}.".encode() for text in np.datetime_as_string(moments, unit="s").tolist()]


def _padded(value: bytes | None, noise: bytes) -> bytes | None:
    """The record as long as `noise`, or as it is when it is longer already."""
    if value is None:
        return None
    head = value[:-2]  # without the `]}` that ends the tags
    comma = b"" if head.endswith(b"[") else b","
    fill = len(noise) - len(value) - len(comma) - 2
    return head + comma + b'"' + noise[:fill] + b'"]}' if fill >= 0 else value


def _poisoned(good: bytes, kind: str, number: int, dice: float) -> bytes | None:
    if kind == "null-value":
        return None
    if kind == "empty-value":
        return b""
    if kind == "truncated":
        return good[: 1 + int(dice * (len(good) - 2))]
    if kind == "invalid-utf8":
        return good.replace(b'"name":"', b'"name":"\xff\xfe', 1)
    payment = json.loads(good)
    if kind == "missing-field":
        del payment[_REQUIRED[number // len(POISON) % len(_REQUIRED)]]
    elif kind == "wrong-type":
        payment["amount"] = "twelve"
    elif kind == "negative-amount":
        payment["amount"] = -payment["amount"]
    elif kind == "out-of-range":
        payment["amount"] = 98765432109876.5  # decimal(12,2) holds ten digits before the point
    return _compact(payment).encode()
