"""The findings as text for people: at most 80 columns, one line per fact where it fits, and what to do at the end.

Guarantee: no character that a terminal could take amiss. Marks: `ok` could hurt and does not, `warn` will hurt, `-` is
nothing to judge, `?` is not known.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import aiospin
from aiospin.doctor.fact import Fact, Section, Verdict

WIDTH: Final = 80
MARKS: Final[dict[Verdict, str]] = {"ok": "ok", "warn": "warn", "plain": "-", "unknown": "?"}
NAME: Final = 16
LONGEST: Final = 30
"""characters of a name, at least and at most"""


def printable(text: str) -> str:
    """`text` with everything but visible characters and single spaces as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def report(sections: Sequence[Section], bad: int) -> str:
    """`bad` is how many things will hurt, whoever found them."""
    return "\n".join([*_head(bad), "", *_lines(sections)])


def _head(bad: int) -> Iterator[str]:
    things = "nothing" if bad == 0 else "1 thing" if bad == 1 else f"{bad} things"
    yield f"aiospin {aiospin.__version__}: {things} here will hurt{'; what to do stands at the end' * (bad > 0)}."
    yield "ok: could hurt, and does not. warn: will hurt. -: a fact. ?: nobody can tell."


def advice(facts: Sequence[Fact]) -> Iterator[str]:
    """What to do about those that will hurt."""
    bad = [fact for fact in facts if fact.verdict == "warn"]
    if not bad:
        return
    yield f"What to do ({len(bad)})"
    for number, fact in enumerate(bad, 1):
        start = f"{number:>3}. "
        yield from wrapped(f"{fact.problem}", start)
        yield from wrapped(f"-> {fact.remedy}", " " * len(start))


def wrapped(text: str, start: str, hanging: int | None = None) -> list[str]:
    """Lines of at most WIDTH columns, of which the first begins with `start`, and the others below its end."""
    indent = " " * (len(start) if hanging is None else hanging)
    lines = textwrap.wrap(
        printable(text), WIDTH, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [start.rstrip()]


def _shown(name: str) -> str:
    """Variables as they are, unless they are long."""
    text = printable(name.replace("_", " ") if name.islower() else name)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _lines(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield section.title
        names = [_shown(fact.name) for fact in section.facts]
        width = max([NAME, *map(len, names)])
        for name, fact in zip(names, section.facts, strict=True):
            yield from wrapped(fact.text, f"  {MARKS[fact.verdict]:<4}  {name:<{width}}  ")
        yield ""
