"""What looks like death and is none, what looks like life and is none: stopped processes, pids, namespaces, forks.

Guarantee: a process that is stopped is waited for, however often its peers look; a pid that changed hands, or means
another process in another PID namespace, is mistaken for neither; what a forked child inherits keeps nobody's role.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plots import ALL_WAYS, READER
from world import WRITER, Crew, World, until, world
from zygote import Actor, Zygote

import aiospin
from aiospin import _named

BACKENDS = ("native", "fallback") if aiospin.backend == "native" else ("fallback",)
LOOKS = 2  # of a sleeper at its peers, while nothing happens

APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
REFUSED = subprocess.run([*APART, "true"], check=False, capture_output=True).returncode != 0
needs_namespaces = pytest.mark.skipif(REFUSED, reason="needs PID namespaces, which this system refuses")


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(BACKENDS) as crew:
        yield crew
        assert not crew.complaints()


@pytest.fixture(scope="module")
def apart() -> Iterator[Zygote]:
    """A zygote in a PID namespace of its own."""
    with Zygote(aiospin.backend, APART) as zygote:
        yield zygote
        assert not zygote.complaints()


@pytest.fixture(scope="module")
def beyond() -> Iterator[Zygote]:
    """Another, in yet another."""
    with Zygote(BACKENDS[-1], APART) as zygote:
        yield zygote
        assert not zygote.complaints()


@pytest.fixture
def queue(crew: Crew) -> Iterator[World]:
    with world(crew, "memfd") as made:
        yield made
        assert not crew.rest()


@pytest.fixture
def named(crew: Crew) -> Iterator[World]:
    with world(crew, "named") as made:
        yield made
        assert not crew.rest()


def claim(queue: World, actor: Actor, end: str) -> Any:
    return actor.do("claim", end=end, handle=queue.handles[end])


def looks(actor: Actor) -> None:
    """Return once the actor, which sleeps, has looked at its peers and found nothing to tell."""
    for _ in range(1 if (actor.backend, actor.way) == ("native", "sync") else LOOKS):  # that one looks once a second
        assert actor.hear() == ("looked", None)


def sleeper(queue: World, zygote: Zygote, way: str, end: str = "reader 0") -> Actor:
    """A process that waits, and tells of its looks."""
    actor = zygote.actor(way)
    actor.do("hasten")
    actor.do("tell_looks", on=True)
    claim(queue, actor, end)
    return actor


@pytest.mark.parametrize("way", ALL_WAYS)
def test_a_stopped_process_is_not_dead(queue: World, way: str) -> None:
    """First a writer is stopped, then a reader that holds the writer up."""
    zygote = queue.crew.zygotes[aiospin.backend]
    other = queue.crew.zygotes[BACKENDS[-1]].actor("sync")
    claim(queue, other, "writer")
    reader = sleeper(queue, zygote, way)
    claim(queue, queue.crew.survivor("reader 1", BACKENDS[0], "asyncio"), "reader 1")
    reader.begin("read_on", end="reader 0")
    other.signal(signal.SIGSTOP)
    looks(reader)
    other.signal(signal.SIGCONT)
    other.do("write", end="writer", count=2)
    other.kill()
    answer = reader.answer()
    assert [entry[0] for entry in answer["got"]] == [0, 1]
    assert answer["ended"][:3] == ["died", None, other.pid]

    writer = sleeper(queue, zygote, way, "writer")
    queue.crew.survivor("reader 1", BACKENDS[0], "asyncio").begin("read_on", end="reader 1")
    writer.begin("write_on", end="writer", until=40)
    looks(writer)
    reader.signal(signal.SIGSTOP)
    looks(writer)
    reader.signal(signal.SIGCONT)
    reader.begin("read_on", end="reader 0", limit=38)
    assert writer.answer() == ["wrote"]
    writer.do("close", end="writer")
    numbers = [entry[0] for entry in reader.answer()["got"]]
    assert numbers == list(range(2, 40))
    assert queue.crew.survivor("reader 1", BACKENDS[0], "asyncio").answer()["ended"] == ["closed"]
    reader.do("close", end="reader 0")
    reader.end()
    writer.end()


@needs_namespaces
def test_a_pid_that_changed_hands_is_neither_alive_nor_dead(named: World, apart: Zygote) -> None:
    """A reader that never had a pidfd; the writer's pid goes to an idle process, and then to the next writer."""
    zygote = apart
    reader = zygote.actor("sync")
    claim(named, reader, "reader 0")
    writer = zygote.actor("asyncio")
    claim(named, writer, "writer")
    writer.do("write", end="writer", count=1)
    writer.kill()
    reader.do("next_pid", pid=writer.pid)
    heir = zygote.actor("sync")
    assert heir.pid == writer.pid
    first = reader.do("read_on", end="reader 0")
    assert first["ended"] == ["died", None, writer.pid, "lock"], "an heir of the pid is no writer"

    assert claim(named, heir, "writer") == 1
    heir.do("write", end="writer", count=1)
    second = reader.do("read_on", end="reader 0", limit=1)
    assert [entry[0] for entry in second["got"]] == [1]
    reader.begin("read_on", end="reader 0")
    heir.kill()
    assert reader.answer()["ended"][:3] == ["died", None, heir.pid], "the same pid, and another death"
    reader.kill()


