"""Scenarios about what arrives: objects, tensors, order, payloads larger than a chunk, tensors that are kept.

Guarantee: a scenario returns if all was as it should be, and raises what was wrong; both sides play the same lines.
Assumption: `peers_play` runs one scenario a process, and somebody bounds its time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

from peers_events import waits
from peers_link import Link, Part
from peers_sides import Side

MIB = 1 << 20

# What a queue may raise for an object that it cannot carry. The others are tried, too, and the scenario names it.
REFUSALS = (TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError, pickle.PickleError)


def require(wrongs: list[str], of: int) -> None:
    """Raise what went wrong, if anything did."""
    if wrongs:
        raise AssertionError(f"{len(wrongs)} of {of}: {'; '.join(wrongs[:3])}{'; ...' if len(wrongs) > 3 else ''}")


def return_all(part: Part) -> None:
    """Send back whatever comes, until the text "end" does. What cannot be received comes back as a text."""
    reading, writing = part.reading[-1], part.writing[-1]
    while True:
        try:
            message = reading.dequeue()
        except REFUSALS as error:
            message = f"could not be received: {error!r:.80}"
        if isinstance(message, str) and message == "end":
            return
        writing.enqueue(message)


def round_trips(side: Side, things: Iterable[tuple[str, Any]], difference: Callable[[Any, Any], str]) -> None:
    """Send each thing there and back. Raises what came back different."""
    wrongs, count = [], 0
    with Link(side) as link:
        there, back = link.open(max_chunk_bytes=16 * MIB), link.open_back(max_chunk_bytes=16 * MIB)
        link.order("peers_contents:return_all")
        for name, thing in things:
            waits()
            count += 1
            try:
                there.enqueue(thing)
            except REFUSALS as error:
                wrongs.append(f"{name}: {error!r:.80}")
                continue
            got = back.dequeue()
            if isinstance(got, str) and got.startswith("could not be received"):
                wrongs.append(f"{name}: {got}")
            elif wrong := difference(thing, got):
                wrongs.append(f"{name}: {wrong}")
        there.enqueue("end")
        link.answer()
    require(wrongs, count)


def objects(side: Side) -> None:
    """Object graphs: containers, dataclasses, exceptions, the standard library's, numpy arrays."""
    import peers_payloads

    round_trips(side, peers_payloads.objects(), peers_payloads.difference)


def recursive(side: Side) -> None:
    """Graphs that hold themselves, and one object twice."""
    ring: list[Any] = [1]
    ring.append(ring)
    table: dict[str, Any] = {}
    table["self"] = [table]
    twin = bytearray(b"twin")

    def is_like(sent: Any, got: Any) -> str:
        if isinstance(sent, dict):
            return "" if got["self"][0] is got else "it does not hold itself"
        if len(sent) == 2 and sent[0] == 1:
            return "" if got[1] is got else "it does not hold itself"
        return "" if got[0] is got[1] and got[0] == b"twin" else "one object became two"

    round_trips(side, [("a list", ring), ("a table", table), ("twins", [twin, twin])], is_like)


def tensors(side: Side) -> None:
    """CPU tensors of every dtype: bits, shape, strides; the copy can be written."""
    import peers_payloads as payloads

    def all_tensors() -> Iterable[tuple[str, Any]]:
        for kind in payloads.kinds():
            yield from payloads.tensors(kind)
        yield from payloads.other_tensors()

    round_trips(side, all_tensors(), payloads.tensor_difference)


def collect(part: Part, count: int) -> list[Any]:
    """Return the next messages."""
    return [part.reading[-1].dequeue() for _ in range(count)]


def four_readers(side: Side) -> None:
    """One writer, four readers: each gets all, in order; broadcast_object as well."""
    ranks, count = [1, 2, 5, 7], 2000
    links = [Link(side) for _ in ranks]
    queue = side.make(4, 4, ranks, max_chunk_bytes=MIB, max_chunks=10)
    for rank, link in zip(ranks, links, strict=True):
        link.lend(queue, rank)
    queue.wait_until_ready()
    for link in links:
        link.answer()
        link.order("peers_contents:collect", count + 1)
    waits()
    for number in range(count):
        queue.enqueue(("step", number))
    sent = queue.broadcast_object("last")
    assert sent == "last", f"broadcast_object returned {sent!r}"
    expected = [("step", number) for number in range(count)] + ["last"]
    for rank, link in zip(ranks, links, strict=True):
        got = link.answer()
        assert got == expected, f"rank {rank} got {len(got)} messages, of which some are not as sent"
        link.pipe.send(None)
        link.peer.join()


