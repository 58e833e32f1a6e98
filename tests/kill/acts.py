"""What actors do: each function is one order, named by the harness.

Guarantee: one text for threads and for event loops; `Stage.is_sync` decides. Readers check every byte they get.
Assumption: runs in an actor (actor.py); what is returned, and told, can be pickled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from stream import LARGE, SMALL, is_whole, message

import aiospin
from aiospin import _endpoint, _named

if TYPE_CHECKING:
    from actor import Stage


# calls, in the actor's way


@contextlib.asynccontextmanager
async def _reading(stage: Stage, reader: Any) -> AsyncIterator[Any]:
    if stage.is_sync:
        with reader.acquire_read() as slot:
            yield slot
    else:
        async with reader.acquire_read() as slot:
            yield slot


@contextlib.asynccontextmanager
async def _writing(stage: Stage, writer: Any) -> AsyncIterator[Any]:
    if stage.is_sync:
        with writer.acquire_write(SMALL) as slot:
            yield slot
    else:
        async with writer.acquire_write(SMALL) as slot:
            yield slot


async def _put(stage: Stage, writer: Any, *pieces: Any) -> None:
    if stage.is_sync:
        writer.put(*pieces)
    else:
        await writer.aput(*pieces)


# ends


async def attach(stage: Stage, end: str, handle: str, **options: Any) -> None:
    """Have an end, unclaimed."""
    stage.ends[end] = aiospin.attach(handle, **options)


async def claim(stage: Stage, end: str, handle: str, **options: Any) -> int | None:
    """Have an end, claimed. A writer answers with the number of its next message."""
    await attach(stage, end, handle, **options)
    stage.ends[end].__enter__()
    return getattr(stage.ends[end], "_sequence", None)


async def close(stage: Stage, end: str) -> None:
    """Leave for good."""
    stage.kept.clear()
    stage.ends[end].close()


async def detach(stage: Stage, end: str) -> None:
    """Give the role up and keep the place."""
    stage.kept.clear()
    stage.ends[end].detach()


async def clear(stage: Stage) -> tuple[int, int, dict[str, int]]:
    """Have nothing any more. Answers with what looks have found (actor.py), and the descriptors that are left."""
    from actor import holdings

    stage.kept.clear()
    for end in stage.ends.values():
        end.close()
    stage.ends.clear()
    found = stage.unrung, stage.unheard
    stage.unrung = stage.unheard = 0
    return (*found, holdings())


async def unseeing(stage: Stage) -> None:
    """From now on the kernel gives this process no pidfd."""

    def refuse(pid: int, flags: int = 0) -> int:
        raise PermissionError(f"no pidfd of {pid}")

    os.pidfd_open = refuse


async def hasten(stage: Stage) -> None:
    """Look at the locks of peers ten times a second, where the library looks once. Less time passes, nothing else."""
    _endpoint.__dict__["LOOK_AFTER"] = 0.1
    for name in ("_look_after", "_recheck"):
        setattr(_endpoint.Endpoint, name, _noting(stage, getattr(_endpoint.Endpoint, name), name == "_recheck"))
    if aiospin.backend == "fallback":
        from aiospin._fallback import waiting

        waiting._NAP = waiting._LOOK_AROUND = 0.1  # type: ignore[misc]


def _noting(stage: Stage, look: Callable[..., None], waits: bool) -> Callable[..., None]:
    """Count the looks that find what no bell and no pidfd has told, or a pidfd that nobody has listened to."""

    def noting(end: Any, *arguments: Any) -> None:
        if end._opened and (waits or end._queued) and end._ready():
            stage.unrung += not select.select([end._own_bell, *end._peers.fds()], [], [], 0)[0]
        if not waits and end._queued:  # it is in the loop, which comes to it in this very turn, or it is not
            stage.unheard += bool(select.select([*end._peers.fds()], [], [], 0)[0])
        if stage.tells_looks and (waits or end._queued):
            stage.tell("looked", None)
        look(end, *arguments)

    return noting


async def tell_looks(stage: Stage, on: bool) -> None:
    """Tell whenever a wait looks at its peers by itself."""
    stage.tells_looks = on


async def next_pid(stage: Stage, pid: int) -> None:
    """Let the next process of this PID namespace have that pid."""
    with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as last:
        last.write(str(pid - 1))


# survivors and successors


async def write(stage: Stage, end: str, count: int, size: int = SMALL) -> int:
    """Put so many messages. Answers with the number of the next one."""
    writer = stage.ends[end]
    for _ in range(count):
        await _put(stage, writer, message(writer._sequence, size))
    return int(writer._sequence)


async def fill(stage: Stage, end: str) -> int:
    """Put messages until there is no room. Answers with the number of the next one."""
    writer = stage.ends[end]
    with contextlib.suppress(aiospin.Full):
        while True:
            writer.put_nowait(message(writer._sequence))
    return int(writer._sequence)


async def write_on(stage: Stage, end: str, until: int, size: int = SMALL) -> list[Any]:
    """Put messages until so many were put. Answers with what ended it."""
    writer = stage.ends[end]
    try:
        while writer._sequence < until:
            await _put(stage, writer, message(writer._sequence, size))
    except aiospin.PeerDied as death:
        return ["died", death.rank, death.pid, death.noticed]
    except aiospin.QueueClosed:
        return ["closed"]
    return ["wrote"]


async def read_on(stage: Stage, end: str, limit: int | None = None) -> dict[str, Any]:
    """Read messages until something ends it, or so many were read. Answers with them, and with what ended it."""
    reader = stage.ends[end]
    got: list[Any] = []
    ended: list[Any] = ["limit"]
    try:
        while limit is None or len(got) < limit:
            try:
                async with _reading(stage, reader) as slot:
                    if not is_whole(slot.sequence, bytes(slot.data)):
                        raise AssertionError(f"message {slot.sequence} of {len(slot.data)} bytes is damaged")
                    got.append((slot.sequence, slot.redelivered, len(slot.data)))
            except aiospin.FragmentLost:
                got.append(("lost", False, 0))
    except aiospin.PeerDied as death:
        ended = ["died", death.rank, death.pid, death.noticed]
    except aiospin.QueueClosed:
        ended = ["closed"]
    except aiospin.ReaderDropped:
        ended = ["dropped"]
    return {"got": got, "ended": ended}


async def glance(stage: Stage, end: str) -> None:
    """Wait for nothing, and so get to know the peers."""
    reader = stage.ends[end]
    with contextlib.suppress(TimeoutError):
        if stage.is_sync:
            reader.get(timeout=0.002)
        else:
            await reader.aget(timeout=0.002)


async def keep(stage: Stage, end: str, count: int) -> None:
    """Take so many slots and hold them."""
    for _ in range(count):
        slot = stage.ends[end].try_acquire_read()
        assert slot is not None
        stage.kept.append(slot)


async def hold(stage: Stage, end: str, count: int) -> list[int]:
    """Wait for so many slots, and hold them. Answers with their numbers."""
    for _ in range(count):
        acquire = stage.ends[end].acquire_read()
        stage.kept.append(acquire.__enter__() if stage.is_sync else await acquire)
    return [slot.sequence for slot in stage.kept]


async def write_and_drop(stage: Stage, end: str, until: int, every: int) -> None:
    """Put messages, and drop reader 0 now and then, alive or not."""
    writer = stage.ends[end]
    while writer._sequence < until:
        if writer._sequence % every == every - 1:
            writer.drop_reader(0, force=True)
        await _put(stage, writer, message(writer._sequence))


async def read_persistently(stage: Stage, end: str, handle: str) -> list[list[int]]:
    """Read until the stream ends, and come again whenever one was dropped. Answers with what was read in each life."""
    lives: list[list[int]] = []
    while True:
        numbers: list[int] = []
        lives.append(numbers)
        stage.ends[end] = reader = aiospin.attach(handle)
        try:
            while True:
                async with _reading(stage, reader) as slot:
                    sequence, payload = slot.sequence, bytes(slot.data)
                if is_whole(sequence, payload):
                    numbers.append(sequence)
                else:  # overwritten under its eyes: then it was dropped, and is told so now
                    await _put_off(stage, reader)
        except aiospin.ReaderDropped:
            continue
        except aiospin.QueueClosed:
            return lives
        finally:
            reader.close()


async def _put_off(stage: Stage, reader: Any) -> None:
    async with _reading(stage, reader) as slot:
        raise AssertionError(f"message {slot.sequence} comes after a damaged one")


# what writers are killed in


async def put(stage: Stage, end: str, size: int = SMALL) -> None:
    """One message."""
    writer = stage.ends[end]
    sequence = writer._sequence
    await _put(stage, writer, message(sequence, size))
    stage.tell("put", sequence)
    stage.step("done")


async def put_large(stage: Stage, end: str) -> None:
    """One message that is larger than the ring."""
    await put(stage, end, LARGE)


async def put_pieces(stage: Stage, end: str) -> None:
    """One message of two buffers."""
    writer = stage.ends[end]
    sequence = writer._sequence
    whole = message(sequence)
    await _put(stage, writer, whole[: SMALL // 2], whole[SMALL // 2 :])
    stage.tell("put", sequence)
    stage.step("done")


async def put_several(stage: Stage, end: str) -> None:
    """Three messages in one call."""
    writer = stage.ends[end]
    first = writer._sequence
    messages: Iterable[bytes] = [message(first + number) for number in range(3)]
    if stage.is_sync:
        writer.put_many(messages)
    else:
        await writer.aput_many(messages)
    for number in range(3):
        stage.tell("put", first + number)
    stage.step("done")


async def write_in_place(stage: Stage, end: str) -> None:
    """One message, written into its slot in two halves."""
    writer = stage.ends[end]
    sequence = writer._sequence
    whole = message(sequence)
    async with _writing(stage, writer) as slot:
        stage.step("claimed")
        slot.data[: SMALL // 2] = whole[: SMALL // 2]
        stage.step("half of the copy")
        slot.data[SMALL // 2 :] = whole[SMALL // 2 :]
        stage.step("written")
    stage.tell("put", sequence)
    stage.step("done")


async def begin_writing(stage: Stage, end: str, handle: str) -> None:
    """From nothing to the first message."""
    stage.ends[end] = writer = aiospin.attach(handle)
    stage.step("attached")
    writer.__enter__()
    stage.step("claimed")
    await put(stage, end)


async def leave(stage: Stage, end: str) -> None:
    """`detach()`, and then let go of what is held."""
    stage.ends[end].detach()
    stage.step("detached")
    stage.kept.clear()
    stage.step("done")


async def finish(stage: Stage, end: str) -> None:
    """`close()`, and then let go of what is held."""
    stage.ends[end].close()
    stage.step("closed")
    stage.kept.clear()
    stage.step("done")


async def drop(stage: Stage, end: str, force: bool) -> None:
    """Drop reader 0, and write on."""
    stage.ends[end].drop_reader(0, force=force)
    stage.step("dropped")
    await put(stage, end)


# what readers are killed in


def _take(stage: Stage, sequence: int, payload: bytes, redelivered: bool) -> None:
    if not is_whole(sequence, payload):
        raise AssertionError(f"message {sequence} of {len(payload)} bytes is damaged")
    stage.tell("took", (sequence, redelivered))


async def read(stage: Stage, end: str) -> None:
    """One message, looked at and released."""
    async with _reading(stage, stage.ends[end]) as slot:
        _take(stage, slot.sequence, bytes(slot.data), slot.redelivered)
        stage.step("acquired")
    stage.tell("finished", None)
    stage.step("done")


async def get_several(stage: Stage, end: str) -> None:
    """Up to three messages in one call."""
    reader = stage.ends[end]
    await_or_not = reader.get_many(3) if stage.is_sync else await reader.aget_many(3)
    for payload in await_or_not:
        sequence = int.from_bytes(payload[:8], "little")
        _take(stage, sequence, payload, False)
        stage.tell("finished", None)
    stage.step("done")


async def begin_reading(stage: Stage, end: str, handle: str) -> None:
    """From nothing to the first message."""
    stage.ends[end] = reader = aiospin.attach(handle)
    stage.step("attached")
    reader.__enter__()
    stage.step("claimed")
    await read(stage, end)


async def read_after_drop(stage: Stage, end: str, handle: str) -> None:
    """Be told of the drop, and join anew."""
    reader = stage.ends[end]
    try:
        await read(stage, end)
    except aiospin.ReaderDropped:
        stage.tell("dropped", None)
    reader.close()
    stage.step("left")
    await begin_reading(stage, end, handle)


# what owners are killed in


async def create(stage: Stage, name: str | None = None, directory: str | None = None) -> None:
    """A new queue."""
    queue: aiospin.Queue[bytes] = aiospin.Queue(readers=2, capacity=65536, name=name, directory=directory)
    stage.ends["queue"] = queue
    stage.step("created")
    handles = []
    for end in (queue.writer(), queue.reader(0), queue.reader(1)):
        handles.append(str(end.handle))
        end.close()
    stage.tell("handles", handles)
    stage.step("done")


async def abandon(stage: Stage, immediate: bool = False) -> None:
    """Close the queue that one owns."""
    queue = stage.ends.pop("queue")
    if immediate:
        queue.shutdown(immediate=True)
    queue.close()
    stage.step("done")


async def unlink(stage: Stage, path: str) -> None:
    """Take an orphan away."""
    _named.unlink(path)
    stage.step("done")


async def try_attach(stage: Stage, handle: str) -> str:
    """Attach and let go. Answers with what is in the way, or nothing."""
    try:
        aiospin.attach(handle).close()
    except aiospin.AttachError as error:
        return str(error)
    return ""


async def fork_and_stay(stage: Stage) -> int:
    """A child that inherits everything and does nothing, until it is killed."""
    pid = os.fork()
    if pid:
        return pid
    while True:
        signal.pause()
