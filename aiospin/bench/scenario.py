"""What a scenario is: one question that every subject is asked in the same way, and the arithmetic of the answer.

`play` and `play_floor` run in a leader's process (stage.py) and return a *record*: plain samples and sums. `evaluate`
makes figures of it, wherever; so what is reported can be checked on samples that somebody wrote down.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from aiospin.bench.contract import Plan, Subject
from aiospin.bench.samples import Figures

Record = Mapping[str, Any]

MESSAGE: Final = 64
"""bytes of a message where its size is not the question"""


@dataclass(frozen=True)
class Effort:
    """How much work a measurement is worth."""

    seconds: float
    """about how long one point of one subject is measured, in each round"""
    folder: str
    """see Plan.folder"""


@dataclass(frozen=True)
class Point:
    """One value of what a scenario varies."""

    label: str
    value: float
    quick: bool = True
    """is asked in a quick run, too"""


@dataclass(frozen=True)
class Figure:
    name: str
    heading: str
    """of a table's column; as short as the numbers"""
    meaning: str
    """with the unit"""
    more_is_better: bool = False


class Scenario(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    points: ClassVar[Sequence[Point]]
    figures: ClassVar[Sequence[Figure]]
    """the first is the one that is compared"""
    columns: ClassVar[int] = 3
    """how many of them a table shows"""
    compared: ClassVar[bool] = True
    """a ratio of them says something"""
    played_by: ClassVar[str | None] = None
    """the scenario that plays for this one, which only looks at the records in another way"""

    def unfit(self, subject: Subject, point: Point) -> str | None:
        """Why the question makes no sense to a subject, or None."""
        return None

    @abstractmethod
    def play(self, subject: Subject, point: Point, effort: Effort) -> Record: ...

    def floors(self, point: Point) -> Sequence[str]:
        """Names of what the machine can do; ratios are to the first."""
        return ()

    def play_floor(self, floor: str, point: Point, effort: Effort) -> Record:
        """A record as `play` would return it. Asked for what `floors` names."""
        raise ValueError(f"{self.name} has no floor {floor!r}")

    @abstractmethod
    def evaluate(self, record: Record, point: Point) -> Figures: ...

    def curve(self, record: Record) -> list[float]:
        """The distribution of the compared figure's samples, where there is one: see samples.curve."""
        return []


def plan_for(effort: Effort, nbytes: int = MESSAGE, readers: int = 1, answers: bool = False) -> Plan:
    return Plan(nbytes, readers, answers, effort.folder)


@contextlib.contextmanager
def several(subject: Subject, plan: Plan, count: float) -> Generator[tuple[list[Any], list[Any]], None, None]:
    """So many lines with one reader each: the writers' tickets, and the readers'."""
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(subject.line(plan)) for _ in range(int(count))]
        yield [line.writer for line in lines], [line.readers[0] for line in lines]


def loops_only(subject: Subject) -> str | None:
    return "has no event loop" if subject.kind == "sync" else None