def overflow(side: Side) -> None:
    """Payloads beyond the chunk, and beyond the whole ring, between small ones: all come, in order."""
    import torch

    sizes = [10, 3 * MIB, 100, 900_000, 12 * MIB, 5, MIB, MIB - 6, MIB - 7, 7]
    with Link(side) as link:
        queue = link.open(max_chunk_bytes=MIB, max_chunks=2)
        for flavour in ("bytes", "tensor"):
            link.order("peers_contents:measure", len(sizes))
            waits()
            for number, size in enumerate(sizes):
                body = bytes([number]) * size if flavour == "bytes" else torch.full((size,), number, dtype=torch.uint8)
                queue.enqueue((number, body))
            got = link.answer()
            expected = [(number, size, {number}) for number, size in enumerate(sizes)]
            assert got == expected, f"{flavour}: {got!r:.200}"


def measure(part: Part, count: int) -> list[tuple[int, int, set[int]]]:
    """Return of each numbered body its number, its length, and the values in it."""
    found = []
    for _ in range(count):
        number, body = part.reading[-1].dequeue()
        raw = body if isinstance(body, bytes) else body.numpy().tobytes()
        found.append((number, len(raw), set(raw)))
    return found


def keep(part: Part, count: int) -> list[tuple[int, int, int]]:
    """Keep every tensor, write to it, and return what the first, a middle and the last element are in the end."""
    kept = []
    for number in range(count):
        tensor = part.reading[-1].dequeue()
        tensor[len(tensor) // 2] = 200 + number % 50
        kept.append(tensor)
    return [(int(tensor[0]), int(tensor[len(tensor) // 2]), int(tensor[-1])) for tensor in kept]


def kept(side: Side) -> None:
    """Tensors that the reader keeps and writes to, more than the ring can hold: later messages do not touch them."""
    import torch

    count = 40
    with Link(side) as link:
        queue = link.open(max_chunk_bytes=4 * MIB, max_chunks=3)
        link.order("peers_contents:keep", count)
        waits()
        for number in range(count):
            queue.enqueue(torch.full((2 * MIB,), number, dtype=torch.uint8))
        got = link.answer()
    expected = [(number, 200 + number % 50, number) for number in range(count)]
    wrongs = [f"tensor {a[0]} became {b}" for a, b in zip(expected, got, strict=True) if a != b]
    require(wrongs, count)


def reused(side: Side) -> None:
    """A tensor that the sender changes as soon as it is sent: the reader gets what was sent."""
    import torch

    count = 50
    tensor = torch.zeros(2 * MIB, dtype=torch.uint8)
    with Link(side) as link:
        queue = link.open(max_chunk_bytes=4 * MIB, max_chunks=4)
        link.order("peers_contents:measure", count)
        waits()
        for number in range(count):
            queue.enqueue((number, tensor.fill_(number)))
        tensor.fill_(255)
        got = link.answer()
    wrongs = [f"{one!r}" for number, one in enumerate(got) if one != (number, 2 * MIB, {number})]
    require(wrongs, count)


def feed(part: Part, count: int, name: str) -> None:
    """Send numbered messages under a name."""
    for number in range(count):
        part.writing[-1].enqueue((name, number))


def several_producers(side: Side) -> None:
    """Three producers, each with its queue, into one reading process."""
    count, names = 500, ("a", "b", "c")
    links = [Link(side) for _ in names]
    queues = [link.open_back(max_chunk_bytes=MIB, max_chunks=4) for link in links]
    for name, link in zip(names, links, strict=True):
        link.order("peers_contents:feed", count, name)
    waits()
    for number in range(count):
        got = [queue.dequeue() for queue in queues]
        assert got == [(name, number) for name in names], f"round {number}: {got!r}"
    for link in links:
        link.answer()
        link.pipe.send(None)
        link.peer.join()
