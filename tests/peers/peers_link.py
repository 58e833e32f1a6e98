"""Two processes of one side, and the pipe on which they agree about what comes next.

    with Link(side) as link:
        queue = link.open(max_chunks=4)          # the peer reads what this process enqueues
        back = link.open_back()                  # and the other way round
        link.order("peers_benchmarks:echo", 100) # the peer calls `echo(part, 100)`, and goes on with the next order
        answer = link.answer()                   # what `echo` returned

Guarantee: the peer is a spawned process and is gone when the block ends, at once if the block raised.
Assumption: orders are functions of modules in this folder; whoever runs this bounds its time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from peers_sides import SIDES, Side

Order = Callable[..., Any]
SPAWN = multiprocessing.get_context("spawn")


class Part:
    """What an order works with in the peer's process: the queues that were opened there, and the pipe."""

    def __init__(self, side: Side, pipe: Connection) -> None:
        self.side = side
        self.pipe = pipe
        self.reading: list[Any] = []
        self.writing: list[Any] = []


def find(order: str) -> Order:
    """Return the function that `module:function` names."""
    module, _, function = order.partition(":")
    found: Order = getattr(import_module(module), function)
    return found


def attach(part: Part, rank: int) -> None:
    """Take the end of `rank` of a queue whose handle comes next on the pipe."""
    queue = part.side.attach(part.pipe.recv(), rank)
    queue.wait_until_ready()
    part.reading.append(queue)


def offer(part: Part, arguments: dict[str, Any]) -> None:
    """Make a queue that is written here, and send its handle."""
    queue = part.side.make(1, 1, **arguments)
    part.pipe.send(queue.export_handle())
    queue.wait_until_ready()
    part.writing.append(queue)


def close(part: Part) -> None:
    """Let go of every queue."""
    part.reading.clear()
    part.writing.clear()


def serve(side: str, pipe: Connection) -> None:
    """Follow orders until there are no more."""
    part = Part(SIDES[side], pipe)
    while (order := pipe.recv()) is not None:
        name, arguments = order
        pipe.send(find(name)(part, *arguments))


class Link:
    """This process, which orders, and its peer, which obeys."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.pipe, end = SPAWN.Pipe()
        self.peer = SPAWN.Process(target=serve, args=(side.name, end), daemon=True)
        self.peer.start()
        end.close()
        self._queues: list[Any] = []

    def order(self, name: str, *arguments: Any) -> None:
        """Let the peer call `name`, while this process does something else."""
        self.pipe.send((name, arguments))

    def answer(self) -> Any:
        """Return what the order returned. Raises EOFError if the peer has died of it, having said why."""
        return self.pipe.recv()

    def call(self, name: str, *arguments: Any) -> Any:
        """Order, and wait for the answer."""
        self.order(name, *arguments)
        return self.answer()

    def lend(self, queue: Any, rank: int) -> None:
        """Let the peer take the end of `rank`. It answers when the queue's writer has waited until it is ready, too."""
        self.order("peers_link:attach", rank)
        self.pipe.send(queue.export_handle())

    def open(self, **arguments: Any) -> Any:
        """Make a queue that this process writes and the peer reads."""
        queue = self.side.make(1, 1, **arguments)
        self.lend(queue, queue.export_handle().local_reader_ranks[0])
        queue.wait_until_ready()
        self.answer()
        self._queues.append(queue)
        return queue

    def open_back(self, **arguments: Any) -> Any:
        """Make a queue that the peer writes and this process reads."""
        self.order("peers_link:offer", arguments)
        queue = self.side.attach(self.pipe.recv(), 0)
        queue.wait_until_ready()
        self.answer()
        self._queues.append(queue)
        return queue

    def close_queues(self) -> None:
        """Let go of every queue, on both sides."""
        self.call("peers_link:close")
        self._queues.clear()

    def kill(self) -> None:
        """Kill the peer, and return when it is dead."""
        self.peer.kill()
        self.peer.join()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, kind: object, *failure: object) -> None:
        if kind is not None:
            self.peer.kill()
        elif self.peer.is_alive():
            self.pipe.send(None)
        self.peer.join()
        self.pipe.close()
