"""Scenarios about a peer that is killed: the side that waits for it must hear of it.

Guarantee: a scenario returns if PeerDied was raised and named the right one, and raises what was wrong; a side that
waits for ever does just that, which the runner sees.
Assumption: `peers_play` runs one scenario a process, and somebody bounds its time.
"""

from __future__ import annotations

import threading
from typing import Any

from peers_events import waits
from peers_link import Link, Part
from peers_sides import Side

import aiospin

MIB = 1 << 20


def killed_after(link: Link, seconds: float) -> threading.Timer:
    """Kill the peer from another thread, that much later: this one waits by then."""
    timer = threading.Timer(seconds, link.kill)
    timer.start()
    return timer


def fill(queue: Any) -> None:
    """Send until something is raised."""
    while True:
        queue.enqueue(bytes(900_000))


def reader_killed(side: Side) -> None:
    """A reader is killed while the writer waits for room."""
    links = [Link(side), Link(side)]
    queue = side.make(2, 2, [4, 6], max_chunk_bytes=MIB, max_chunks=2)
    for link, rank in zip(links, (4, 6), strict=True):
        link.lend(queue, rank)
    queue.wait_until_ready()
    for link in links:
        link.answer()
    links[0].order("peers_deaths:read_on")
    timer = killed_after(links[1], 0.5)
    waits()
    try:
        fill(queue)
    except aiospin.PeerDied as death:
        assert death.rank == 6, f"rank 6 was killed, and rank {death.rank} is said to be dead"
        assert death.pid == links[1].peer.pid, f"process {links[1].peer.pid} was killed, not {death.pid}"
    timer.join()
    links[0].kill()


def read_on(part: Part) -> None:
    """Receive for ever."""
    while True:
        part.reading[-1].dequeue()


def dead_before(side: Side) -> None:
    """A reader has died before the writer sends; it is not noticed by anybody but the queue."""
    with Link(side) as link:
        queue = link.open(max_chunk_bytes=MIB, max_chunks=2)
        link.kill()
        waits()
        try:
            fill(queue)
        except aiospin.PeerDied as death:
            assert death.rank == 0, f"rank 0 was killed, and rank {death.rank} is said to be dead"


def writer_killed(side: Side) -> None:
    """The writer is killed while a reader waits: what was sent is received before."""
    with Link(side) as link:
        queue = link.open_back(max_chunk_bytes=MIB, max_chunks=4)
        link.call("peers_contents:feed", 3, "sent")
        timer = killed_after(link, 0.5)
        waits()
        got = []
        try:
            while True:
                got.append(queue.dequeue())
        except aiospin.PeerDied as death:
            assert death.pid == link.peer.pid, f"process {link.peer.pid} was killed, not {death.pid}"
        assert got == [("sent", number) for number in range(3)], f"before that, {got!r} came"
        timer.join()


def killed_while_writing(side: Side) -> None:
    """The writer is killed in the middle of a message: nothing of it is received."""
    with Link(side) as link:
        queue = link.open_back(max_chunk_bytes=MIB, max_chunks=4)
        link.call("peers_contents:feed", 1, "whole")
        link.order("peers_deaths:write_half")
        link.pipe.recv()
        link.kill()
        waits()
        assert queue.dequeue() == ("whole", 0)
        try:
            got = queue.dequeue()
        except aiospin.PeerDied:
            return
        raise AssertionError(f"half a message was received: {got!r:.80}")


def write_half(part: Part) -> None:
    """Begin to write, say so, and never end."""
    with part.writing[-1].acquire_write() as chunk:
        chunk[:4] = b"half"
        part.pipe.send("writes")
        threading.Event().wait()
