"""Bells that ring into the void, and doors that a fork keeps open: nobody sleeps for ever, and death shows through."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from ends import LARGEST, RING, asleep, epoch, pair
from programs import Program

import aiospin
from aiospin import _pages
from aiospin._fallback import waiting

pytestmark = pytest.mark.usefixtures("leaves_nothing")

# Claims every end, then loses its bells, as a side socket would: what it rings from now on goes nowhere.
LOSSY = """
    claimed = [aiospin.attach(handle) for handle in arguments]
    nowhere = os.open("/dev/null", os.O_RDWR)
    for end in claimed:
        end.__enter__()
        for bell in end._segment.bells_for(end._role_number).values():
            os.dup2(nowhere, bell)
    say("deaf and dumb")
    hear()
    for end in claimed:
        if end.rank is None:
            end.put(b"without a sound")
        else:
            say(len(end.get()))
    hear()
"""


def test_whoever_sleeps_looks_again_without_a_bell() -> None:
    """A thread in get, one in put, an awaited call and a wait set, each with a peer that cannot be heard."""
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        queues = [stack.enter_context(aiospin.Queue[bytes](capacity=RING, policy="eco")) for _ in range(4)]
        sync, full, awaited, member = queues
        reader, in_loop, in_set = (stack.enter_context(queue.reader()) for queue in (sync, awaited, member))
        writer = stack.enter_context(full.writer())
        writer.put(bytes(LARGEST))
        lossy = [str(end.handle) for end in (sync.writer(), full.reader(), awaited.writer(), member.writer())]
        child = stack.enter_context(Program(LOSSY, lossy))
        assert child.hear() == "deaf and dumb"
        for end in (reader, writer, in_loop, in_set):
            end.arm()  # hears that the peer has come, so that nothing rings from here on
        before = {end: epoch(end) for end in (reader, writer, in_loop, in_set)}

        async def both() -> None:
            with aiospin.WaitSet([in_set]) as waits:
                sleeping = [asyncio.ensure_future(in_loop.aget()), asyncio.ensure_future(waits.wait())]
                while not all(epoch(end) > before[end] for end in (in_loop, in_set)):
                    await asyncio.sleep(0.001)
                child.say()
                assert await sleeping[0] == b"without a sound"
                assert await sleeping[1] == [in_set]

        getting, putting = pool.submit(reader.get), pool.submit(writer.put, bytes(LARGEST))
        for end in (reader, writer):
            asleep(end, before[end])
        asyncio.run(both())
        assert getting.result() == b"without a sound"
        putting.result()
        assert child.hear() == LARGEST


def test_a_death_shows_though_a_fork_keeps_every_descriptor_open() -> None:
    """A pipe would never end, since a child of the dead has its other end too. Pidfd and lock are not fooled."""
    program = """
        import signal
        writer = aiospin.attach(arguments)
        writer.__enter__()
        heir = os.fork()
        if heir == 0:
            for stream in (0, 1):  # which are the test's and the writer's
                os.close(stream)
            signal.alarm(60)  # should nobody end it
            signal.pause()
        say(heir)
        hear()
        writer.put(b"alive")
        hear()
    """
    with ThreadPoolExecutor(1) as pool, aiospin.Queue[bytes](capacity=RING) as queue, queue.reader() as reader:
        writer = queue.writer()
        with Program(program, str(writer.handle), warnings=None) as child:
            heir = child.hear()
            for expected in (b"alive", None):
                before = epoch(reader)
                getting = pool.submit(reader.get)
                asleep(reader, before)
                if expected:
                    child.say()
                    assert getting.result() == expected
            child.signal(signal.SIGKILL)
            with pytest.raises(aiospin.PeerDied) as died:
                getting.result()
            assert (died.value.pid, died.value.noticed) == (child.pid, "pidfd")
            os.kill(heir, signal.SIGKILL)  # it was there until now, with all that its parent had open
        writer.close()


# ---- plain stores, and the barrier that orders them for everybody


REGISTRATIONS = 512  # MEMBARRIER_CMD_GET_REGISTRATIONS, from Linux 6.3 on
GLOBAL_EXPEDITED = 4  # as it is listed there


def test_every_process_takes_part_in_the_barriers_of_its_peers() -> None:
    """Those of the native backend too, which needs none for itself. An older kernel cannot be asked, and says -1."""
    program = f"""
        import ctypes
        from aiospin._pages import _SYS_MEMBARRIER
        asked = ctypes.CDLL(None).syscall
        with aiospin.attach(arguments) as reader:
            say(asked(_SYS_MEMBARRIER, {REGISTRATIONS}, 0, 0))
    """
    with pair() as (_, reader), Program(program, str(reader.handle)) as child:
        registered = child.hear()
        assert registered == -1 or registered & GLOBAL_EXPEDITED
        child.finish()


@pytest.mark.fallback
def test_a_sleeper_announces_itself_then_orders_then_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a peer does while the barrier runs is seen by the look that follows, on both sides."""
    with pair() as (writer, reader):
        writer.put(b"")
        assert reader.get() == b""
        acts: list[Any] = []
        seen: list[int] = []

        def barrier() -> bool:
            if acts:
                end, act = acts.pop()
                seen.append(epoch(end))
                act()
            return True

        monkeypatch.setattr(_pages, "barrier", barrier)
        for end, act in ((reader, lambda: writer.put(bytes(LARGEST))), (writer, reader.get)):
            with pytest.raises(TimeoutError):  # so that the writer knows what room it needs
                writer.put(bytes(LARGEST), timeout=0) if end is writer else reader.get(timeout=0)
            before = epoch(end)
            acts.append((end, act))
            assert end._announce(), "it went to sleep beside a message, or beside room"
            assert seen.pop() == before + 1


@pytest.mark.fallback
@pytest.mark.parametrize("granted", [True, False])
def test_without_the_barrier_sleeps_are_ten_milliseconds(granted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    sleep = waiting._sleep

    def counted(bell: int, others: list[int], seconds: float) -> tuple[bool, bool]:
        naps.append(seconds)
        return sleep(bell, others, seconds)

    monkeypatch.setattr(waiting, "_sleep", counted)
    monkeypatch.setattr(_pages, "barrier", lambda: granted)
    with pair() as (writer, reader):
        writer.__enter__()
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.05)
        assert (naps[0] > 0.010) == granted
        assert reader._look_after_period == (1.0 if granted else 0.01)


@pytest.mark.fallback
def test_where_stores_are_not_ordered_the_fallback_says_so_once() -> None:
    program = """
        import platform, warnings
        platform.machine = lambda: "aarch64"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import importlib
            from aiospin import _pages
            importlib.reload(_pages)
            for _ in range(2):
                aiospin.Queue().close()
        say([str(warning.message) for warning in caught])
    """
    with Program(program) as child:
        [told] = child.hear()
        assert "keeps stores in order" in told
        child.finish()
