"""What storms have found, each as the smallest story that shows it.

Guarantee: no dice here. Each test fails without the line that mends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ends import RING, content, fill, pair
from programs import Program
from storm_book import BANK, Book
from storm_chance import Dice
from storm_ledger import HIGH, LOW, MARKED_HIGH, MARKED_LOW, Ledger
from storm_message import LEAST, write
from storm_reads import Reads

import aiospin
from aiospin._peers import Peers

pytestmark = pytest.mark.usefixtures("leaves_nothing")

HOLDS_THE_FIRST_AND_GETS_TWO = """
    with aiospin.attach(arguments["handle"]) as reader:
        slot = reader.acquire_read().__enter__()
        assert [reader.get(), *reader.get_many(1)] == [content(1, 100), content(2, 100)]
        say("ready")
        hear()
"""


@pytest.mark.parametrize("backend", ["native", "fallback"])
def test_owned_messages_come_again_marked_if_an_older_slot_kept_them_in_the_ring(backend: str) -> None:
    """The fallback's get() released its message without a note that it had been acquired."""
    if aiospin.backend == "fallback":
        backend = "fallback"
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue, queue.writer() as writer:
        reader: aiospin.QueueReader[bytes] = queue.reader()
        writer.put_many([content(sequence, 100) for sequence in range(4)])
        with Program(HOLDS_THE_FIRST_AND_GETS_TWO, {"handle": str(reader.handle)}, backend=backend) as child:
            assert child.hear() == "ready"
            child.kill()
        with reader:
            slots = [reader.try_acquire_read() for _ in range(4)]
            assert [slot is not None and slot.redelivered for slot in slots] == [True, True, True, False]
            del slots


def test_a_slot_that_an_interrupt_took_back_may_come_again_marked(tmp_path: Path) -> None:
    """The storm's own mistake: its ledger held that nobody had ever had it."""
    book = Book(str(tmp_path / "book"), create=True)
    with contextlib.closing(book):
        ledger = Ledger(book.page(1))
        ledger.begin(gates=True)
        ledger.claimed()
        ledger.expect(1, gives_back=False)
        ledger.blur()  # between the call's return and our note
        ledger.settle()
        successor = Ledger(book.page(1))
        successor.begin(gates=True)
        assert (successor[LOW], successor[HIGH]) == (0, 0)
        assert (successor[MARKED_LOW], successor[MARKED_HIGH]) == (0, 1)


class OneSlot:
    """An end with one message, whose slot is asked for with `async with`; `at_exit` is called once it went back."""

    def __init__(self, at_exit: Callable[[], None]) -> None:
        self.sequence, self.redelivered = 0, False
        self.data = write(1, 0, 0, LEAST)
        self.size = len(self.data)
        self._at_exit = at_exit

    def acquire_read(self, timeout: float | None) -> OneSlot:
        return self

    async def __aenter__(self) -> OneSlot:
        return self

    async def __aexit__(self, *of_an_exception: object) -> None:
        self._at_exit()


