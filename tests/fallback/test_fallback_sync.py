"""Waiting in a thread: wakes, signals, peers, other threads, forks and other processes."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading
import time
from typing import Any

import pytest
from fallback_rig import PAGE, Rig, RigReader, content, rig
from forked import in_child

from aiospin import _layout
from aiospin._errors import Empty, ForkedUse, Full, QueueClosed, ReaderBusy, WriterBusy


def start(call: Any) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_a_parked_reader_and_a_parked_writer_wake_each_other() -> None:
    with rig(readers=2) as queue:
        count = 3000
        got: list[list[bytes]] = [[], []]

        def read(rank: int) -> None:
            reader = queue.reader(rank)
            got[rank] = [reader.get() for _ in range(count)]

        threads = [start(lambda: read(0)), start(lambda: read(1))]
        writer = queue.writer()
        for sequence in range(count):
            writer.put(content(sequence, sequence * 37 % 1500))
        for thread in threads:
            thread.join()
        expected = [content(sequence, sequence * 37 % 1500) for sequence in range(count)]
        assert got == [expected, expected]


def test_a_timeout_is_at_least_what_was_asked() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"reader 0: no message within 0\.0105 s"):
            reader.get(timeout=0.0105)
        assert time.monotonic() - begun >= 0.0105
        assert reader._counters()["parks"] >= 1
        writer.put(bytes(PAGE - 64))
        with pytest.raises(TimeoutError):
            with writer.acquire_write(1, timeout=0.001):
                pass
        assert not writer._claimed


def test_two_threads_on_one_reader() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        parked = threading.Event()
        reader.when_parked = parked.set
        got: list[bytes] = []
        thread = start(lambda: got.append(reader.get()))
        parked.wait()
        for call in (reader.get, reader.get_nowait, reader.try_acquire_read, lambda: reader.get_many(3)):
            with pytest.raises(ReaderBusy):
                call()
        writer.put(b"x")
        thread.join()
        assert got == [b"x"]
        with pytest.raises(Empty):
            reader.get_nowait()


def test_two_threads_on_one_writer() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(bytes(PAGE - 64))
        parked = threading.Event()
        writer.when_parked = parked.set
        thread = start(lambda: writer.put(b"x"))
        parked.wait()
        with pytest.raises(WriterBusy):
            writer.put(b"y")
        with pytest.raises(Full):
            writer.put_nowait(b"y")
        reader.get()
        thread.join()
        assert reader.get() == b"x"


def test_a_threadsafe_writer_takes_turns() -> None:
    with rig() as queue:
        writer, reader = queue.writer(threadsafe=True), queue.reader()
        claim = writer.try_acquire_write(5)
        assert claim is not None
        with pytest.raises(WriterBusy, match="this thread"):
            writer.put(b"own")
        with pytest.raises(Full):
            writer.put_nowait(b"own")
        late: list[BaseException] = []

        def put_late() -> None:
            try:
                writer.put(b"late", timeout=0.001)
            except TimeoutError as error:
                late.append(error)

        start(put_late).join()
        assert len(late) == 1
        thread = start(lambda: writer.put(b"second"))
        claim.data[:] = b"first"
        claim.publish()
        thread.join()
        assert reader.get_many(9) == [b"first", b"second"]

        def put_some(which: int) -> None:
            for index in range(100):
                writer.put(bytes([which, index]))

        threads = [start(lambda which=which: put_some(which)) for which in range(4)]
        got = [reader.get() for _ in range(400)]
        for thread in threads:
            thread.join()
        for which in range(4):
            assert [message[1] for message in got if message[0] == which] == list(range(100))


def test_closing_wakes_a_parked_thread() -> None:
    with rig() as queue:
        reader = queue.reader()
        parked = threading.Event()
        reader.when_parked = parked.set
        errors: list[BaseException] = []

        def get() -> None:
            try:
                reader.get()
            except QueueClosed as error:
                errors.append(error)

        thread = start(get)
        parked.wait()
        reader._shut(None)
        thread.join()
        assert len(errors) == 1


def test_a_peers_descriptor_wakes_and_a_failure_is_raised() -> None:
    with rig() as queue:
        reader = queue.reader()
        end, other = os.pipe()
        os.write(other, b"x")
        reader.peers = [end]

        def recheck(waited: float) -> None:
            assert waited >= 0
            reader.peers = []
            reader._fail(ValueError("died"))

        reader._recheck = recheck  # type: ignore[method-assign]
        with pytest.raises(ValueError, match="died"):
            reader.get()
        os.close(end)
        os.close(other)


@pytest.mark.parametrize("barriers", [True, False])
def test_a_lost_ring_is_found_by_the_bound(barriers: bool) -> None:
    """A message whose ring never comes, as where the barrier is refused: the nap ends by itself."""
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        reader.fileno()
        queue.mapping.barriers = barriers
        parked = threading.Event()
        reader.when_parked = parked.set
        got: list[bytes] = []
        thread = start(lambda: got.append(reader.get()))
        parked.wait()
        writer.fileno()
        core = writer._core
        assert core is not None
        core._rung = [queue.lines(_layout.READER_PARK_EPOCH)]  # as if it had been rung for
        writer.put(b"x")
        thread.join()
        assert got == [b"x"]


def test_signal_handlers_run_during_a_wait() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        before = signal.signal(signal.SIGUSR1, lambda *_: writer.put(b"from the handler"))
        try:
            reader.when_parked = lambda: os.kill(os.getpid(), signal.SIGUSR1)
            assert reader.get() == b"from the handler"
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_an_exception_from_a_handler_ends_the_wait_and_loses_nothing() -> None:
    class Interrupt(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            main = threading.main_thread().ident
            assert main is not None
            reader.when_parked = lambda: signal.pthread_kill(main, signal.SIGUSR1)
            with pytest.raises(Interrupt):
                reader.get()
        finally:
            signal.signal(signal.SIGUSR1, before)
        reader.when_parked = lambda: None
        writer.put(b"x")
        assert reader.get() == b"x" and reader._waiter == {}


def test_a_handler_that_uses_what_it_interrupted_is_told() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        writer.put(b"x")
        reader.fileno()
        core = reader._core
        assert core is not None
        core._enter()
        with pytest.raises(ReaderBusy, match="interrupted"):
            reader.get_nowait()
        core._exit()
        assert reader.get_nowait() == b"x"


def test_a_forked_child_touches_nothing_of_its_parent() -> None:
    with rig() as queue:
        writer, reader = queue.writer(), queue.reader()
        unclaimed = queue.reader()
        writer.put_many([content(i, 10) for i in range(4)])
        untouched, touched, viewed = (reader.try_acquire_read() for _ in range(3))
        claim = writer.try_acquire_write(10)
        assert untouched is not None and touched is not None and viewed is not None and claim is not None
        assert touched.data
        view = viewed.data
        viewed._leave()
        slots = [untouched, touched]
        del untouched, touched, viewed

        def check() -> None:
            nonlocal view, claim
            for call in (reader.get, reader.get_nowait, reader.fileno, reader.arm, lambda: writer.put(b"x")):
                with pytest.raises(ForkedUse):
                    call()
            with pytest.raises(ForkedUse):
                unclaimed.get()
            assert view == content(2, 10)
            with pytest.raises(ForkedUse):
                claim.publish()
            slots.clear()
            view = claim = None

        published, bells = queue.published(), [os.read(bell, 9) if not _empty(bell) else b"" for bell in queue.bells]
        in_child(check)
        assert queue.released() == 0 and queue.published() == published
        assert [_empty(bell) for bell in queue.bells] == [True] * len(bells)
        assert len(slots) == 2 and view == content(2, 10)
        claim.abort()
        slots[1].release()
        slots.clear()
        assert reader.get_many(9) == [content(0, 10), content(3, 10)]
        del view
        assert queue.released() == queue.published()


def _empty(bell: int) -> bool:
    return not select.select([bell], [], [], 0)[0]


def _read_in_another_process(queue: Rig, count: int, results: Any) -> None:
    reader = RigReader(queue, 0)
    reader.home = os.getpid()
    queue.mapping = queue.map()
    results.send([reader.get(timeout=60) == content(i, i * 97 % 6000) for i in range(count)].count(True))


def test_two_processes() -> None:
    """Each side parks on the other again and again: a small ring, messages below and above its size."""
    context = multiprocessing.get_context("fork")
    count = 1500
    with rig() as queue:
        results, child_end = context.Pipe()
        process = context.Process(target=_read_in_another_process, args=(queue, count, child_end))
        process.start()
        writer = queue.writer()
        for sequence in range(count):
            writer.put(content(sequence, sequence * 97 % 6000), timeout=60)
        assert results.recv() == count
        process.join()
        assert process.exitcode == 0
        assert queue.released() == queue.published()
        results.close()
        child_end.close()
        process.close()
