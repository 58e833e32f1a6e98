"""What happens in a cell: who is there before, what the victim does, and what the others do meanwhile.

Guarantee: every plot stands in PLOTS under its name, with the role that the victim plays in it.
Assumption: in writer plots two readers survive; in reader plots the victim is reader 0, writer and reader 1 survive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scene import Scene
from stream import LARGE
from world import WRITER, sleeps, until

READER = 1  # the role of rank 0
ALL_WAYS = ("sync", "asyncio", "uvloop")


@dataclass(frozen=True)
class Plot:
    """`before` sets the stage, `order` is what the victim then does."""

    role: int
    order: str
    before: Callable[[Scene], None]
    arguments: Callable[[Scene], dict[str, Any]] = lambda scene: {}
    ways: tuple[str, ...] = ALL_WAYS
    hot: bool = True  # goes through the probes of the extension
    sleeps: bool = False  # the victim falls asleep in it
    large: bool = False  # there is a message that passes through the ring in pieces
    owned: bool = False  # the victim gets copies, released before it has them
    joins: bool = False  # reader 0 may come in the middle of the stream


# writers


def _readers(scene: Scene, *ranks: int) -> None:
    for rank in ranks or (0, 1):
        scene.claim(scene.other(f"reader {rank}"), f"reader {rank}")


def _listen(scene: Scene) -> None:
    for rank in (0, 1):
        scene.read_on(rank)
        scene.world.settled(rank, scene.other(f"reader {rank}"))


def _meet(scene: Scene) -> None:
    """Let the readers get to know the writer that there is, and sleep no more."""
    for rank in (0, 1):
        scene.other(f"reader {rank}").do("glance", end=f"reader {rank}")


def _writes(scene: Scene) -> None:
    _readers(scene)
    scene.claim(scene.victim, "writer")
    scene.victim.do("write", end="writer", count=2)
    _listen(scene)


def _writes_unheard(scene: Scene) -> None:
    _readers(scene)
    scene.claim(scene.victim, "writer")
    _meet(scene)
    scene.victim.do("write", end="writer", count=2)


def _will_write(scene: Scene) -> None:
    _readers(scene)
    _listen(scene)


def _lacks_room(scene: Scene) -> None:
    """The ring is full; the readers begin to read when the victim sleeps."""
    _readers(scene)
    scene.claim(scene.victim, "writer")
    _meet(scene)
    scene.victim.do("fill", end="writer")
    before = scene.world.epoch(WRITER)

    def provoke() -> bool:
        if scene.world.epoch(WRITER) == before or not sleeps(scene.victim):
            return False
        for rank in (0, 1):
            scene.read_on(rank)
        return True

    scene.provoke = provoke


def _succeeds_writer(scene: Scene) -> None:
    """A writer was killed while it held a claim, and both readers were told."""
    _readers(scene)
    predecessor = scene.extra()
    scene.claim(predecessor, "writer")
    predecessor.do("write", end="writer", count=2)
    _listen(scene)
    predecessor.kill()
    for rank in (0, 1):
        ended = scene.heard(rank)
        assert ended[:3] == ["died", None, predecessor.pid], ended
    scene.mourned = scene.world.sight(WRITER).tenure
    _listen(scene)


def _succeeds_midway(scene: Scene) -> None:
    """A writer was killed for want of room in the middle of a message; the readers have read its pieces."""
    _readers(scene)
    predecessor = scene.extra()
    scene.claim(predecessor, "writer")
    _meet(scene)
    predecessor.do("write", end="writer", count=2)
    before = scene.world.epoch(WRITER)
    predecessor.begin("put_large", end="writer")
    until(lambda: scene.world.epoch(WRITER) > before, "the predecessor asleep")
    predecessor.kill()
    for rank in (0, 1):
        scene.read_on(rank)
        ended = scene.heard(rank)
        assert ended[:3] == ["died", None, predecessor.pid], ended
    scene.mourned = scene.world.sight(WRITER).tenure
    _listen(scene)


def _drops_dead(scene: Scene) -> None:
    """Reader 0 is dead."""
    dead = scene.extra()
    scene.claim(dead, "reader 0")
    _readers(scene, 1)
    scene.claim(scene.victim, "writer")
    scene.victim.do("write", end="writer", count=2)
    dead.kill()
    scene.read_on(1)
    scene.world.settled(1, scene.other("reader 1"))


def _lets_in(scene: Scene) -> None:
    """Reader 0 has left and come again: the victim's next message is the first that is kept for it."""
    _readers(scene)
    scene.claim(scene.victim, "writer")
    scene.victim.do("write", end="writer", count=1)
    scene.other("reader 0").do("close", end="reader 0")
    scene.victim.do("write", end="writer", count=1)
    scene.claim(scene.other("reader 0"), "reader 0")
    scene.read_on(0)
    scene.read_on(1)
    scene.world.settled(1, scene.other("reader 1"))


def _begins(end: str) -> Callable[[Scene], dict[str, Any]]:
    return lambda scene: {"handle": scene.world.handles[end]}


# readers


