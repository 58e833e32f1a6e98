"""The document as text for people: at most 80 columns, medians over the rounds, ratios with their spread.

A ratio is taken within each round; shown are its median and its extremes. `x floor` is to what the bare machine does,
`x aiospin` to aiospin in the same kind of program: blocking, on uvloop, or on asyncio. They compare the first column.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from aiospin.bench.document import Document
from aiospin.bench.samples import middle, ratios
from aiospin.bench.scenario import Figure
from aiospin.bench.scenarios import SCENARIOS

WIDTH: Final = 80
NAME: Final = 15
NUMBER: Final = 8
RATIO: Final = 19


def number(value: float | None, digits: int = 3) -> str:
    """At most seven characters, with that many digits that say something."""
    if value is None:
        return "-"
    for above, unit in ((999_500, "M"), (9_995, "k")):
        if abs(value) >= above:
            scaled = value / (1e6 if unit == "M" else 1e3)
            return f"{_digits(scaled, digits)}{unit}"
    return str(int(value)) if value == int(value) else _digits(value, digits)


def _digits(value: float, digits: int) -> str:
    """Without an exponent: whole numbers are whole, and nothing is smaller than a thousandth."""
    whole = len(str(int(abs(value))))
    if abs(value) >= 1:
        return f"{value:.{max(0, digits - whole)}f}"
    return f"{value:.4f}" if abs(value) < 0.0995 else f"{value:.{digits}f}"


def ratio(found: Sequence[float]) -> str:
    """Median and extremes; `1/12 (10..15)` is a twelfth, and between a tenth and a fifteenth."""
    if not found:
        return ""
    if found[0] > 0 and median(found) < 0.1:
        return f"1/{_spread([1 / each for each in reversed(found)])}"
    return _spread(found)


def _spread(found: Sequence[float]) -> str:
    return number(median(found)) + (f" ({number(found[0], 2)}..{number(found[-1], 2)})" if len(found) > 1 else "")


def table(document: Document) -> str:
    return "\n".join(_lines(document))


def _lines(document: Document) -> Iterator[str]:
    machine = document["machine"]
    yield f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"
    yield (
        f"{machine['python']}, aiospin {machine['aiospin']}, backend {machine['backend']}, rung {machine['rung']}, "
        f"policy {machine['policy']}"
    )
    rounds = f"{document['rounds']} round{'s' * (document['rounds'] != 1)}"
    yield f"{rounds} ({document['pace']}) in {document['seconds']:.0f} s; load before: {machine['load']:.2f}"
    yield from _wrapped(", ".join(f"{package} {version}" for package, version in document["versions"].items()))
    for name, why in document["absent"].items():
        yield f"skipped: {name}: {why}"
    for name, scenario in document["scenarios"].items():
        yield from ("", f"{name}: {scenario['title']}")
        figures = SCENARIOS[name].figures[: SCENARIOS[name].columns]
        yield from _wrapped("; ".join(f"{figure.heading}: {figure.meaning}" for figure in figures))
        for point in scenario["points"]:
            yield ""
            yield from _point(scenario, figures, point)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")


def _point(scenario: Mapping[str, Any], figures: Sequence[Figure], point: Mapping[str, Any]) -> Iterator[str]:
    subjects: Mapping[str, Mapping[str, Any]] = point["subjects"]
    compared: str | None = scenario["compared"]
    rounds = {name: subject["rounds"] for name, subject in subjects.items()}

    def against(name: str, reference: str | None) -> str:
        if compared is None or reference is None or reference == name or reference not in rounds:
            return ""
        return ratio(ratios(rounds[name], rounds[reference], compared))

    references = {"x floor": point["floor"], "x aiospin": ""} if point["floor"] else {"x aiospin": ""}
    yield _row(point["label"], [figure.heading for figure in figures], references if compared is not None else ())
    for name, subject in subjects.items():
        good = [each for each in subject["rounds"] if each is not None]
        cells = [number(middle(good, figure.name)) for figure in figures]
        yield _row(name, cells, [against(name, each or f"aiospin {subject['kind']}") for each in references.values()])
    for name, subject in subjects.items():
        if subject["failure"] is not None:
            failed = sum(each is None for each in subject["rounds"])
            yield from _wrapped(f"{name}: {failed} of {len(subject['rounds'])} rounds failed: {subject['failure']}")


def _row(name: str, cells: Sequence[str], ratios: Iterable[str]) -> str:
    numbers = "".join(f"{cell:>{NUMBER}}" for cell in cells)
    return f"{name:<{NAME}}{numbers}  {' '.join(f'{each:<{RATIO}}' for each in ratios)}".rstrip()
