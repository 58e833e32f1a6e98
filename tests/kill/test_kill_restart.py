"""Readers and writers that go and come while messages flow: detach, close, drop, takeover, under load.

Guarantee: rank 1 stays and gets every message once, in order; what the lives of rank 0 get fits together as promised.
The ring holds 21 messages, so that everybody waits for everybody. Each life is a process of the next kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from plots import ALL_WAYS
from world import WRITER, Crew, World, until, world
from zygote import Actor

import aiospin

BACKENDS = ("native", "fallback") if aiospin.backend == "native" else ("fallback",)
TOTAL = 250  # messages
LIVES = 6
STEP = 3072  # bytes of the ring that a message takes


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(BACKENDS) as crew:
        yield crew
        assert not crew.complaints()


@pytest.fixture(params=["memfd", "named"])
def load(crew: Crew, request: pytest.FixtureRequest) -> Iterator[Load]:
    with world(crew, request.param) as queue:
        yield Load(queue)
        assert not crew.rest()


class Load:
    """A queue with reader 1, which reads until the stream ends, and a writer at work."""

    def __init__(self, queue: World) -> None:
        self.queue = queue
        self._kinds = itertools.cycle(itertools.product(BACKENDS, ALL_WAYS))
        self.writer = queue.crew.survivor("writer", BACKENDS[0], "asyncio")
        self._reader = queue.crew.survivor("reader 1", BACKENDS[-1], "uvloop")
        self.claim(self._reader, "reader 1")
        self._got: list[Any] = []
        self._reader.begin("read_on", end="reader 1")
        self.total = TOTAL
        self.deaths: list[Any] = []  # that the writer was told of

    def claim(self, actor: Actor, end: str) -> Any:
        return actor.do("claim", end=end, handle=self.queue.handles[end])

    def life(self) -> Actor:
        """A new process of the next kind."""
        backend, way = next(self._kinds)
        return self.queue.crew.zygotes[backend].actor(way)

    def write(self) -> None:
        """Let the writer work from now on."""
        self.claim(self.writer, "writer")
        self.writer.begin("write_on", end="writer", until=self.total)

    def play(self, actor: Actor, order: str, **arguments: Any) -> Any:
        """Let an actor do something, while the writer goes on after each death that it hears of."""
        actor.begin(order, **arguments)
        until(lambda: self._tend() or actor.has_answered(), f"{order} done")
        return actor.answer()

    def _tend(self) -> bool:
        if self.writer.has_answered():
            answer = self.writer.answer()
            if answer[0] == "died":
                self.deaths.append(answer[1:3])
            self.writer.begin("write_on", end="writer", until=self.total)
        return False

    def finish(self) -> None:
        """The writer ends the stream when all is written."""
        while (answer := self.writer.answer()) != ["wrote"]:
            self.deaths.append(answer[1:3])
            self.writer.begin("write_on", end="writer", until=self.total)
        self.writer.do("close", end="writer")
        assert self.reader_heard() == ["closed"]
        assert self._got == [(sequence, False) for sequence in range(self.total)]

    def reader_heard(self) -> Any:
        """What ended the reading of reader 1."""
        answer = self._reader.answer()
        self._got += [entry[:2] for entry in answer["got"]]
        return answer["ended"]

    def read_again(self) -> None:
        """Let reader 1 go on."""
        self._reader.begin("read_on", end="reader 1")


def test_readers_detach_or_die_and_successors_go_on(load: Load) -> None:
    load.write()
    due, again, killed = 0, set[int](), []
    for number in range(LIVES):
        life = load.life()
        load.claim(life, "reader 0")
        count = 5 + 4 * number
        got = load.play(life, "read_on", end="reader 0", limit=count)["got"]
        assert [entry[:2] for entry in got] == [(sequence, sequence in again) for sequence in range(due, due + count)]
        due += count
        if number % 2:
            held = load.play(life, "hold", end="reader 0", count=number)
            assert held == list(range(due, due + number))
            again = {sequence for sequence in again if sequence >= due} | set(held)
            life.kill()
            killed.append([0, life.pid])
        else:
            life.do("detach", end="reader 0")
            life.end()
    last = load.life()
    load.claim(last, "reader 0")
    last.begin("read_on", end="reader 0")
    load.finish()
    got = last.answer()["got"]
    assert [entry[:2] for entry in got] == [(sequence, sequence in again) for sequence in range(due, TOTAL)]
    assert [death for death in load.deaths if death not in killed] == []
    last.end()


def test_readers_close_and_others_join_late(load: Load) -> None:
    load.claim(load.writer, "writer")
    before = -1
    for number in range(LIVES):
        life = load.life()
        load.claim(life, "reader 0")  # the next message lets it in
        load.writer.begin("write_on", end="writer", until=35 * (number + 1))
        got = life.do("read_on", end="reader 0", limit=5 + number)["got"]
        life.do("close", end="reader 0")  # in the middle of the writer's work, which goes on without it
        numbers = [sequence for sequence, redelivered, _ in got if not redelivered]
        assert numbers == list(range(35 * number, 35 * number + 5 + number)), (
            "nothing is missing, and nothing is marked"
        )
        assert numbers[0] > before
        before = numbers[-1]
        life.end()
        assert load.writer.answer() == ["wrote"]
    load.writer.begin("write_on", end="writer", until=TOTAL)
    load.finish()
    assert not load.deaths


def test_a_living_reader_is_dropped_again_and_again(load: Load) -> None:
    load.claim(load.writer, "writer")
    life = load.life()
    life.begin("read_persistently", end="reader 0", handle=load.queue.handles["reader 0"])
    load.writer.begin("write_and_drop", end="writer", until=TOTAL, every=40)
    assert load.writer.answer() is None
    load.writer.begin("write_on", end="writer", until=TOTAL)
    load.finish()
    lives = life.answer()
    for numbers in lives:
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    flat = [sequence for numbers in lives for sequence in numbers]
    assert flat == sorted(set(flat)), "nothing comes twice, and nothing out of order"
    life.end()


def test_dead_readers_are_dropped_and_others_join(load: Load) -> None:
    load.claim(load.writer, "writer")
    before = -1
    for _ in range(LIVES):
        life = load.life()
        load.claim(life, "reader 0")  # the next message lets it in
        load.writer.begin("write_on", end="writer", until=TOTAL)
        numbers = life.do("hold", end="reader 0", count=2)
        assert numbers == [before + 1, before + 2]
        life.kill()
        told = load.writer.answer()
        assert told[:3] == ["died", 0, life.pid], "the ring is full, and only the dead one is in the way"
        load.writer.do("drop", end="writer", force=False)
        before = load.writer.unasked.pop()[1]  # the message with which it went on
    load.writer.begin("write_on", end="writer", until=TOTAL)
    load.finish()


def test_writers_die_and_successors_take_over(load: Load) -> None:
    other = load.queue.crew.survivor("reader 0", BACKENDS[0], "sync")
    load.claim(other, "reader 0")
    other.begin("read_on", end="reader 0")
    got: list[Any] = []
    first = 0
    for number in range(LIVES):
        life = load.life()
        begin = load.claim(life, "writer")
        assert begin >= first, "no message is taken back"
        first = begin
        life.begin("write_on", end="writer", until=10**9)
        goal = (first + 7 * number) * STEP
        until(lambda goal=goal: load.queue.sight(WRITER).published > goal, "the writer at work")  # type: ignore[misc]
        life.kill()
        told = other.answer()
        got += [entry[:2] for entry in told["got"]]
        assert told["ended"][:3] == ["died", None, life.pid]
        assert load.reader_heard()[:3] == ["died", None, life.pid]
        load.read_again()
        other.begin("read_on", end="reader 0")
    load.total = load.claim(load.writer, "writer") + 30
    load.writer.begin("write_on", end="writer", until=load.total)
    load.finish()
    got += [entry[:2] for entry in other.answer()["got"]]
    assert got == [(sequence, False) for sequence in range(load.total)]
