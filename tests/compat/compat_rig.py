"""What the tests of MessageQueue share: both sides in one process, or readers and writers that are programs.

Guarantee: `sides` shuts down what it made, whatever happened; programs are killed at the end.
Assumption: ends.py and programs.py, one folder up, say how waits are driven.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from ends import RING, content, epoch
from programs import Program

from aiospin.compat.vllm import Handle, MessageQueue

SMALL: dict[str, Any] = {"capacity": RING, "max_chunk_bytes": 1000}  # the smallest ring; a chunk takes 1088 bytes
FITS = RING // 1088  # messages of `fill` in the smallest ring

# What programs begin with.
BEGIN = """
    import pickle
    from aiospin.compat.vllm import MessageQueue

    def opened():
        return MessageQueue.create_from_handle(pickle.loads(bytes.fromhex(arguments["handle"])), arguments["rank"])
"""
# Takes so many messages, and stays; ends in good order when it hears something.
READER = (
    BEGIN
    + """
    queue = opened()
    got = [queue.dequeue() for _ in range(arguments.get("messages", 0))]
    say("ready")
    hear()
"""
)
# Makes a queue, sends so many messages, and stays; ends in good order when it hears something.
WRITER = (
    BEGIN
    + """
    count = len(arguments["ranks"])
    queue = MessageQueue(count, count, arguments["ranks"], capacity=RING, max_chunk_bytes=1000)
    for sequence in range(arguments.get("messages", 0)):
        queue.enqueue(content(sequence, 500))
    say(pickle.dumps(queue.export_handle()).hex())
    hear()
"""
)


@contextlib.contextmanager
def sides(ranks: Sequence[int] = (0,), **options: Any) -> Iterator[tuple[MessageQueue, list[MessageQueue]]]:
    """A queue of these ranks and all its readers, in this process; the smallest ring unless told otherwise."""
    with contextlib.ExitStack() as stack:
        queue = MessageQueue(len(ranks), len(ranks), list(ranks), **{**SMALL, **options})
        stack.callback(queue.shutdown)
        readers = []
        for rank in ranks:
            readers.append(MessageQueue.create_from_handle(queue.export_handle(), rank))
            stack.callback(readers[-1].shutdown)
        yield queue, readers


@contextlib.contextmanager
def only_writer(ranks: Sequence[int] = (0,), **options: Any) -> Iterator[MessageQueue]:
    """A queue of these ranks, where nobody has come yet."""
    queue = MessageQueue(len(ranks), len(ranks), list(ranks), **{**SMALL, **options})
    try:
        yield queue
    finally:
        queue.shutdown()


def reading(queue: MessageQueue, rank: int, messages: int = 0, text: str = READER, **options: Any) -> Program:
    """A process that reads at that rank."""
    return Program(text, {"handle": packed(queue.export_handle()), "rank": rank, "messages": messages}, **options)


def writing(ranks: Sequence[int] = (0,), messages: int = 0, text: str = WRITER) -> Program:
    """A process that makes a queue."""
    return Program(text, {"ranks": list(ranks), "messages": messages})


def attached(writer: Program, rank: int) -> MessageQueue:
    """The reader of that rank of a queue whose writer has just begun. Say `writer.last_heard()` for another one."""
    return MessageQueue.create_from_handle(unpacked(writer.last_heard() or writer.hear()), rank)


def packed(handle: Handle) -> str:
    return pickle.dumps(handle).hex()


def unpacked(text: str) -> Handle:
    handle = pickle.loads(bytes.fromhex(text))
    assert isinstance(handle, Handle)
    return handle


def end(queue: MessageQueue) -> Any:
    """The end of aiospin's that it waits with."""
    side = queue._sender or queue._receiver
    assert side is not None
    return side.end


def slept(queue: MessageQueue) -> int:
    """How often this side has announced that it sleeps."""
    return epoch(end(queue))


def fill(queue: MessageQueue, sequence: int = 0) -> int:
    """Send messages that take 1088 bytes until there is no room. The number of the next one."""
    while True:
        try:
            queue.enqueue(content(sequence, 1000), timeout=0)
        except TimeoutError:
            return sequence
        sequence += 1


def held_back(queue: MessageQueue, first: int, beyond: int) -> None:
    """Assert that the messages `first` to `beyond` of `fill` are next, and nothing else is there."""
    for sequence in range(first, beyond):
        assert queue.dequeue(timeout=0) == content(sequence, 1000)
    with contextlib.suppress(TimeoutError):
        raise AssertionError(f"{queue.dequeue(timeout=0)!r} was sent, too")
