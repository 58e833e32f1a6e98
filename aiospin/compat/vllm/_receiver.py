"""A reader's half of a MessageQueue.

Guarantee: a call that raised has taken nothing, apart from an object that cannot be unpickled, which is gone. A reader
that waits does not make its writer wait for buffers that it has lent out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any, Final, NoReturn

from aiospin import _backend
from aiospin._deadline import Deadline
from aiospin._errors import AiospinError, PeerDied, QueueClosed, ReaderBusy
from aiospin._reader import QueueReader
from aiospin.compat.vllm._loan import Loans
from aiospin.compat.vllm._ranks import Ranks
from aiospin.compat.vllm._sender import clamped, lent
from aiospin.compat.vllm._wire import SMALL, decode

ReadSlot = _backend.core.ReadSlot
_RECALL_AFTER: Final = 0.02  # seconds of waiting after which what is lent out is recalled: the writer may need the room


class Receiver:
    """Receives objects through a claimed end."""

    def __init__(self, reader: QueueReader[bytes], ranks: list[int]) -> None:
        self.end = reader
        self.ranks = Ranks(reader, ranks)
        self.loans = Loans(reader._segment)
        # At hand, since every message asks for them.
        self._acquire, self._get = reader.acquire_read, reader._get_up_to
        self._lent, self._dead, self._stalls = self.loans.lent, self.ranks.dead, self.ranks.stalls
        self._waits_since = (0, 0.0)  # with so many loans made, at that time

    def receive(self, timeout: float | None, indefinite: bool) -> Any:
        """The next object, waiting for it that long. `indefinite`: a long wait is not logged."""
        if timeout is not None:
            timeout = clamped(timeout)
        if self._lent or self._dead:
            return decode(self._take(timeout, indefinite), self.loans)
        self._stalls.on = not indefinite
        try:
            message = self._get(SMALL, timeout)
        except (PeerDied, QueueClosed, ReaderBusy, TimeoutError) as error:
            self._raise(error, timeout)
        return decode(message, self.loans) if type(message) is ReadSlot else message

    async def areceive(self, timeout: float | None, indefinite: bool) -> Any:
        """`receive` for coroutines. Cancelled, it has taken nothing.

        Awaits even what needs no wait, so that the loop gets its turns.
        """
        if timeout is not None:
            timeout = clamped(timeout)
        self._stalls.on = not indefinite
        try:
            slot = self._take_now() if self._dead else None
            if slot is None:
                slot = await self._await_slot(timeout)
        except (PeerDied, QueueClosed, ReaderBusy) as error:
            self.ranks.raise_for(error)
        return decode(slot, self.loans)

    @contextlib.contextmanager
    def lease(self, timeout: float | None, indefinite: bool) -> Generator[memoryview]:
        """The next message's bytes, in place."""
        timeout = None if timeout is None else clamped(timeout)
        with self._take(timeout, indefinite) as slot, lent(slot.data) as view:
            yield view

    def require_a_writer(self) -> None:
        """PeerDied or QueueClosed if the writer has gone. What it has sent stays to be received."""
        death = self.ranks.writer_died()
        if death is not None:
            raise death
        try:
            self.end.try_acquire_read()  # untouched, it comes again
        except ReaderBusy:
            return  # whoever is at it hears of it
        except (PeerDied, QueueClosed) as error:
            self.ranks.raise_for(error)

    def _take(self, timeout: float | None, indefinite: bool) -> Any:
        self._stalls.on = not indefinite
        try:
            slot = self._take_now()
            return self._wait_for_slot(timeout) if slot is None else slot
        except (PeerDied, QueueClosed, ReaderBusy) as error:
            self.ranks.raise_for(error)

    def _wait_for_slot(self, timeout: float | None) -> Any:
        for part in self._parts(timeout):
            try:
                return self._acquire(part).__enter__()
            except TimeoutError as error:
                if not _is_the_waits(error):
                    raise
        raise self._late(timeout)

    async def _await_slot(self, timeout: float | None) -> Any:
        for part in self._parts(timeout):
            try:
                return await self._acquire(part)
            except TimeoutError as error:
                if not _is_the_waits(error):
                    raise
        raise self._late(timeout)

    def _parts(self, timeout: float | None) -> Iterator[float | None]:
        """The time-outs of the waits that make up one wait. What is lent is recalled between them, once the reader has
        waited for so long, in however many calls.
        """
        deadline = Deadline(timeout)
        if self._lent:
            now, count = time.monotonic(), self.loans.count
            if self._waits_since[0] != count:  # something was received meanwhile
                self._waits_since = count, now
            left = max(0.0, self._waits_since[1] + _RECALL_AFTER - now)
            if timeout is None or left <= timeout:
                yield left
                self.loans.recall()
                self.loans.abstain()
        yield deadline.remaining()

    def _raise(self, error: AiospinError | TimeoutError, timeout: float | None) -> NoReturn:
        if isinstance(error, AiospinError):
            self.ranks.raise_for(error)
        raise self._late(timeout) if _is_the_waits(error) else error

    def _late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self.ranks.own_name}: no message within {timeout!r} s")

    def _take_now(self) -> Any:
        """The next slot if it is there. PeerDied if it would be for the dead that one had to wait."""
        slot = self.end.try_acquire_read()
        if slot is None:
            self.ranks.refuse_to_wait_for_the_dead()
        return slot


def _is_the_waits(error: TimeoutError) -> bool:
    """Whether it is about the wait, and not what a signal's function has raised."""
    return "no message within" in str(error)