@needs_namespaces
def test_a_pid_means_nothing_in_another_namespace(named: World, apart: Zygote, beyond: Zygote) -> None:
    """Peers in two namespaces that do not see each other, under pids that are free, or taken, on the other side."""
    guide, stay = apart.actor("sync"), named.crew.survivor("reader 1", BACKENDS[0], "sync")
    reader = sleeper(named, beyond, "asyncio")
    # A writer whose pid nobody has over there is alive, and dead when it has died; the kernel does not say who it was.
    guide.do("next_pid", pid=20_000)
    writer = apart.actor("sync")
    assert writer.pid == 20_000
    claim(named, writer, "writer")
    reader.begin("read_on", end="reader 0")
    looks(reader)
    writer.do("write", end="writer", count=2)
    writer.kill()
    answer = reader.answer()
    assert [entry[0] for entry in answer["got"]] == [0, 1]
    assert answer["ended"] == ["died", None, 0, "lock"]
    # One whose pid is that of the reader, which lives, dies no less.
    guide.do("next_pid", pid=reader.pid + 1000)
    writer = apart.actor("uvloop")
    beyond_guide = beyond.actor("sync")
    beyond_guide.do("next_pid", pid=writer.pid)
    stranger = beyond.actor("sync")
    assert stranger.pid == writer.pid
    claim(named, writer, "writer")
    reader.begin("read_on", end="reader 0")
    looks(reader)
    writer.kill()
    assert reader.answer()["ended"] == ["died", None, 0, "lock"]
    # And one lives on whose pid dies over there.
    guide.do("next_pid", pid=stranger.pid)
    writer = apart.actor("asyncio")
    assert writer.pid == stranger.pid
    writer.do("hasten")
    claim(named, writer, "writer")
    reader.begin("read_on", end="reader 0")
    stranger.kill()
    looks(reader)
    writer.do("write", end="writer", count=1)
    writer.kill()
    assert reader.answer()["ended"] == ["died", None, 0, "lock"]
    # The same for a reader that holds the writer up; from out here both can be seen.
    writer = named.crew.zygotes[BACKENDS[0]].actor("sync")
    claim(named, writer, "writer")
    claim(named, stay, "reader 1")
    stay.begin("read_on", end="reader 1")
    before = named.epoch(WRITER)
    writer.begin("write_on", end="writer", until=40)
    until(lambda: named.epoch(WRITER) > before, "the writer asleep")
    reader.kill()
    ended = writer.answer()
    assert ended[:2] == ["died", 0] and ended[2] not in (0, reader.pid), "an inner pid is not the outer one"
    writer.do("close", end="writer")
    assert stay.answer()["ended"] == ["closed"]
    for actor in (writer, guide, beyond_guide):
        actor.end()


def test_a_forked_child_of_the_dead_keeps_neither_role_nor_bells(queue: World) -> None:
    """The child inherits every descriptor that its parent had, and lives on."""
    backend = aiospin.backend
    reader = queue.crew.survivor("reader 0", BACKENDS[-1], "asyncio")
    claim(queue, reader, "reader 0")
    rest = queue.crew.survivor("reader 1", BACKENDS[0], "uvloop")
    claim(queue, rest, "reader 1")
    rest.begin("read_on", end="reader 1")
    writer = queue.crew.zygotes[backend].actor("asyncio")
    claim(queue, writer, "writer")
    writer.do("write", end="writer", count=1)
    child = writer.do("fork_and_stay")
    reader.begin("read_on", end="reader 0")
    queue.settled(0, reader)
    queue.settled(1, rest)
    writer.kill()
    for survivor in (reader, rest):
        ended = survivor.answer()["ended"]
        assert ended[:3] == ["died", None, writer.pid]
    assert not queue.sight(WRITER).locked

    victim = queue.crew.zygotes[backend].actor("sync")
    reader.do("detach", end="reader 0")
    claim(queue, victim, "reader 0")
    other = victim.do("fork_and_stay")
    successor = queue.crew.survivor("writer", BACKENDS[0], "sync")
    assert claim(queue, successor, "writer") == 1
    rest.begin("read_on", end="reader 1")
    before = queue.epoch(WRITER)
    successor.begin("write_on", end="writer", until=40)
    until(lambda: queue.epoch(WRITER) > before, "the writer asleep")
    victim.kill()
    assert successor.answer()[:3] == ["died", 0, victim.pid]
    assert not queue.sight(READER).locked
    claim(queue, reader, "reader 0")
    reader.begin("read_on", end="reader 0")
    successor.begin("write_on", end="writer", until=40)
    assert successor.answer() == ["wrote"], "the bells reach who sits there, and no child of the dead"
    successor.do("close", end="writer")
    for survivor in (reader, rest):
        answer = survivor.answer()
        assert (answer["got"][-1][0], answer["ended"]) == (39, ["closed"])
    for pid in (child, other):
        queue.crew.zygotes[backend].ask({"do": "signal", "pid": pid, "number": int(signal.SIGKILL)})


@pytest.mark.parametrize("backing", ["memfd", "named"])
def test_a_forked_child_of_a_dead_owner_owns_nothing(crew: Crew, backing: str, tmp_path: Path) -> None:
    """Newcomers are told that the owner is gone; a name that is left is an orphan."""
    backend = aiospin.backend
    owner = crew.zygotes[backend].actor("sync")
    owner.do("create", **({"name": "left", "directory": str(tmp_path)} if backing == "named" else {}))
    handles = next(value for kind, value in owner.unasked if kind == "handles")
    child = owner.do("fork_and_stay")
    owner.kill()
    newcomer = crew.survivor("reader 0", BACKENDS[-1], "sync")
    text = newcomer.do("try_attach", handle=handles[1])
    if backing == "memfd":
        assert f"pid {owner.pid}" in text, text
    else:
        assert text == ""
        assert [segment.state for segment in _named.find(str(tmp_path))] == ["orphan"]
        _named.unlink(str(tmp_path / "left"))
    crew.zygotes[backend].ask({"do": "signal", "pid": child, "number": int(signal.SIGKILL)})