async def test_a_process_killed_after_a_cancelled_body_gave_its_slot_back_kept_nothing(tmp_path: Path) -> None:
    """The storm's own mistake: its ledger held the slot for kept until the `async with` was over."""
    book = Book(str(tmp_path / "book"), create=True)
    with contextlib.closing(book):
        ledger = Ledger(book.page(1))
        ledger.begin(gates=True)
        ledger.claimed()
        bounds = []
        player: Any = Reads()
        player.ledger = ledger
        player.fate = player
        player.body = lambda: None
        player._patience = lambda dice: None
        player.end = OneSlot(lambda: bounds.append(ledger._successor()))
        task = asyncio.ensure_future(player._awith(Dice(2)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert bounds == [(0, 1)]


class Fleeting:
    """An end that has one message, and tells when its slot was handed out."""

    sequence = 0

    def __init__(self, at_hand_out: Callable[[], None]) -> None:
        self._at_hand_out = at_hand_out

    def try_acquire_read(self) -> Fleeting:
        self._at_hand_out()
        return self


def test_a_slot_that_was_only_looked_at_may_come_again_marked(tmp_path: Path) -> None:
    """The storm's own mistake: for a process killed between the hand-out and our note, nobody had ever had it."""
    book = Book(str(tmp_path / "book"), create=True)
    with contextlib.closing(book):
        ledger = Ledger(book.page(1))
        ledger.begin(gates=True)
        ledger.claimed()
        marks = []

        def succeed() -> None:
            successor = Ledger(book.page(1))
            bank = book.page(1)[BANK]
            successor.begin(gates=True)
            marks.append((successor[MARKED_LOW], successor[MARKED_HIGH]))
            book.page(1)[BANK] = bank

        player: Any = Reads()
        player.ledger, player.page = ledger, book.page(1)
        player.end = Fleeting(succeed)
        player._look()
        assert marks == [(0, 1)]


def test_an_interrupt_after_the_close_of_a_pidfd_does_not_close_its_number_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By then it may be the number of something else."""
    close = os.close

    def close_and_strike(fd: int) -> None:
        close(fd)
        raise KeyboardInterrupt

    queue: aiospin.Queue[bytes]
    with aiospin.Queue(capacity=RING) as queue:
        segment = queue._segment
        assert segment is not None
        with Program('with aiospin.attach(arguments): say("ready"), hear()', str(queue.writer().handle)) as child:
            assert child.hear() == "ready"
            peers = Peers(segment, [0])
            assert peers.refresh() and list(peers.fds().values()) == [0]
            monkeypatch.setattr(os, "close", close_and_strike)
            with pytest.raises(KeyboardInterrupt):
                peers.close()
            monkeypatch.undo()
            peers.close()  # EBADF, or worse
            child.say()
            child.finish()


class Treacherous:
    """A lock in which Ctrl-C strikes just after it was taken, once."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._struck = False

    def acquire(self, *arguments: Any, **keywords: Any) -> bool:
        taken: bool = self._lock.acquire(*arguments, **keywords)
        if taken and not self._struck:
            self._struck = True
            raise KeyboardInterrupt
        return taken

    def release(self) -> None:
        self._lock.release()


@pytest.mark.fallback
def test_an_interrupt_at_the_door_of_a_take_does_not_lock_the_reader_for_ever() -> None:
    with pair() as (writer, reader):
        writer.put(content(0, 100))
        writer.put(content(1, 100))
        assert reader.get() == content(0, 100)
        core: Any = reader._core  # type: ignore[attr-defined]
        core._lock = Treacherous(core._lock)
        with pytest.raises(KeyboardInterrupt):
            reader.get()
        assert reader.get() == content(1, 100)


HOLDS_A_RANK = """
    with aiospin.attach(arguments):
        say("ready")
        hear()
"""


def test_each_of_two_deaths_that_are_noticed_at_once_is_told() -> None:
    """The second was taken for told as well: whoever dropped the first rank and waited on heard nothing more."""
    queue: aiospin.Queue[bytes]
    with aiospin.Queue(readers=2, capacity=RING) as queue, queue.writer() as writer:
        handles = [str(queue.reader(rank).handle) for rank in range(2)]
        with Program(HOLDS_A_RANK, handles[0]) as first, Program(HOLDS_A_RANK, handles[1]) as second:
            assert (first.hear(), second.hear()) == ("ready", "ready")
            count = fill(writer)
            pids = {0: first.pid, 1: second.pid}
            first.kill()
            second.kill()
            told = {}
            for _ in pids:
                with pytest.raises(aiospin.PeerDied) as caught:
                    writer.put(content(count, 1000), timeout=60)
                assert caught.value.rank is not None
                told[caught.value.rank] = caught.value.pid
                writer.drop_reader(caught.value.rank)
            assert told == pids
            writer.put(content(count, 1000))
