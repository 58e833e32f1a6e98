"""Every candidate execution of a litmus test: who read whose write, in which order writes to one place came.

A memory model is a predicate on candidates. Nothing is assumed here but that a read returns a value that somebody wrote
to that place, and that writes to one place are totally ordered; what hardware and language add is the models' part.

Guarantee: enumeration is complete for programs without loops.
Assumption: few events (the number of candidates grows with the factorial of the writes to one place).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from litmus import Block, Branch, Final, Litmus, Statement
from relations import Relation

INITIAL = -1  # the thread of the initial writes


@dataclass(frozen=True)
class Event:
    """One access or fence. Both halves of a read-modify-write carry its order."""

    thread: int
    kind: str  # R, W, F
    order: str
    location: str
    value: int
    line: int
    half: bool = False  # of a read-modify-write
    data: frozenset[int] = frozenset()  # positions in the thread of the reads that its value comes from
    control: frozenset[int] = frozenset()  # ... of the reads that decided that it happens at all


@dataclass(frozen=True)
class _Run:
    """One thread's events under one guess of what its reads return, and its registers at the end."""

    events: tuple[Event, ...] = ()
    registers: tuple[tuple[str, int], ...] = ()
    origin: tuple[tuple[str, frozenset[int]], ...] = ()  # which reads a register depends on

    def get(self, value: int | str) -> tuple[int, frozenset[int]]:
        if isinstance(value, int):
            return value, frozenset()
        return dict(self.registers)[value], dict(self.origin)[value]

    def put(self, register: str, value: int, reads: frozenset[int]) -> _Run:
        if not register:
            return self
        return _Run(
            self.events,
            tuple(sorted((dict(self.registers) | {register: value}).items())),
            tuple((dict(self.origin) | {register: reads}).items()),
        )

    def then(self, *events: Event) -> _Run:
        return _Run((*self.events, *events), self.registers, self.origin)


def _runs(thread: int, block: Block, run: _Run, control: frozenset[int], values: dict[str, list[int]]) -> list[_Run]:
    runs = [run]
    for step in block:
        runs = [after for before in runs for after in _step(thread, step, before, control, values)]
    return runs


def _step(
    thread: int, step: Statement | Branch, run: _Run, control: frozenset[int], values: dict[str, list[int]]
) -> list[_Run]:
    if isinstance(step, Branch):
        value, reads = run.get(step.register)
        taken = step.then if (value == step.value) == step.equal else step.otherwise
        return _runs(thread, taken, run, control | reads, values)
    here = len(run.events)

    def event(kind: str, value: int, **more: object) -> Event:
        return Event(thread, kind, step.order, step.location, value, step.line, control=control, **more)  # type: ignore[arg-type]

    value, reads = run.get(step.value)
    if step.kind == "let":
        return [run.put(step.register, value, reads)]
    if step.kind == "fence":
        return [run.then(event("F", 0))]
    if step.kind == "store":
        return [run.then(event("W", value, data=reads))]
    after = []
    for found in values[step.location]:
        if step.kind == "load":
            read = run.then(event("R", found))
        else:
            written = found + value if step.kind == "add" else value
            data = reads | {here} if step.kind == "add" else reads
            read = run.then(event("R", found, half=True), event("W", written, half=True, data=data))
        after.append(read.put(step.register, found, frozenset({here})))
    return after


def _values(test: Litmus) -> dict[str, list[int]]:
    """What may ever be found where: initial values, constants, and sums where something is added."""
    statements = test.statements()
    constants = {s.value for s in statements if isinstance(s.value, int)} | set(test.initial.values())
    found = {}
    for location, initial in test.initial.items():
        values = {initial}
        for s in statements:
            if s.location == location and s.kind in ("store", "exchange"):
                values |= {s.value} if isinstance(s.value, int) else constants
        for s in statements:
            if s.location == location and s.kind == "add":
                assert isinstance(s.value, int), f"line {s.line}: adding a register is not understood"
                values |= {value + s.value for value in values}
        found[location] = sorted(values)
    return found


