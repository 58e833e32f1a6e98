"""Visit every state that a small concurrent model can reach, and find one in which somebody sleeps for ever.

Guarantee: breadth first, so the trace to a stuck state is a shortest one.
Assumption: states are hashable, and there are finitely many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Exploration(Generic[S]):
    """How many states were seen, and the trace to a stuck one (empty when there is none)."""

    states: int
    trace: tuple[S, ...]

    @property
    def stuck(self) -> bool:
        """Whether some order of steps ends with a sleeper whom nobody will wake."""
        return bool(self.trace)


def explore(start: S, successors: Callable[[S], Iterable[S]], unfinished: Callable[[S], bool]) -> Exploration[S]:
    """Explore from `start`; a state without successors that is `unfinished` is stuck."""
    parents: dict[S, S | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        after = list(successors(state))
        if not after and unfinished(state):
            trace = [state]
            while (parent := parents[trace[-1]]) is not None:
                trace.append(parent)
            return Exploration(len(parents), tuple(reversed(trace)))
        for successor in after:
            if successor not in parents:
                parents[successor] = state
                queue.append(successor)
    return Exploration(len(parents), ())


def put(values: tuple[S, ...], index: int, value: S) -> tuple[S, ...]:
    """Return `values` with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])
