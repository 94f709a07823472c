from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from penstock.errors import BadArgument
from penstock.local.payments import BLOCK, GOOD, KINDS, POISON, Payments, Recipe, payment_id

Sent = tuple[bytes, bytes | None, str, bool]


def records(recipe: Recipe, size: int = BLOCK) -> list[Sent]:
    payments, made = Payments(recipe), list[Sent]()
    while len(made) < recipe.count:
        part = payments.slice(len(made), size)
        kinds = [KINDS[k] for k in part.kinds]
        made += zip(part.keys, part.values, kinds, part.void.tolist(), strict=True)
    return made


def test_the_same_seed_gives_the_same_records_whatever_the_slice_size() -> None:
    recipe = Recipe(20_000, seed=5, key_skew=1.1, poison=Fraction("0.03"))
    assert records(recipe) == records(recipe, size=777)


def test_a_longer_run_begins_with_the_records_of_a_shorter_one() -> None:
    short = records(Recipe(9_000, seed=5, poison=Fraction("0.03")))
    long = records(Recipe(20_000, seed=5, poison=Fraction("0.03")))
    assert long[:9_000] == short


def test_another_seed_gives_other_records() -> None:
    assert records(Recipe(100, seed=5)) != records(Recipe(100, seed=6))


def test_good_records_keep_the_schema() -> None:
    for number, (key, value, kind, void) in enumerate(records(Recipe(BLOCK + 10, seed=9))):
        payment = json.loads(value or b"", parse_float=Decimal)
        assert kind == GOOD
        assert payment["payment_id"] == payment_id(9, number)
        assert payment["account"].encode() == key
        assert 0 < payment["amount"] < 10_000
        assert payment["amount"].as_tuple().exponent == -2
        assert payment["status"] in {"SETTLED", "PENDING", "VOID"}
        assert void == (payment["status"] == "VOID")
        assert datetime.fromisoformat(payment["event_time"]) >= datetime(2026, 1, 1, tzinfo=UTC)
        assert set(payment["merchant"]) == {"name", "country"}
        assert isinstance(payment["tags"], list)
        assert 160 <= len(value or b"") <= 240


def test_about_one_in_twenty_is_void() -> None:
    made = records(Recipe(40_000, seed=1))
    assert 0.04 < sum(void for *_, void in made) / len(made) < 0.06


def test_event_times_start_at_the_base_time() -> None:
    base = datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)
    _, value, *_ = records(Recipe(1, seed=1, base_time=base))[0]
    assert 0 <= (datetime.fromisoformat(json.loads(value or b"")["event_time"]) - base).total_seconds() <= 2


@pytest.mark.parametrize("share", ["0", "0.001", "0.01", "0.1", "0.33", "1"])
@pytest.mark.parametrize("count", [1, 1_000, 20_001])
def test_the_poison_share_is_exact_and_its_kinds_differ_by_one_at_most(share: str, count: int) -> None:
    found = Counter(kind for _, _, kind, _ in records(Recipe(count, seed=2, poison=Fraction(share))))
    assert count - found.pop(GOOD, 0) == int(count * Fraction(share))
    per_kind = [found[kind] for kind in POISON]
    assert max(per_kind) - min(per_kind) <= 1


def test_every_kind_of_poison_is_bad_in_its_own_way() -> None:
    dropped = set()
    for _, value, kind, void in records(Recipe(4_800, seed=3, poison=Fraction(1))):
        assert not void
        if kind == "null-value":
            assert value is None
            continue
        assert value is not None
        if kind == "empty-value":
            assert value == b""
        elif kind == "invalid-utf8":
            with pytest.raises(UnicodeDecodeError):
                value.decode()
        elif kind == "truncated":
            assert value
            with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
                json.loads(value)
        else:
            payment = json.loads(value)
            if kind == "missing-field":
                required = {"payment_id", "account", "amount", "currency", "status", "event_time"}
                dropped |= required - set(payment)
                assert len(required - set(payment)) == 1
            elif kind == "wrong-type":
                assert isinstance(payment["amount"], str)
            elif kind == "negative-amount":
                assert payment["amount"] < 0
            elif kind == "out-of-range":
                assert payment["amount"] >= 10**10
    assert len(dropped) == 6


def test_skew_moves_records_to_few_accounts() -> None:
    def share_of_the_first(skew: float) -> float:
        keys = Counter(key for key, *_ in records(Recipe(40_000, seed=4, key_skew=skew, accounts=1_000)))
        return sum(n for _, n in keys.most_common(10)) / 40_000

    even, zipf, steep = share_of_the_first(0), share_of_the_first(1), share_of_the_first(2)
    assert even < 0.02
    assert 0.35 < zipf < 0.45  # H(10) / H(1000) = 0.391
    assert steep > 0.9


def test_large_records_have_the_size_asked_for_and_stay_valid() -> None:
    for _, value, *_ in records(Recipe(50, seed=1, large=5_000)):
        assert len(value or b"") == 5_000
        assert len(json.loads(value or b"")["tags"][-1]) > 4_000


def test_poison_is_not_padded() -> None:
    made = records(Recipe(400, seed=1, large=5_000, poison=Fraction("0.5")))
    assert all((len(value or b"") == 5_000) == (kind == GOOD) for _, value, kind, _ in made)


@pytest.mark.parametrize(
    "wrong",
    [{"count": 0}, {"seed": -1}, {"poison": Fraction(2)}, {"key_skew": -1.0}, {"accounts": 0}, {"large": 0}],
)
def test_a_recipe_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadArgument):
        Recipe(**{"count": 1, "seed": 1, **wrong})  # type: ignore[arg-type]
