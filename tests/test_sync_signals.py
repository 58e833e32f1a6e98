"""Signals during a wait of the main thread: served at once, never stolen, and none falls between check and sleep.

A wait that a signal should end is given nobody to end it instead: no peer writes, and the fallback's re-check, which
has no counter for signals, is put off for an hour. Natively the counter tells.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ends import asleep, content, ends, epoch, fill, pair, until
from programs import Program

import aiospin
from aiospin._fallback import waiting as fallback_waiting

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SLEEPER = """
    from aiospin._fallback import waiting
    waiting._NAP = 3600.0
    end = aiospin.attach(arguments["handle"])
    with end:
        if end.rank is None:
            fill(end)
        assert end.arm()  # what rang at the start is drained, so that the next sleep is the only one
        say(epoch(end))
        try:
            if end.rank is None:
                end.put(bytes(1000))
            else:
                end.get()
        except KeyboardInterrupt:
            say(["interrupted", end.statistics().signals])
        hear()
        # whatever was interrupted left the end as it was
        if end.rank is None:
            end.put(b"after the interrupt")
        else:
            say(end.get().decode())
"""


def signals_counted() -> int:
    """How many signals the counter of one interrupted wait shows."""
    return 1 if aiospin.backend == "native" else 0


def test_ctrl_c_ends_a_get_that_nobody_answers() -> None:
    with aiospin.Queue() as queue, queue.writer() as writer:
        reader = queue.reader(0)
        with Program(SLEEPER, {"handle": str(reader.handle)}) as child:
            asleep(reader, child.hear())
            child.signal(signal.SIGINT)
            assert child.hear() == ["interrupted", signals_counted()]
            child.say()
            writer.put(b"after the interrupt")
            assert child.hear() == "after the interrupt"
            child.finish()
        reader.close()


def test_ctrl_c_ends_a_put_on_a_full_ring() -> None:
    with aiospin.Queue(capacity="64 KiB") as queue, queue.reader(0) as reader:
        writer = queue.writer()
        with Program(SLEEPER, {"handle": str(writer.handle)}) as child:
            asleep(writer, child.hear())
            child.signal(signal.SIGINT)
            assert child.hear() == ["interrupted", signals_counted()]
            got = reader.get_many(1000)
            assert got == [content(sequence, 1000) for sequence in range(len(got))]
            child.say()
            assert list(reader) == [b"after the interrupt"]
            child.finish()
        writer.close()


def test_ctrl_c_without_a_handler_of_ones_own_is_a_keyboard_interrupt() -> None:
    program = """
        reader = aiospin.attach(arguments["handle"])
        try:
            reader.get()
        finally:
            say("cleaned up")
            reader.close()
    """
    with aiospin.Queue() as queue, queue.writer():
        reader = queue.reader(0)
        with Program(program, {"handle": str(reader.handle)}) as child:
            asleep(reader)
            child.signal(signal.SIGINT)
            assert child.hear() == "cleaned up"
            assert child.wait() == -signal.SIGINT
            assert "KeyboardInterrupt" in child.complaints()
        reader.close()


BETWEEN = """
    import ctypes, signal, threading
    from aiospin._fallback import waiting
    waiting._NAP = 3600.0
    libc_raise = ctypes.PyDLL(None)["raise"]
    reader = aiospin.attach(arguments["handle"])

    class Between(Exception):
        pass

    def second(number, frame):
        raise Between

    def first(number, frame):
        # Natively this runs in the last check before the sleep, with signals blocked: the second signal stays pending
        # until the sleep itself lets it through.
        say("first")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)

    signal.signal(signal.SIGUSR1, first)
    signal.signal(signal.SIGUSR2, second)

    def peer_descriptors():
        # No bytecode runs between this signal and the native check: a C iterator calls a C function, and its result,
        # 0, is the standard input, where nothing comes.
        return map(libc_raise, [int(signal.SIGUSR1)])

    if arguments["native"]:
        reader._peer_fds = peer_descriptors
    else:
        reader._peer_fds = lambda: list(peer_descriptors())
    with reader:
        if arguments["warm"]:
            hook = reader.__dict__.pop("_peer_fds")
            try:
                reader.get(timeout=0.001)
            except TimeoutError:
                reader._peer_fds = hook
        try:
            reader.get()
        except Between:
            say(["interrupted", reader.statistics().signals])
        del reader._peer_fds
        say(reader.get().decode())
