"""Scenarios about groups of processes that make their queue together.

Guarantee: a scenario returns if all was as it should be, and raises what was wrong; both sides play the same lines.
Assumption: `peers_play` runs one scenario a process, in a folder of its own, and somebody bounds its time;
torch.distributed goes through the loopback interface.
"""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from peers_events import waits
from peers_link import SPAWN, Link, Part
from peers_sides import SIDES, Side, queues

MIB = 1 << 20
WORLD = 3


def join(rank: int, store: str) -> Any:
    """Join torch's process group of WORLD processes, and return it."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    return dist.group.WORLD


def play_rank(part: Part, rank: int, store: str) -> Any:
    """What each process but the first does: receive from the first's queue, and send to it through its own."""
    kind = queues(part.side.name).MessageQueue
    group = join(rank, store)
    queue = kind.create_from_process_group(group, MIB, 4, writer_rank=0)
    got = queue.broadcast_object()
    own, handles = kind.create_from_process_group_single_reader(group, MIB, 4, reader_rank=0)
    assert handles == [], f"rank {rank} got {len(handles)} handles"
    own.enqueue(("from", rank))
    part.writing.append(own)  # for as long as the first may read
    return got


def torch_group(side: Side) -> None:
    """create_from_process_group, and create_from_process_group_single_reader, in a torch group of three processes."""
    kind = queues(side.name).MessageQueue
    store = str(Path.cwd() / "store")
    links = [Link(side) for _ in range(1, WORLD)]
    for rank, link in enumerate(links, 1):
        link.order("peers_groups:play_rank", rank, store)
    group = join(0, store)
    waits()
    queue = kind.create_from_process_group(group, MIB, 4, writer_rank=0)
    queue.broadcast_object({"to": "all"})
    own, handles = kind.create_from_process_group_single_reader(group, MIB, 4, reader_rank=0)
    assert len(handles) == WORLD, f"the reader got {len(handles)} handles"
    own.enqueue(("from", 0))
    readers = [kind.create_from_handle(handle, 0) for handle in handles]
    got = [reader.dequeue() for reader in readers]
    assert got == [("from", rank) for rank in range(WORLD)], f"the reader got {got!r}"
    for link in links:
        answer = link.answer()
        assert answer == {"to": "all"}, f"broadcast_object gave {answer!r}"
        link.pipe.send(None)
        link.peer.join()


class PipeGroup:
    """A group as small as it may be: `rank`, `world_size`, `broadcast_obj`; over pipes from the first to the others."""

    def __init__(self, rank: int, pipes: list[Connection]) -> None:
        self.rank = rank
        self.world_size = WORLD
        self._pipes = pipes

    def broadcast_obj(self, obj: Any, src: int) -> Any:
        """Return what rank `src` passed. The first hands on what another one says."""
        if self.rank == 0:
            said = obj if src == 0 else self._pipes[src - 1].recv()
            for rank, pipe in enumerate(self._pipes, 1):
                if rank != src:
                    pipe.send(said)
            return said
        if self.rank != src:
            return self._pipes[0].recv()
        self._pipes[0].send(obj)
        return obj


def follow_group(side: str, rank: int, orders: Connection, answers: Connection) -> None:
    """Make the queue as another rank of a PipeGroup, and return what comes."""
    kind = queues(SIDES[side].name).MessageQueue
    queue = kind.create_from_process_group(PipeGroup(rank, [orders]), MIB, 4, writer_rank=0)
    answers.send(queue.dequeue())


def stateless_group(side: Side) -> None:
    """create_from_process_group in a group that is not torch's."""
    kind = queues(side.name).MessageQueue
    orders, answers, children = [], [], []
    for rank in range(1, WORLD):
        order, end = SPAWN.Pipe()
        answer, other = SPAWN.Pipe()
        child = SPAWN.Process(target=follow_group, args=(side.name, rank, end, other), daemon=True)
        child.start()
        orders.append(order)
        answers.append(answer)
        children.append(child)
    waits()
    queue = kind.create_from_process_group(PipeGroup(0, orders), MIB, 4, writer_rank=0)
    queue.enqueue(["to", "all"])
    got = [answer.recv() for answer in answers]
    assert got == [["to", "all"]] * 2, f"they got {got!r}"
    for child in children:
        child.join()
