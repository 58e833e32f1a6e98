"""After the kill: survivors hear of it or go on, a successor comes, and every message is accounted for.

Guarantee: an assertion here names what was lost, told wrongly, or delivered twice; a hang fails as Hang.

    survivor     every published message exactly once, in order
    successor    goes on at the first message that was not released; what the dead had taken of it is marked redelivered
    death        told once, with rank and pid, if the seat was taken
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from plots import READER, Plot
from scene import ASLEEP, Scene
from world import WRITER, Sight, sleeps, watches
from zygote import Actor

from aiospin import _layout

_DELICATE = r"_roles:(release|_sit_down|claim)|_tenancy:(end|_say_goodbye)"  # where seat and lock may disagree
MORE = 3  # messages of a writer's successor
TOTAL = 46  # messages of a surviving writer: enough to fill the ring twice


def judge(scene: Scene, plot: Plot) -> None:
    """Kill the victim where it stands, and see what becomes of the others."""
    (_after_writer if plot.role == WRITER else _after_reader)(scene, plot)


def _told_of_death(scene: Scene, ended: list[Any], rank: int | None, pids: set[int], by: str) -> None:
    assert ended[:2] == ["died", rank] and ended[2] in pids, f"{ended} instead of the death of {rank}, pid {pids}"
    scene.notices.append((by, ended[3]))


def _nobody_is_told_early(scene: Scene, survivors: dict[int, Actor]) -> None:
    """A victim that stands still in the middle of coming or going is alive, whoever looks."""
    if scene.reached == ASLEEP or not re.match(_DELICATE, scene.cell.step):
        return
    for survivor in survivors.values():
        if sleeps(survivor) and (survivor.backend, survivor.way) != ("native", "sync"):  # that one looks once a second
            scene.world.looked(survivor)
        if survivor.has_answered():
            kind, answer = survivor.peek()
            ended = answer["ended"] if isinstance(answer, dict) else answer
            early = kind == "done" and ended[0] == "died" and ended[2] == scene.victim.pid
            assert not early, f"{ended} was told while the victim was alive"


# a writer was killed


def _after_writer(scene: Scene, plot: Plot) -> None:
    world, victim = scene.world, scene.victim
    ranks = [rank for rank in (0, 1) if f"reader {rank}" in scene.others]
    for rank in ranks:
        if rank in scene.reading:
            world.settled(rank, scene.other(f"reader {rank}"))
    sight = world.sight(WRITER)
    by = {rank: "pidfd" if watches(scene.other(f"reader {rank}"), victim.pid) else "lock" for rank in ranks}
    came = sight.present and sight.tenure > scene.mourned
    _nobody_is_told_early(scene, {rank: scene.other(f"reader {rank}") for rank in ranks if rank in scene.reading})
    scene.kill()
    over: set[int] = set()  # readers that were dropped
    for rank in ranks:
        scene.read_on(rank)
    for rank in ranks:
        dropped = rank == 0 and plot.order == "drop" and not world.sight(READER).gates
        if not (came or sight.ended or dropped):
            continue
        ended = scene.heard(rank)
        if ended == ["dropped"] and dropped:
            over.add(rank)
        elif not (ended == ["closed"] and sight.ended):
            assert came, f"reader {rank} heard {ended} of a writer that had not come"
            _told_of_death(scene, ended, None, {victim.pid}, by[rank])
    first = scene.claim(scene.other("spare"), "writer")
    if 0 not in ranks:  # reader 0 is dead; whoever comes now finds its place, or joins
        ranks.insert(0, 0)
        scene.claim(scene.other("reader 0"), "reader 0")
    for rank in ranks:
        if rank not in over:
            scene.read_on(rank)
    scene.other("spare").do("write", end="writer", count=MORE)
    scene.other("spare").do("close", end="writer")
    for rank in ranks:
        if rank not in over:
            ended = scene.heard(rank)
            assert ended == ["closed"], f"reader {rank}: {ended} instead of the end of the stream"
    acknowledged = [sequence for sequence in scene.told("put") if sequence >= first]
    assert not acknowledged, f"put() has returned for {acknowledged}, and the successor begins at {first}"
    for rank in ranks:
        numbers = [sequence for sequence, _, _ in scene.got[rank]]
        again = [sequence for sequence, redelivered, _ in scene.got[rank] if redelivered]
        assert not again, f"reader {rank}, which did not die, was told that {again} are delivered again"
        if rank in over:
            assert numbers == list(range(len(numbers))), f"reader {rank} got {numbers} before it was dropped"
            continue
        begin = _begin(scene, world.sight(READER), first) if plot.joins and rank == 0 else 0
        due = list(range(begin, first + MORE))
        assert numbers == due, f"reader {rank} got {numbers} instead of {due}"


def _begin(scene: Scene, sight: Sight, first: int) -> int:
    """The first message that is due to reader 0, by where the writer let it in."""
    begins = _positions(scene)
    found = [sequence for sequence, position in begins.items() if position >= sight.start]
    begin = min(found, default=first + MORE)
    assert begin <= first, f"let in at {sight.start}, behind message {first}, the first of the successor"
    return begin


def _positions(scene: Scene) -> dict[int, int]:
    """Where each message begins in the stream, as the sizes tell that reader 1 got; messages of one piece."""
    begins: dict[int, int] = {}
    position = 0
    for sequence, _, size in scene.got[1]:
        begins[sequence] = position
        position += _layout.stride(size)
    return begins


# a reader was killed


def _after_reader(scene: Scene, plot: Plot) -> None:
    world, victim = scene.world, scene.victim
    writer, predecessors = scene.other("writer"), {actor.pid for actor in scene.extras}
    # Mostly the writer is held up already when the victim dies. A victim asleep would wake if it wrote.
    if scene.writing or not (_is_rare(scene) or scene.reached == ASLEEP):
        epoch = world.epoch(WRITER)
        if not scene.writing:
            scene.write_on(TOTAL)
            scene.writer_rests(epoch)
        world.settled(1, scene.other("reader 1"))
    sight = world.sight(READER)
    by = "pidfd" if watches(writer, victim.pid) else "lock"
    if scene.writing:
        _nobody_is_told_early(scene, {WRITER: writer})
    scene.kill()
    if sight.present and sight.gates:
        _told_of_death(scene, _write_until_death(scene), 0, {victim.pid} | predecessors, by)
    elif sight.present and sight.joins:  # whether a dead one is let in depends on whether it had announced itself
        ended = _write_until_death(scene)
        if ended != ["wrote"]:
            _told_of_death(scene, ended, 0, {victim.pid}, by)
    elif not sight.gates:
        ended = _write_until_death(scene)
        assert ended == ["wrote"], f"{ended} of a reader that had left"
    scene.claim(scene.other("reader 0"), "reader 0")
    scene.read_on(0)
    for _ in range(2):  # what it was writing, and the rest
        scene.write_on(TOTAL + MORE)
        ended = scene.wrote()
        assert ended == ["wrote"], f"{ended} while the successor reads"
    writer.do("close", end="writer")
    for rank in (0, 1):
        ended = scene.heard(rank)
        assert ended == ["closed"], f"reader {rank}: {ended} instead of the end of the stream"
    _check_survivor(scene)
    _check_successor(scene, plot, sight)


def _is_rare(scene: Scene) -> bool:
    """Some writers hear of the death when they come to wait, and not while they do."""
    return zlib.crc32(str(scene.cell).encode()) % 16 == 0


def _write_until_death(scene: Scene) -> list[Any]:
    """What ends the writing of `TOTAL` messages: a death, or that they were written."""
    for _ in range(2):  # it may have been writing fewer
        scene.write_on(TOTAL)
        ended = scene.wrote()
        if ended != ["wrote"]:
            return ended
    return ended


def _check_survivor(scene: Scene) -> None:
    numbers = [sequence for sequence, _, _ in scene.got[1]]
    again = [sequence for sequence, redelivered, _ in scene.got[1] if redelivered]
    assert numbers == list(range(TOTAL + MORE)), f"reader 1 got {numbers} of {TOTAL + MORE} messages"
    assert not again, f"reader 1, which did not die, was told that {again} are delivered again"


def _check_successor(scene: Scene, plot: Plot, sight: Sight) -> None:
    got = scene.got[0]
    lost = [entry for entry in got if entry[0] == "lost"]
    assert len(lost) <= plot.large, f"the successor lost {len(lost)} messages"
    got = [entry for entry in got if entry[0] != "lost"]
    first = got[0][0] if got else TOTAL + MORE
    numbers = [sequence for sequence, _, _ in got]
    assert numbers == list(range(first, TOTAL + MORE)), f"the successor got {numbers}"
    marked = {sequence for sequence, redelivered, _ in got if redelivered}
    if not sight.gates:
        assert not marked, f"{marked} are marked as redelivered to one that joined"
        return
    begins = _positions(scene)
    took, finished = [sequence for sequence, _ in scene.told("took")], len(scene.told("finished"))
    due = {sequence for sequence in range(first) if begins[sequence] >= sight.start} - ({0} if lost else set())
    if plot.owned:  # the call that gives copies releases before it returns
        due = {sequence for sequence in due if begins[sequence] >= sight.released}
    assert not due - set(took), f"the successor begins at {first}, and nobody has read {due - set(took)}"
    assert not set(took[:finished]) & set(numbers), f"{took[:finished]} were finished, and come again: {numbers}"
    unmarked = set(took) & set(numbers) - marked
    assert not unmarked, f"{unmarked} come again, unmarked"
    if plot.large:
        return
    assert begins[first] == sight.released, f"the successor begins at {begins[first]} instead of {sight.released}"
    wrong = [entry for entry in got if entry[1] != (begins[entry[0]] < sight.acquired)]
    assert not wrong, f"marked wrongly, {sight.acquired} bytes having been acquired: {wrong}"