"""


@pytest.mark.parametrize("warm", [False, True], ids=["the_first_wait", "a_later_wait"])
def test_no_signal_falls_between_the_check_and_the_sleep(warm: bool) -> None:
    """The first wait of a process has things to find out on its way, and each may be where the signal is served."""
    with aiospin.Queue() as queue, queue.writer() as writer:
        reader = queue.reader(0)
        arguments = {"handle": str(reader.handle), "native": aiospin.backend == "native", "warm": warm}
        with Program(BETWEEN, arguments) as child:
            assert child.hear() == "first"
            what, signals = child.hear()
            assert what == "interrupted" and (signals == signals_counted() or not warm)
            writer.put(b"still here")
            assert child.hear() == "still here"
            child.finish()
        reader.close()


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """SIGUSR1 is handled by noting it."""
    noted: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: noted.append(number))
    yield noted
    signal.signal(signal.SIGUSR1, before)


def main_thread() -> int:
    ident = threading.main_thread().ident
    assert ident is not None
    return ident


def signal_main_thread(end: Any, then: Callable[[], object], times: int = 1) -> None:
    """Signal the main thread once `end` is asleep, then do the rest."""
    for _ in range(times):
        asleep(end)
        signal.pthread_kill(main_thread(), signal.SIGUSR1)
    then()


def test_a_handler_that_returns_lets_the_wait_go_on(handled: list[int]) -> None:
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:

        def after_the_handler_has_run() -> None:
            while not handled:
                pass
            writer.put(b"in the end")

        pool.submit(signal_main_thread, reader, after_the_handler_has_run)
        assert reader.get() == b"in the end"
        assert handled == [signal.SIGUSR1]
        if aiospin.backend == "native":
            assert reader._counters()["signals"] == 1


def test_a_timeout_holds_across_signals(handled: list[int]) -> None:
    with pair() as (_, reader), ThreadPoolExecutor(1) as pool:
        pool.submit(signal_main_thread, reader, lambda: None, 3)
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.3)
        assert handled


def test_a_handler_may_use_other_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler itself writes what the interrupted wait is waiting for."""
    monkeypatch.setattr(fallback_waiting, "_NAP", 3600.0)
    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        written: list[int] = []

        def write_once(number: int, frame: object) -> None:
            if not written:
                written.append(number)
                writer.put(b"from the handler")

        def insist() -> None:
            """A signal that comes just before the kernel sleeps is heard with the next one, where naps are long."""
            until(lambda: written or signal.pthread_kill(main_thread(), signal.SIGUSR1))

        before = signal.signal(signal.SIGUSR1, write_once)
        try:
            insisting = pool.submit(signal_main_thread, reader, insist)
            assert reader.get() == b"from the handler"
            insisting.result()
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_uses_the_interrupted_end_is_told() -> None:
    told: list[type[BaseException]] = []

    def again(number: int, frame: object) -> None:
        try:
            reader.get_nowait()
        except aiospin.AiospinError as error:
            told.append(type(error))
        writer.put(b"go on")

    with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:
        before = signal.signal(signal.SIGUSR1, again)
        try:
            pool.submit(signal_main_thread, reader, lambda: None)
            assert reader.get() == b"go on"
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert told == [aiospin.ReaderBusy]


def test_interrupts_at_any_time_lose_no_message() -> None:
    """A handler that raises, over and over, while messages flow: each is received exactly once, in order."""

    class Interrupted(Exception):
        pass

    armed = [False]

    def interrupt(number: int, frame: object) -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupted

    count, interrupts = 400, 0
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pair() as (writer, reader), ThreadPoolExecutor(1) as pool:

            def send() -> None:
                since = epoch(reader)
                for sequence in range(count):
                    if sequence % 4 == 0:  # every fourth finds the reader asleep, the others find it anywhere
                        until(lambda: len(received) == sequence)  # noqa: B023 - called at once
                        asleep(reader, since)
                    signal.pthread_kill(main_thread(), signal.SIGUSR1)
                    since = epoch(reader)
                    writer.put(b"%d" % sequence)

            sending = pool.submit(send)
            while len(received) < count:
                slot = None
                try:
                    armed[0] = True
                    acquire = reader.acquire_read()
                    with acquire as slot:
                        armed[0] = False
                        received.append(int(bytes(slot.data)))
                except Interrupted:
                    interrupts += 1
                    armed[0] = False
            sending.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == list(range(count))
    assert interrupts > 0


def test_the_applications_handlers_stay() -> None:
    numbers = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    before = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    wakeup = signal.set_wakeup_fd(-1)
    with ends(readers=2) as (_, writer, readers):
        for sequence in range(10):
            writer.put(content(sequence, 100))
            for reader in readers:
                reader.get()
        for reader in readers:
            with pytest.raises(TimeoutError):
                reader.get(timeout=0.001)
        fill(writer)
        with pytest.raises(TimeoutError):
            writer.put(bytes(1000), timeout=0.001)
    assert {number: signal.getsignal(number) for number in numbers} == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    assert signal.set_wakeup_fd(wakeup) == -1
