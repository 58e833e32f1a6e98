"""Counters and histograms, and their text for Prometheus.

Guarantee: `text()` is the exposition format, version 0.0.4: each family once, with help and type, label values escaped.
Assumption: one event loop's thread.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Family(Protocol):
    """One family of samples."""

    def lines(self) -> Iterable[str]:
        """Its part of the text."""


class Counter:
    """Counts that only grow, by one label or several."""

    def __init__(self, name: str, text: str) -> None:
        self._head = _head(name, text, "counter")
        self._name = name
        self._values: dict[tuple[tuple[str, str], ...], float] = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count."""
        key = tuple(labels.items())
        self._values[key] = self._values.get(key, 0) + amount

    def lines(self) -> Iterable[str]:
        """Its part of the text."""
        yield from self._head
        for key, value in self._values.items():
            yield _sample(self._name, dict(key), value)


class Histogram:
    """How many values were at most each of `bounds`."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._head = _head(name, text, "histogram")
        self._name = name
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> Iterable[str]:
        """Its part of the text."""
        yield from self._head
        total = 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            yield _sample(f"{self._name}_bucket", {"le": bound}, total)
        yield _sample(f"{self._name}_sum", {}, self._sum)
        yield _sample(f"{self._name}_count", {}, total)


class Now:
    """Values that are looked up when they are asked for."""

    def __init__(self, name: str, text: str, samples: Iterable[tuple[Labels, float]], kind: str = "gauge") -> None:
        self._head = _head(name, text, kind)
        self._name = name
        self._samples = samples

    def lines(self) -> Iterable[str]:
        """Its part of the text."""
        yield from self._head
        for labels, value in self._samples:
            yield _sample(self._name, labels, value)


def text(families: Iterable[Family]) -> str:
    """All of them."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _head(name: str, text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{_escape(of)}"' for label, of in labels.items())
    return f"{name}{{{inner}}} {value:.10g}" if inner else f"{name} {value:.10g}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
