"""Messages between two processes and two threads, on whatever rung the CPU has: the program of the Python in a guest.

    smoke.py RUNG [MESSAGES]       RUNG: what aiospin.rung() must say; "" here, where it is only rehearsed

Guarantee: every message arrives in order, sync and async, watched and parked; the waits that were watched are counted
as such; a time-out passes. Prints a line for each, and raises otherwise.
Assumption: two messages do not fit into the ring, and one takes longer to make than to read, so that readers wait.
Processes are pinned to a CPU each, where there are two: kernels like to put who wakes and who is woken on one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable

import aiospin

# The presets watch for too short a time: emulated Python takes milliseconds from one message to the next.
WATCHES = aiospin.WaitPolicy("watches", parks=False, core_share=1.0)
PARKS = aiospin.WaitPolicy("parks", maximum_us=1.0, inline_us=0.0)
PATIENCE = 300.0  # seconds of the guest, a few of which pass in one of ours
RING, NBYTES, PIECES = 65536, 40_000, 200


def payload(number: int) -> bytes:
    return b"".join(b"%d of %d;" % (number, piece) for piece in range(PIECES)).ljust(NBYTES, b".")


def check(messages: list[bytes]) -> None:
    for number, message in enumerate(messages):
        assert message == payload(number), f"message {number} is {message[:40]!r}..."


def write(queue: aiospin.Queue[bytes], messages: int) -> None:
    with queue.writer() as writer:
        for number in range(messages):
            writer.put(payload(number), timeout=PATIENCE)


def in_process(queue: aiospin.Queue[bytes], messages: int) -> Callable[[], None]:
    """Write in a forked child, on the last CPU, and stay on the first. Returns what waits for the child."""
    cpus = os.sched_getaffinity(0)
    writer = queue.writer()
    os.sched_setaffinity(0, {min(cpus)})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.sched_setaffinity(0, {max(cpus)})
            with writer:
                for number in range(messages):
                    writer.put(payload(number), timeout=PATIENCE)
            status = 0
        finally:
            os._exit(status)

    def join() -> None:
        _, status = os.waitpid(child, 0)
        os.sched_setaffinity(0, cpus)
        assert status == 0, f"the writing process ended with {status}"

    return join


def in_thread(queue: aiospin.Queue[bytes], messages: int) -> Callable[[], None]:
    """Write in a thread. Returns what waits for it."""
    thread = threading.Thread(target=write, args=(queue, messages))
    thread.start()
    return thread.join


def read(queue: aiospin.Queue[bytes], messages: int) -> aiospin.Statistics:
    with queue.reader(0) as reader:
        check([reader.get(timeout=PATIENCE) for _ in range(messages)])
        return queue.statistics()


def read_in_loop(queue: aiospin.Queue[bytes], messages: int) -> aiospin.Statistics:
    async def reading() -> aiospin.Statistics:
        async with queue.reader(0) as reader:
            found = []
            for _ in range(messages):
                async with reader.acquire_read(timeout=PATIENCE) as slot:
                    found.append(bytes(slot.data))
            check(found)
            return queue.statistics()

    return asyncio.run(reading())


def time_out(queue: aiospin.Queue[bytes]) -> None:
    begun = time.monotonic()
    with queue.reader(0) as reader:
        try:
            reader.get(timeout=0.02)
        except TimeoutError:
            assert time.monotonic() - begun >= 0.02
            return
    raise AssertionError("a message that nobody sent")


def main(rung: str, messages: int) -> None:
    found = aiospin.rung()
    print(f"  the backend is {aiospin.backend}, the rung {found}")
    assert aiospin.backend == "native"
    assert found == (rung or found), f"the rung is {found} instead of {rung}"
    for policy in (WATCHES, PARKS):
        for writing in (in_process, in_thread):
            for reading in (read, read_in_loop):
                queue: aiospin.Queue[bytes]
                with aiospin.Queue(readers=1, capacity=RING, policy=policy) as queue:
                    join = writing(queue, messages)
                    seen = reading(queue, messages)
                    join()
                print(
                    f"  {policy.name}, {writing.__name__}, {reading.__name__}: {seen.read} messages, "
                    f"{seen.ready} ready, {seen.inline} inline, {seen.monitor} monitored, {seen.parks} parks",
                    flush=True,
                )
                assert seen.read == messages
                waits = seen.inline + seen.monitor if policy is WATCHES else seen.parks
                assert not rung or waits > 0, "no wait went as the policy says"  # on a busy host nobody may ever wait
    with aiospin.Queue(readers=1, capacity=RING, policy=WATCHES) as queue:
        time_out(queue)
        print("  a time-out passed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
