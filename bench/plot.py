"""A picture of latencies: the share of records that had arrived after so many milliseconds. Plain SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 720, 360, 56, 40, 48, 20
_TICKS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
_COLOURS = ("#1769aa", "#8a8f98")


def latencies(title: str, series: Mapping[str, Sequence[int]]) -> str:
    """`series`: by name, sorted milliseconds. The axis of time is logarithmic, from half a millisecond on."""
    most = max(found[-1] for found in series.values())
    last = next((tick for tick in _TICKS if tick >= most), _TICKS[-1])

    def x(ms: float) -> float:
        share = math.log(max(ms, 0.5) / 0.5) / math.log(last / 0.5)
        return _LEFT + min(1.0, share) * (_WIDTH - _LEFT - _RIGHT)

    def y(share: float) -> float:
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14" font-weight="bold">{title}</text>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 0.99):
        parts.append(
            f'<path d="M{_LEFT} {y(share):.1f}H{_WIDTH - _RIGHT}" stroke="#e3e5e8"/>'
            f'<text x="{_LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    for tick in (each for each in _TICKS if each <= last):
        parts.append(
            f'<path d="M{x(tick):.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#e3e5e8"/>'
            f'<text x="{x(tick):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{tick:,} ms</text>'
        )
    for i, (name, found) in enumerate(series.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        points = "L".join(f"{x(ms):.1f} {y(share):.1f}" for ms, share in _steps(found))
        at = 0.5 - 0.12 * i
        parts.append(f'<path d="M{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{x(last) - 8:.1f}" y="{y(at - 0.2):.1f}" text-anchor="end" fill="{colour}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _steps(found: Sequence[int]) -> list[tuple[int, float]]:
    """How many records had arrived after each millisecond that one arrived at."""
    last = {ms: i + 1 for i, ms in enumerate(found)}
    return [(min(last), 0.0), *((ms, count / len(found)) for ms, count in last.items())]
