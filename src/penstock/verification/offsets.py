"""Offsets by partition, as `verify` holds them against each other: sorted arrays, and what is cut out of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from penstock.errors import counted
from penstock.record import OffsetRange
from penstock.verification.report import NAMED, Finding, Partition, Report

Offsets = np.ndarray[Any, np.dtype[np.int64]]
By = dict[Partition, Offsets]
Spans = dict[Partition, list[tuple[int, int]]]

NOTHING: Offsets = np.array([], dtype=np.int64)


def within(by: By, r: OffsetRange) -> Offsets:
    offsets = by.get((r.topic, r.partition), NOTHING)
    first, end = np.searchsorted(offsets, [r.start, r.end])
    return offsets[first:end]


def gathered(some: Iterable[tuple[str, int, Iterable[int]]]) -> By:
    """Of topics and partitions; each offset once."""
    found: dict[Partition, list[Any]] = {}
    for topic, partition, offsets in some:
        found.setdefault((topic, partition), []).append(np.asarray(offsets, dtype=np.int64))
    return {where: np.unique(np.concatenate(parts)) for where, parts in found.items()}


def joined(ranges: Iterable[OffsetRange]) -> Spans:
    """Ranges that touch are one."""
    made: Spans = {}
    for r in sorted(r for r in ranges if len(r)):
        spans = made.setdefault((r.topic, r.partition), [])
        if spans and r.start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], r.end))
        else:
            spans.append((r.start, r.end))
    return made


def outside(offsets: Offsets, spans: Iterable[tuple[int, int]]) -> Offsets:
    keep = np.ones(len(offsets), dtype=bool)
    for start, end in spans:
        keep &= (offsets < start) | (offsets >= end)
    return offsets[keep]


def without(r: OffsetRange, others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """What of a range is in none of the others."""
    parts = [r]
    for other in others:
        if (other.topic, other.partition) == (r.topic, r.partition) and len(other):
            cut = [(part.start, min(part.end, other.start)) for part in parts]
            cut += [(max(part.start, other.end), part.end) for part in parts]
            parts = [OffsetRange(r.topic, r.partition, start, end) for start, end in cut if start < end]
    return parts


def once(found: Mapping[Partition, Iterable[int]], report: Report, but: Spans | None = None) -> By:
    """Where dead letters came from, sorted and unique; what is there twice is a finding. `but`: where an offset may be
    that of two records."""
    unique: By = {}
    for (topic, p), offsets in found.items():
        unique[topic, p], times = np.unique(np.array(offsets, dtype=np.int64), return_counts=True)
        twice = outside(unique[topic, p][times > 1], (but or {}).get((topic, p), ()))
        if len(twice):
            text = f"{counted(len(twice), 'record')} with more than one dead letter"
            report.findings.append(Finding("duplicate", text, None, topic, p, named(twice)))
    return unique


def named(offsets: Iterable[int]) -> list[int]:
    return [int(o) for o in list(offsets)[:NAMED]]