def _others(scene: Scene) -> None:
    """Reader 1 reads, and there is a writer."""
    scene.claim(scene.other("writer"), "writer")
    scene.claim(scene.other("reader 1"), "reader 1")
    scene.read_on(1)


def _send(scene: Scene, count: int) -> None:
    scene.other("writer").do("write", end="writer", count=count)


def _reads(scene: Scene) -> None:
    _others(scene)
    scene.claim(scene.victim, "reader 0")
    _send(scene, 4)


def _holds(scene: Scene) -> None:
    _reads(scene)
    scene.victim.do("keep", end="reader 0", count=1)


def _will_read(scene: Scene) -> None:
    _others(scene)
    _send(scene, 4)


def _waits(scene: Scene) -> None:
    """There is nothing to read before the victim sleeps."""
    _others(scene)
    scene.claim(scene.victim, "reader 0")
    before = scene.world.epoch(READER)
    _provide_when(scene, lambda: scene.world.epoch(READER) > before and sleeps(scene.victim))


def _provide_when(scene: Scene, condition: Callable[[], bool]) -> None:
    def provoke() -> bool:
        if condition():
            _send(scene, 2)
            return True
        return False

    scene.provoke = provoke


def _reads_large(scene: Scene) -> None:
    """The writer is in the middle of a message that is larger than the ring."""
    _others(scene)
    scene.claim(scene.victim, "reader 0")
    before = scene.world.epoch(WRITER)
    scene.write_on(1, size=LARGE)
    scene.writer_rests(before)


def _makes_room(scene: Scene) -> None:
    """The ring is full because of the victim, and the writer sleeps."""
    _others(scene)
    scene.claim(scene.victim, "reader 0")
    scene.other("writer").do("fill", end="writer")
    before = scene.world.epoch(WRITER)
    scene.world.settled(1, scene.other("reader 1"))
    scene.write_on(23)
    scene.writer_rests(before)


def _succeeds_reader(scene: Scene) -> None:
    """A reader was killed that held two slots."""
    _others(scene)
    predecessor = scene.extra()
    scene.claim(predecessor, "reader 0")
    _send(scene, 4)
    predecessor.do("keep", end="reader 0", count=2)
    predecessor.kill()


def _joins(scene: Scene) -> None:
    """A reader has left for good; the writer lets the victim in with the next message."""
    _others(scene)
    predecessor = scene.extra()
    scene.claim(predecessor, "reader 0")
    _send(scene, 2)
    predecessor.do("close", end="reader 0")
    predecessor.end()
    _provide_when(scene, lambda: scene.world.sight(READER).joins and sleeps(scene.victim))


def _is_dropped(scene: Scene) -> None:
    """The victim holds up the writer, which drops it."""
    _reads(scene)
    scene.other("writer").do("drop", end="writer", force=True)
    scene.other("writer").unasked.clear()
    _provide_when(scene, lambda: scene.world.sight(READER).joins and sleeps(scene.victim))


PLOTS: dict[str, Plot] = {
    # the writer
    "begin writing": Plot(WRITER, "begin_writing", _will_write, _begins("writer")),
    "put": Plot(WRITER, "put", _writes),
    "put unheard": Plot(WRITER, "put", _writes_unheard),
    "put pieces": Plot(WRITER, "put_pieces", _writes),
    "put several": Plot(WRITER, "put_several", _writes),
    "put large": Plot(WRITER, "put_large", _writes, large=True),
    "put without room": Plot(WRITER, "put", _lacks_room, sleeps=True),
    "let in": Plot(WRITER, "put", _lets_in, joins=True),
    "write in place": Plot(WRITER, "write_in_place", _writes),
    "take over writing": Plot(WRITER, "begin_writing", _succeeds_writer, _begins("writer")),
    "take over midway": Plot(WRITER, "begin_writing", _succeeds_midway, _begins("writer"), large=True),
    "drop dead": Plot(WRITER, "drop", _drops_dead, lambda scene: {"force": False}, joins=True),
    "drop alive": Plot(WRITER, "drop", _writes, lambda scene: {"force": True}),
    "writer detaches": Plot(WRITER, "leave", _writes, hot=False),
    "writer closes": Plot(WRITER, "finish", _writes, hot=False),
    # reader 0
    "begin reading": Plot(READER, "begin_reading", _will_read, _begins("reader 0")),
    "read": Plot(READER, "read", _reads),
    "get several": Plot(READER, "get_several", _reads, owned=True),
    "read asleep": Plot(READER, "read", _waits, sleeps=True),
    "read large": Plot(READER, "read", _reads_large, large=True),
    "read for room": Plot(READER, "read", _makes_room),
    "take over reading": Plot(READER, "begin_reading", _succeeds_reader, _begins("reader 0")),
    "join late": Plot(READER, "begin_reading", _joins, _begins("reader 0"), sleeps=True),
    "read when dropped": Plot(READER, "read_after_drop", _is_dropped, _begins("reader 0"), sleeps=True),
    "reader detaches": Plot(READER, "leave", _holds),
    "reader closes": Plot(READER, "finish", _holds),
}
