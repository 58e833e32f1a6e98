"""One incarnation of a worker, as its group sees it: the process, its queue, its replies, and the calls it has.

The requests' queue and the replies' are made for this incarnation and end with it, so nothing of a dead worker is ever
mistaken for its successor's.

Guarantee: `on_up` and `on_lost` are called once each at most, and `on_lost` after every reply that the worker published
has been served. Runs in one loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from aiospin import AiospinError, Queue, QueueClosed, QueueReader, ReadSlot, _loop
from aiospin.workers import _body, _failure, _process
from aiospin.workers._calls import Call
from aiospin.workers._child import Spec
from aiospin.workers._envelope import Envelope, Flag, Kind, pack
from aiospin.workers._failure import RemoteError
from aiospin.workers._outbox import Outbox

_log = logging.getLogger("aiospin")
_STARTING_TOLD_AFTER = 10.0  # seconds; then at doubling intervals
_AHEAD = 1e-3  # seconds of work that a worker is given ahead of its turn, so that it need not wait for more
_MOST_AHEAD = 64
_AT_ONCE = 64  # answers that are served in one turn of the loop


class Owner(Protocol):
    """Whom a link tells what has happened."""

    def on_up(self, link: Link) -> None: ...
    def on_done(self, link: Link, call: Call) -> None: ...
    def on_lost(self, link: Link, reason: str) -> None: ...


@dataclass(frozen=True)
class Making:
    """How a worker is made."""

    spec: Spec
    method: str
    capacity: int | str
    policy: Any
    pipeline: int | None
    label: str


class Link:
    """Made and used in the group's loop."""

    def __init__(self, rank: int, making: Making, broadcasts: QueueReader[Any], body: _body.Body, owner: Owner) -> None:
        self.rank = rank
        self.up = False
        self.was_up = False
        self.gone = _loop.here().future()
        self.calls: dict[int, Call] = {}  # handed over and not answered, oldest first
        self._making = making
        self._body = body
        self._owner = owner
        self._broadcasts = broadcasts
        self._is_async = False
        self._most = making.pipeline or 1  # calls that it may have
        self._pace: float | None = None  # seconds that a call takes it
        self._answered_at = 0.0
        self._was_begun = False  # the process has come as far as the code of this package
        self.left = False  # in order, after a SIGTERM, having ended what it had begun
        self._retiring = False
        self._closed = False
        self.failure: BaseException | None = None  # what its import or constructor raised
        self._gone = False
        self._quiet: asyncio.Future[bool] | None = None  # done when the worker owes something again
        self._requests: Queue[Any] = Queue(capacity=making.capacity, policy=making.policy, on_peer_death="wait")
        self._replies: Queue[Any] = Queue(capacity=making.capacity, policy=making.policy, on_peer_death="wait")
        self._outbox = Outbox(self._requests)  # before the worker looks: its reader must find a writer
        self._reader = self._replies.reader(stall_after=math.inf)
        self.process: BaseProcess | None = None
        self._pidfd: int | None = None
        self._began = time.monotonic()
        self._told = _STARTING_TOLD_AFTER
        self._listening: asyncio.Task[None] | None = None
        self._burying: asyncio.Task[None] | None = None
        self._station = _loop.here()

    @property
    def pid(self) -> int:
        """Of its process; 0 before there is one."""
        return 0 if self.process is None or self.process.pid is None else self.process.pid

    async def start(self) -> None:
        """Start the process. OSError when the system cannot."""
        # A worker without work, and work that takes long, are no stalls; want of room is one.
        ends = (self._requests.reader(stall_after=math.inf), self._broadcasts, self._replies.writer())
        self._reader.claim()
        self.process = process = await self._start_process(ends)
        for end in ends:
            end.close()  # these are the worker's now
        self._pidfd = _process.death_of(process)
        self._station.listen(self._death, self._on_end)
        self._station.begin(self, 1.0)
        self._listening = asyncio.ensure_future(self._listen())

    async def _start_process(self, ends: tuple[Any, Any, Any]) -> BaseProcess:
        making = self._making
        name = f"{making.label}-{self.rank}"
        if making.method == "fork":
            # Here and now: a child inherits the locks that other threads hold, and this loop's thread holds none.
            return _process.start(making.method, name, making.spec, ends)
        starting = asyncio.ensure_future(asyncio.to_thread(_process.start, making.method, name, making.spec, ends))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._adopt)  # it is being started already
            await asyncio.wait([starting])
            raise

    @property
    def _death(self) -> int:
        """The descriptor that tells of the process's end."""
        assert self.process is not None
        return self.process.sentinel if self._pidfd is None else self._pidfd

    def _adopt(self, starting: asyncio.Future[BaseProcess]) -> None:
        if starting.exception() is None:
            self.process = starting.result()
            if self._closed:
                _process.reap(self.process)

    # sending

    def ask(self, call: Call) -> None:
        """Hand a call over."""
        self._send(call.pieces(), call)

    def announce(self, call: Call) -> None:
        """Hand over a call that lies in the broadcast queue."""
        self._send(pack(Kind.BROADCAST, call.id), call)

    def _send(self, pieces: Sequence[Any], call: Call) -> None:
        self._outbox.send(pieces, call, soon=bool(self.calls))
        self.calls[call.id] = call
        call.deliveries += 1
        call.handed_over_at = time.perf_counter()
        if self._quiet is not None:
            _loop.wake(self._quiet)

    def cancel(self, call: Call) -> None:
        """Ask the worker to give a call up. Its end is reported all the same."""
        if call.id in self.calls:
            self._outbox.send(pack(Kind.CANCEL, call.id), soon=True)

    # receiving

    async def _listen(self) -> None:
        try:
            while True:
                self._serve(await self._reader.acquire_read())  # which lets the loop turn, now and then
                self._serve_some()
                if self.up and not self.calls:
                    # A worker that owes nothing is not waited for: a loop waits best for few.
                    self._quiet = self._station.future()
                    await self._quiet
                    self._quiet = None
        except QueueClosed:
            return
        except AiospinError as error:
            _log.warning(f"worker {self.rank} (pid {self.pid}) is killed: its reply is damaged: {error}")
            self.kill()

    def _serve_some(self) -> bool:
        """What has come, up to a turn's worth. Whether there may be more: a worker can publish as fast as we read."""
        for _ in range(_AT_ONCE):
            slot = self._reader.try_acquire_read()
            if slot is None:
                return False
            self._serve(slot)
        return True

    def _serve(self, slot: ReadSlot) -> None:
        with slot:
            message = Envelope.parse(slot.data)
            kind = message.kind
            call = self.calls.get(message.id)
            if call is None:
                self._hear(message)
                return
            self._answer(call, kind, message)
        if kind != Kind.PART:
            self._done(call)

    def _hear(self, message: Envelope) -> None:
        """What a worker says of itself. Anything else is about a call that has ended."""
        if message.kind == Kind.STARTED:
            self._was_begun = True
        elif message.kind == Kind.READY:
            self.up = not self._gone and not self._retiring
            self.was_up = True
            self._is_async = bool(message.flags & Flag.ASYNC)
            if self._is_async:
                self._most = self._making.pipeline or _MOST_AHEAD
            self._station.end(self)
            self._owner.on_up(self)
        elif message.kind == Kind.FAILED:
            self.failure = _failure.revive(message.body)
        elif message.kind == Kind.LEAVING:
            self.up, self.left = False, True

    def _answer(self, call: Call, kind: int, message: Envelope) -> None:
        if call.sink.done:
            return  # given up
        if kind == Kind.ERROR:
            call.sink.fail(_failure.revive(message.body))
            return
        if kind == Kind.END:
            call.sink.result(None)
            return
        try:
            value = self._body.decode(message.body, message.buffers, own=call.sink.keeps or not call.options.in_place)
        except Exception as error:  # noqa: BLE001 - the caller gets whatever decoding raises
            call.sink.fail(error)
            return
        if kind == Kind.PART:
            call.sink.part(value)
        else:
            call.sink.result(value)

    def _done(self, call: Call) -> None:
        del self.calls[call.id]
        self._outbox.forget(call)
        self._learn_pace(call)
        if self._retiring and not self.calls:
            self.close_requests()
        self._owner.on_done(self, call)

    def _learn_pace(self, call: Call) -> None:
        """What calls take decides how many are given ahead: behind a long one, none should lie."""
        now = time.perf_counter()
        if self._making.pipeline is None and not self._is_async:
            taken = now - max(call.handed_over_at, self._answered_at)
            self._pace = taken if self._pace is None else self._pace + (taken - self._pace) / 8
            self._most = 1 + min(_MOST_AHEAD - 1, int(_AHEAD / self._pace)) if self._pace > 0 else _MOST_AHEAD
        self._answered_at = now

    # the end

    @property
    def room(self) -> bool:
        """Whether it may be given another call: the next one ahead of its turn, or one more beside the others."""
        return self.up and len(self.calls) < self._most

    def started_calls(self) -> list[Call]:
        """Those that a worker which is gone had begun with, as far as can be known."""
        if self.left:
            return []
        begun = [call for call in self.calls.values() if self._outbox.taken(call)]
        return begun if self._is_async else begun[:1]

    def how_the_start_failed(self, reason: str) -> str:
        """In words, of a worker that ended before it was ready."""
        if self.failure is not None:
            kind = "" if isinstance(self.failure, RemoteError) else f"{type(self.failure).__name__}: "
            return f"{kind}{self.failure}"
        if self._was_begun:
            return f"it {reason} while it constructed its object"
        if "exit code" not in reason:
            return f"it {reason} before it ran"
        return f"it {reason} before it ran; is the group made under `if __name__ == '__main__':`?"

    def retire(self) -> None:
        """Give it no more calls, and let it end by itself when it has answered those that it has."""
        self.up, self._retiring = False, True
        if not self.calls:
            self.close_requests()

    def close_requests(self) -> None:
        """Let the worker end by itself when it has answered everything."""
        self._outbox.finish()

    def kill_unless_up(self) -> None:
        """End the process at once if it has no object that wants to be closed."""
        if not self.was_up:
            self.kill()

    def kill(self) -> None:
        """End the process at once."""
        if not self._gone and self.process is not None:
            _process.kill(self.process)

    def _on_end(self) -> None:
        if self._gone or self.process is None:
            return
        self._gone = True
        self.up = False
        self._station.ignore(self._death)
        self._station.end(self)
        self._burying = asyncio.ensure_future(self._bury(self.process))

    async def _bury(self, process: BaseProcess) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        if self._closed:
            return
        try:
            while self._serve_some():  # what it published before it ended counts
                pass
        except QueueClosed:
            pass  # it ended in order
        except AiospinError as error:
            _log.warning(f"a reply of worker {self.rank} (pid {self.pid}) is damaged: {error}")
        finally:
            self._owner.on_lost(self, _process.how_it_ended(process))

    def _look_after(self) -> None:
        """While it starts, which may take minutes, say so."""
        waited = time.monotonic() - self._began
        if waited >= self._told:
            self._told = 2 * waited
            what = "is importing and constructing its object" if self._was_begun else "has not run yet"
            _log.warning(f"worker {self.rank} (pid {self.pid}) {what}, {waited:.0f} s after its start")

    def _abandon(self) -> None:
        """The loop was closed."""
        self.kill()

    def close(self) -> None:
        """Let go of everything, and of the process, which should be gone by now. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._listening is not None:
            self._listening.cancel()
        self._station.end(self)
        self._outbox.close()
        self._reader.close()
        self._requests.close()
        self._replies.close()
        self.calls.clear()
        if self.process is not None:
            if not self._gone:
                self._station.ignore(self._death)
            _process.reap(self.process)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        _loop.wake(self.gone)
