"""Lent buffers where something comes in between: another thread, a signal's function or its exception, a fork, mlock.

Seams stand in for them: what may happen in the middle of a line happens in the function that the line calls.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from aiospin import _pages
from aiospin.compat.vllm import MessageQueue, _loan, _wire
from aiospin.compat.vllm._loan import LEAST, Loans

pytestmark = pytest.mark.usefixtures("leaves_nothing")

RING = 8 * LEAST
SIZE = LEAST + 12345


@pytest.fixture(autouse=True)
def lending_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of the last loan."""
    monkeypatch.setattr(_loan, "ABSTAINS", 0)


def array(seed: int, size: int = SIZE) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@contextlib.contextmanager
def pair(**options: Any) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    writer = MessageQueue(1, 1, **{"capacity": RING, **options})
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    try:
        yield writer, reader
    finally:
        gc.collect()
        writer.shutdown()
        reader.shutdown()


def loans(queue: MessageQueue) -> Loans:
    assert queue._receiver is not None
    return queue._receiver.loans


def go_round(writer: MessageQueue, reader: MessageQueue) -> None:
    """Fill the whole ring twice with other messages, and take them."""
    for seed in range(1000, 1000 + 2 * RING // SIZE):
        writer.enqueue(array(seed), timeout=60)
        assert np.array_equal(reader.dequeue(timeout=60), array(seed))


def during_copies(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Have `action` happen once, while the first buffer that is recalled is being copied."""
    copy, left = _pages.copy_privately, [action]

    def copy_and_act(address: int, length: int) -> None:
        copy(address, length)
        if left:
            left.pop()()

    monkeypatch.setattr(_pages, "copy_privately", copy_and_act)


# memory that is locked


def test_pages_that_were_copied_behind_our_back_are_not_lent() -> None:
    """mlock(2) copies every page of a private mapping that may be written."""
    with pair() as (writer, reader):
        go_round(writer, reader)
        pages = loans(reader).pages
        assert pages is not None
        _pages.copy_privately(pages.address, pages.length)
        go_round(writer, reader)
        writer.enqueue(array(1))
        copy = reader.dequeue()
        assert np.array_equal(copy, array(1)) and not loans(reader).lent


def test_pages_that_cannot_be_forgotten_are_never_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (writer, reader):
        writer.enqueue(array(1))
        lent = reader.dequeue()
        lent[:] = 9

        def fail(address: int, length: int) -> None:
            raise OSError(22, "locked")

        with monkeypatch.context() as patch:
            patch.setattr(_pages, "forget_copies", fail)
            del lent
        assert not loans(reader).lent, "the ring is held"
        go_round(writer, reader)
        assert len(loans(reader)._recalled) == 1


# the same thread, once more


@pytest.mark.parametrize("end", ["shutdown", "collect"])
def test_an_end_within_a_recall_does_not_lock_itself_out(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (writer, reader):
        writer.enqueue(array(1))
        held = reader.dequeue()
        during_copies(monkeypatch, reader.shutdown if end == "shutdown" else lambda: loans(reader).recall())
        loans(reader).recall()
        assert not loans(reader).lent and np.array_equal(held, array(1))


def test_a_shutdown_that_is_cut_short_can_be_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (writer, reader):
        writer.enqueue(array(1))
        held = reader.dequeue()

        def strike() -> None:
            raise KeyboardInterrupt

        during_copies(monkeypatch, strike)
        with pytest.raises(KeyboardInterrupt):
            reader.shutdown()
        reader.shutdown()
        assert not loans(reader).lent
        with pytest.raises(RuntimeError, match="cancelled"):
            reader.dequeue(timeout=0)
        successor = MessageQueue.create_from_handle(writer.export_handle(), 0)
        successor.shutdown()
        assert np.array_equal(held, array(1))


class Strike(BaseException):
    """What a signal's function raises."""


@contextlib.contextmanager
def struck(line: int) -> Iterator[list[str]]:
    """Raise Strike at that line, counted, of what runs in _loan.py. Yields where it was; empty if there are fewer."""
    left, where = [line], list[str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != _loan.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                where.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
                raise Strike
        return trace

    before, hook = sys.gettrace(), sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None  # a finalizer has nobody to tell
    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(before)
        sys.unraisablehook = hook


def use(reader: MessageQueue, seed: int) -> None:
    lent = reader.dequeue(timeout=60)
    assert np.array_equal(lent, array(seed))
    lent[:7] = 99


def test_an_exception_at_any_line_holds_nothing_for_ever() -> None:
    places = []
    with pair() as (writer, reader):
        for line in range(1, 200):
            writer.enqueue(array(line), timeout=60)
            with struck(line) as where, contextlib.suppress(Strike):
                use(reader, line)
            if not where:
                break
            places += where
            loans(reader).recall()
            assert not loans(reader).lent, f"after an exception at {where}"
        assert {"lend", "_over"} <= {place.partition(":")[0] for place in places}
        go_round(writer, reader)


# other threads


def test_nothing_is_lent_by_a_reader_that_ends() -> None:
    with pair() as (writer, reader):
        writer.enqueue(array(1))
        loans(reader).refuse()
        copy = reader.dequeue()
        assert not loans(reader).lent and np.array_equal(copy, array(1))


def test_nothing_is_lent_while_a_fork_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue after the other is recalled, and meanwhile other threads receive."""
    with pair() as (writer, reader), pair() as (writer_2, reader_2):
        for seed in range(3):
            writer.enqueue(array(seed))
            writer_2.enqueue(array(seed))
        held = [reader.dequeue(), reader_2.dequeue()]
        during_copies(monkeypatch, lambda: held.extend((reader.dequeue(), reader_2.dequeue())))
        _loan._forks.begin()
        held += (reader.dequeue(), reader_2.dequeue())
        lent = [*loans(reader).lent, *loans(reader_2).lent]
        _loan._forks.end()
        assert not lent
        assert all(np.array_equal(found, array(place // 2)) for place, found in enumerate(held))
        writer.enqueue(array(7))
        again = reader.dequeue()
        assert loans(reader).lent and np.array_equal(again, array(7))


# what is kept


class Bad:
    """Cannot be unpickled."""

    def __init__(self, size: int) -> None:
        self.content = array(1, size)

    def __reduce__(self) -> Any:
        return refuse, (self.content,)


def refuse(content: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("size", [100, 30_000, LEAST + 1])
def test_who_keeps_an_unpickling_error_keeps_no_slot(size: int) -> None:
    with pair() as (writer, reader):
        kept = []
        for _ in range(2 * RING // size if size > 1000 else 3):
            writer.enqueue(Bad(size), timeout=60)
            with pytest.raises(ZeroDivisionError) as caught:
                reader.dequeue()
            kept.append(caught.value)
        go_round(writer, reader)


def test_a_raw_buffer_arrives_as_bytes_whatever_its_size() -> None:
    with pair() as (writer, reader):
        for size in (10, 30_000, 2 * LEAST):
            writer.enqueue(pickle.PickleBuffer(bytearray(b"abcd" + bytes(size))))
            found = reader.dequeue()
            assert found[:4] == b"abcd" and found[4] == 0 and len(found) == size + 4
            found[0] = 1


def test_a_pickler_that_has_met_much_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it remembers is wiped as a whole after each message, however small."""
    idle: list[Any] = []
    monkeypatch.setattr(_wire, "_idle", idle)
    with pair() as (writer, reader):
        writer.enqueue([str(number) for number in range(5000)])
        assert not idle
        writer.enqueue((1, "x"))
        assert len(idle) == 1
        assert len(reader.dequeue()) == 5000 and reader.dequeue() == (1, "x")


# waits


def test_a_signals_own_time_out_comes_out_beside_lent_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (writer, reader):
        writer.enqueue(array(1))
        held = reader.dequeue()

        def strike(timeout: float | None) -> Any:
            raise TimeoutError("the program's own")

        assert reader._receiver is not None
        monkeypatch.setattr(reader._receiver, "_acquire", strike)
        with pytest.raises(TimeoutError, match="the program's own"):
            reader.dequeue(timeout=60)
        del held


def test_a_look_recalls_nothing_before_its_time_and_does_so_then(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiospin.compat.vllm import _receiver

    with pair() as (writer, reader):
        writer.enqueue(array(1))
        held = reader.dequeue()
        monkeypatch.setattr(_receiver, "_RECALL_AFTER", 3600)
        for timeout in (0, 0.001):
            with pytest.raises(TimeoutError, match=rf"no message within {float(timeout)!r} s"):
                reader.dequeue(timeout=timeout)
        assert loans(reader).lent
        monkeypatch.setattr(_receiver, "_RECALL_AFTER", 0)
        with pytest.raises(TimeoutError, match=r"no message within 0\.0 s"):
            reader.dequeue(timeout=0)
        assert not loans(reader).lent and np.array_equal(held, array(1))


def test_a_buffer_of_a_whole_chunk_is_lent() -> None:
    with pair(capacity=None, max_chunk_bytes=4 << 20) as (writer, reader):
        for seed in range(4):
            writer.enqueue(array(seed, 4 << 20), timeout=0)
            lent = reader.dequeue()
            assert loans(reader).lent and np.array_equal(lent, array(seed, 4 << 20))


def test_waiting_until_ready_beside_a_thread_that_receives() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from ends import asleep

    writer = MessageQueue(2, 2)
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    with ThreadPoolExecutor(2) as pool:
        receiving = pool.submit(reader.dequeue)
        assert reader._receiver is not None
        asleep(reader._receiver.end)
        reader._receiver.require_a_writer()
        writer.enqueue("there")
        assert receiving.result() == "there"
    writer.shutdown()
    reader.shutdown()
