"""What a subject is: one transport between processes, opened and spoken as a competent user of it would.

A subject makes a *line* in one process, which holds a ticket for each end; tickets travel to the processes that open
them as arguments of multiprocessing.Process. What `open` yields are, wherever the transport allows it, the very calls
that users write, so nothing of ours stands between a scenario's clock and the transport.

Guarantee: when `line` and every `open` have been left, nothing of the line remains in the system.
Assumption: all messages of one line have `Plan.nbytes` bytes, which both ends know: no subject is charged for framing.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = ("sync", "uvloop", "asyncio")


class Absent(ImportError):
    """Something that is asked for is not installed; the text says how to get it."""


@dataclass(frozen=True)
class Plan:
    """What a line is for."""

    nbytes: int
    """of every message"""
    readers: int = 1
    answers: bool = False
    """the one reader can send, too"""
    folder: str = ""
    """where what needs a path may live; it is gone after the run, whatever happens"""
    least_room: int = 1 << 20

    @property
    def room(self) -> int:
        """Bytes that must fit in the line at once, for transports that fix that beforehand."""
        return max(self.least_room, 3 * (self.nbytes + 64))


def not_this_way(*args: Any) -> Any:
    """What stands for a call that an end's direction does not have."""
    raise RuntimeError("this end of the line does not go that way")


@dataclass(frozen=True)
class End:
    """One open end. Calls of an awaited subject return awaitables. Only what the end's direction needs is called."""

    send: Callable[[bytes], Any] = not_this_way
    receive: Callable[[], Any] = not_this_way
    """the next message, as bytes of one's own"""
    consume: Callable[[], Any] | None = None
    """take the next message where it lies and give it back; where there is no such thing, `receive`"""
    send_many: Callable[[Sequence[bytes]], Any] = not_this_way
    receive_many: Callable[[int], Any] = not_this_way
    """a sequence of at least one message, at most so many"""
    member: Any = None
    """what a wait for many takes"""

    @property
    def take(self) -> Callable[[], Any]:
        return self.receive if self.consume is None else self.consume


@dataclass(frozen=True)
class Line:
    """Tickets for the ends of a line: the writer's, and one for each reader."""

    writer: Any
    readers: Sequence[Any]


@dataclass(frozen=True)
class Subject(ABC):
    """The transport itself; it holds no state, and travels between processes by name."""

    name: str
    kind: str
    """one of KINDS: blocking calls, or the event loop on which its calls are awaited"""
    needs: str | None = None
    """the module that must be importable"""
    package: str | None = None
    """what to install for it"""
    python: tuple[int, int] = (3, 10)
    """the oldest Python that the package is made for"""
    batches: bool = False
    """both ends have calls for many messages at once"""
    waits_for_many: bool = False
    """there is a wait for whichever of many readers is ready"""
    largest: int | None = None
    """bytes of the largest message that it carries"""
    cores: int = 1
    """CPUs without which it makes no progress worth measuring"""

    @abstractmethod
    def line(self, plan: Plan) -> contextlib.AbstractContextManager[Line]:
        """A line in this process, kept until its ends are closed."""

    @abstractmethod
    def open(self, ticket: Any, plan: Plan) -> Any:
        """A context manager (an asynchronous one, where the calls are awaited) around an `End`."""

    def wait_for_any(self, ends: Sequence[End]) -> contextlib.AbstractContextManager[Callable[[], Any]]:
        """A call that returns when one of the ends has a message. Asked where `waits_for_many`."""
        raise ValueError(f"{self.name} has no wait for many")

    def missing(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if self.needs is None:
            return None
        if sys.version_info < self.python:
            return f"{self.package} needs Python {'.'.join(map(str, self.python))}"
        try:
            found = importlib.util.find_spec(self.needs)
        except ImportError:
            found = None
        return None if found else f"{self.package} is not installed"


def imported(module: str) -> Any:
    """A peer's module, without its types: the benchmark is checked where peers are not installed."""
    return importlib.import_module(module)