@dataclass(frozen=True)
class Execution:
    """One candidate. Relations have the names that the literature gives them."""

    events: tuple[Event, ...]
    rf: Relation  # a write and a read of it
    co: Relation  # two writes to one place, in order
    po: Relation  # program order, the initial writes apart
    final: Final

    def on(self, test: Callable[[Event], bool]) -> Relation:
        """`[S]`: the identity on the events that pass."""
        return Relation.on(len(self.events), lambda a: test(self.events[a]))

    def pairs(self, test: Callable[[Event, Event], bool]) -> Relation:
        """The pairs of events that pass."""
        return Relation.where(len(self.events), lambda a, b: test(self.events[a], self.events[b]))

    @cached_property
    def reads(self) -> Relation:
        """`[R]`."""
        return self.on(lambda e: e.kind == "R")

    @cached_property
    def writes(self) -> Relation:
        """`[W]`."""
        return self.on(lambda e: e.kind == "W")

    @cached_property
    def same_place(self) -> Relation:
        """`loc`."""
        return self.pairs(lambda a, b: a.location == b.location != "")

    @cached_property
    def external(self) -> Relation:
        """Pairs of different threads."""
        return self.pairs(lambda a, b: a.thread != b.thread)

    @cached_property
    def fr(self) -> Relation:
        """A read, and a write that overwrote what it read (`rb` in RC11)."""
        return (~self.rf >> self.co) - Relation.on(len(self.events), lambda _: True)

    @cached_property
    def rmw(self) -> Relation:
        """The two halves of a read-modify-write."""
        n = range(len(self.events) - 1)
        return Relation.of(len(self.events), ((a, a + 1) for a in n if self._is_pair(a)))

    def _is_pair(self, a: int) -> bool:
        one, other = self.events[a], self.events[a + 1]
        return one.half and one.kind == "R" and other.half and other.kind == "W" and one.line == other.line

    def dependencies(self, kind: str) -> Relation:
        """`data` or `control`: from reads to the events that depend on them."""
        begins: dict[int, int] = {}
        for at, e in enumerate(self.events):
            begins.setdefault(e.thread, at)
        return Relation.of(
            len(self.events),
            (
                (begins[e.thread] + read, at)
                for at, e in enumerate(self.events)
                for read in (e.data if kind == "data" else e.control)
                if begins[e.thread] + read != at
            ),
        )


def executions(test: Litmus) -> Iterator[Execution]:
    """Every candidate of the test."""
    values = _values(test)
    each = [_runs(number, block, _Run(), frozenset(), values) for number, block in enumerate(test.threads)]
    first = tuple(Event(INITIAL, "W", "plain", location, value, 0) for location, value in test.initial.items())
    for runs in itertools.product(*each):
        events = first + tuple(event for run in runs for event in run.events)
        registers = {f"{n}:{name}": value for n, run in enumerate(runs) for name, value in run.registers}
        yield from _related(events, registers)


def _related(events: tuple[Event, ...], registers: dict[str, int]) -> Iterator[Execution]:
    n = len(events)
    po = Relation.where(n, lambda a, b: a < b and events[a].thread == events[b].thread != INITIAL)
    writers: dict[str, list[int]] = {}
    for at, event in enumerate(events):
        if event.kind == "W":
            writers.setdefault(event.location, []).append(at)
    reads = [at for at, event in enumerate(events) if event.kind == "R"]
    sources = [
        [w for w in writers[events[r].location] if events[w].value == events[r].value and not (w == r + 1)]
        for r in reads
    ]
    if not all(sources):
        return
    # The initial write of a place is its first.
    orders = [[(own[0], *rest) for rest in itertools.permutations(own[1:])] for own in writers.values()]
    for chosen in itertools.product(*sources):
        rf = Relation.of(n, zip(chosen, reads, strict=True))
        for order in itertools.product(*orders):
            co = Relation.of(n, (pair for own in order for pair in itertools.combinations(own, 2)))
            memory = {events[own[-1]].location: events[own[-1]].value for own in order}
            yield Execution(events, rf, co, po, registers | memory)
