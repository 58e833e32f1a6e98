"""Reader: the calls of one rank.

Guarantee: a message is claimed synchronously by the code that receives it; one waiter at a time, else ReaderBusy.
Assumption: see endpoint.py for the hooks that a subclass implements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from aiospin._errors import CorruptSlot, Empty, QueueClosed, ReaderBusy, ReaderDropped
from aiospin._fallback.endpoint import Attempt, Endpoint
from aiospin._fallback.horizon import Horizon
from aiospin._fallback.mapping import Mapping
from aiospin._fallback.operation import Acquire, Operation
from aiospin._fallback.read_slot import ReadSlot
from aiospin._fallback.reader_core import ReaderCore
from aiospin._fallback.record import Record
from aiospin._fallback.ring import NOT_READY, Outcome
from aiospin._fallback.timing import check_count, check_timeout

_CLOSED_AT_ONCE = 2


def _borrow(core: ReaderCore, record: Record) -> Record:
    """Lend a record to a call that gives it back itself."""
    record.out = True
    return record


class Reader(Endpoint):
    """One rank's end of the queue. Time-outs are seconds: None waits for ever, 0 polls once."""

    _core: ReaderCore | None = None
    _decode: Callable[[bytes], Any] | None = None
    _rank: int | None = None

    # public

    def acquire_read(self, timeout: float | None = None) -> Acquire:
        """The next slot, as a lease. Nothing happens before it is awaited or entered."""
        return Acquire(self, Attempt(self._try_slot, "acquire_read"), check_timeout(timeout))

    def try_acquire_read(self) -> ReadSlot | None:
        """The next slot if there is one. Never waits."""
        self._poll()
        slot = self._try_slot()
        return None if slot is NOT_READY else slot

    def get(self, timeout: float | None = None) -> Any:
        """The next message, owned (bytes, or what the codec makes of them). TimeoutError when none came in time."""
        timeout = check_timeout(timeout)
        if self._core is not None and not self._waiter:
            message = self._try_get()
            if message is not NOT_READY:
                self._at_once += 1
                return message
        return self._wait(Attempt(self._try_get, "get"), timeout)

    def _get_up_to(self, most: int, timeout: float | None = None) -> Any:
        """The next message: as `get` has it up to that many bytes, in place if it is larger."""
        slot = self.try_acquire_read()
        if slot is None:
            slot = self.acquire_read(timeout).__enter__()
        if slot.size > check_count("most", most, 1):
            return slot
        with slot:
            message = bytes(slot.data)
            return message if self._decode is None else self._decode(message)

    def get_nowait(self) -> Any:
        """The next message, or Empty."""
        self._poll()
        message = self._try_get()
        if message is NOT_READY:
            raise Empty(f"{self.role_name}: no message now")
        return message

    def get_many(self, n: int, timeout: float | None = None) -> list[Any]:
        """Wait for one message, then take what else is there: 1 to `n` messages, in order."""
        return self._wait(self._many(n), check_timeout(timeout))  # type: ignore[no-any-return]

    def aget(self, timeout: float | None = None) -> Operation:
        """As `get`, awaited. A cancelled or timed-out wait has taken nothing."""
        return Operation(self, Attempt(self._try_get, "aget"), check_timeout(timeout))

    def aget_many(self, n: int, timeout: float | None = None) -> Operation:
        """As `get_many`, awaited."""
        return Operation(self, self._many(n), check_timeout(timeout))

    # for the layer above

    @property
    def _cursor(self) -> int:
        return 0 if self._core is None else self._core.next_position

    @property
    def _sequence(self) -> int:
        return -1 if self._core is None else self._core.next_sequence

    def _open(
        self,
        mapping: Mapping,
        rank: int,
        bell: int,
        writer_bell: int,
        horizon: Horizon,
        decode: Callable[[bytes], Any] | None,
        checksum: bool,
        anchor: object = None,
    ) -> None:
        """Start from what the rank's lines say; a rank that left asks to join.

        The caller has locked the role, and keeps it locked for as long as `anchor` lives: this endpoint lets go of it
        when it is shut and every lease is back.
        """
        self._core = ReaderCore(mapping, rank, bell, writer_bell, checksum, anchor)
        self._rank = rank
        self._decode = decode
        self._opened_on(mapping, bell)

    def _ready(self) -> bool:
        """An attempt would return or raise now."""
        core = self._core
        if core is None:
            return self._shut_down
        return self._failure is not None or core.any_ready() or core.ended() or core.dropped()

    def _announce(self) -> bool:
        """Say that this reader is about to sleep, then look again: True if it need not."""
        core, mapping = self._core, self._mapping
        if core is None or mapping is None:
            return True
        self._parks += 1
        core.announce(mapping)
        return self._ready()

    # attempts

    def _poll(self) -> None:
        self._require()
        if self._waiter:
            raise self._busy()

    def _take(self, take: Callable[[], Any]) -> Any:
        """What `take` finds, or why there will be nothing, or NOT_READY."""
        core = self._core
        if core is None:
            self._require()
            core = self._core
            assert core is not None
        shutdown = core.shutdown()
        if shutdown == _CLOSED_AT_ONCE:
            raise QueueClosed(f"{self.role_name}: the stream has ended")
        try:
            taken = take()
        except CorruptSlot:
            if core.dropped():  # then the writer may rightly have written over it
                raise self._dropped() from None
            raise
        if core.dropped():
            raise self._dropped()
        if taken is NOT_READY:
            self._take_failure()
            if core.ended():
                taken = take()  # what was published before the end
                if taken is NOT_READY:
                    raise QueueClosed(f"{self.role_name}: the stream has ended")
        return taken

    def _try_slot(self) -> ReadSlot | Outcome:
        core = self._open_core()
        return self._take(lambda: core.take_record(ReadSlot))  # type: ignore[no-any-return]

    def _try_get(self) -> Any:
        core = self._open_core()
        if self._decode is None:
            return self._take(core.take_one)
        messages = self._take_decoded(self._decode, 1)
        return NOT_READY if messages is NOT_READY else messages[0]

    def _take_decoded(self, decode: Callable[[bytes], Any], most: int) -> Any:
        """Up to `most` decoded messages. One that its codec refuses is raised when it is the first, and then consumed;
        else it stays for the next call, so that those before it are delivered."""
        core = self._open_core()
        borrowed: list[Record] = []
        decoded: list[Any] = []
        consumed = 0
        try:
            while len(decoded) < most:
                with contextlib.suppress(Exception) if decoded else contextlib.nullcontext():
                    record = core.take_record(_borrow) if decoded else self._take(lambda: core.take_record(_borrow))
                    if record is NOT_READY:
                        break
                    borrowed.append(record)
                    decoded.append(decode(core.copy(record)))
                    continue
                break
            consumed = len(decoded)
        except MemoryError:
            raise
        except Exception:
            consumed = 1
            raise
        finally:
            for index, record in enumerate(borrowed):
                record.back = index >= consumed
                core.give(record)
        return decoded or NOT_READY

    def _many(self, n: int) -> Attempt:
        most = check_count("n", n, 1)

        def attempt() -> Any:
            core = self._open_core()
            if self._decode is None:
                return self._take(lambda: core.take_many(most))
            return self._take_decoded(self._decode, most)

        return Attempt(attempt, "get_many")

    def _open_core(self) -> ReaderCore:
        if self._core is None:
            self._require()
        assert self._core is not None
        return self._core

    # endpoint

    @property
    def role_name(self) -> str:
        return "reader" if self._rank is None else f"reader {self._rank}"

    def _busy(self) -> ReaderBusy:
        return ReaderBusy(f"another task or thread is waiting on {self.role_name}")

    def _dropped(self) -> ReaderDropped:
        return ReaderDropped(f"{self.role_name} was dropped by the writer: claim the rank again to join anew")

    def _late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self.role_name}: no message within {timeout!r} s")

    def _drop_core(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.detach()

    def _forget_core(self) -> None:
        if self._core is not None:
            self._core.forget()

    def _core_counters(self) -> dict[str, int]:
        return {} if self._core is None else self._core.counters()

    def _line_up(self, waiter: object) -> None:
        if self._waiter.setdefault("one", waiter) is not waiter:
            raise self._busy()

    def _step_out(self, waiter: object) -> None:
        if self._waiter.get("one") is waiter:
            del self._waiter["one"]

    def _must_wait(self, attempt: Attempt) -> bool:
        return False
