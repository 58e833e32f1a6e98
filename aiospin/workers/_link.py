"""One incarnation of a worker, as its group sees it: the process, its queue, its replies, and the calls it has.

The requests' queue and the replies' are made for this incarnation and end with it, so nothing of a dead worker is ever
mistaken for its successor's.

Guarantee: `on_up`, `on_failed` or `on_lost` is called once each at most, and `on_lost` after every reply that the worker
published has been served. Runs in one loop.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from aiospin import AiospinError, Full, PeerDied, Queue, QueueClosed, QueueReader, ReadSlot, _loop
from aiospin._statistics import acquired_by
from aiospin.workers import _body, _failure, _process
from aiospin.workers._calls import Call
from aiospin.workers._child import Spec
from aiospin.workers._envelope import Envelope, Flag, Kind, pack

_log = logging.getLogger("aiospin")
_STARTING_TOLD_AFTER = 10.0  # seconds; then at doubling intervals


class Owner(Protocol):
    """Whom a link tells what has happened."""

    def on_up(self, link: Link) -> None: ...
    def on_room(self, link: Link) -> None: ...
    def on_lost(self, link: Link, reason: str, failure: BaseException | None) -> None: ...


@dataclass(frozen=True)
class Making:
    """How a worker is made."""

    spec: Spec
    method: str
    threads: int | None
    capacity: int | str
    policy: Any
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
        self._ends_at: dict[int, int] = {}  # of each call, where in the queue its message ends
        self._unsent: collections.deque[tuple[Sequence[Any], Call | None]] = collections.deque()
        self._sending: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._gone = False
        self._expecting = asyncio.Event()
        self._expecting.set()  # a start is to be reported
        self._requests: Queue[Any] = Queue(capacity=making.capacity, policy=making.policy, on_peer_death="wait")
        self._replies: Queue[Any] = Queue(capacity=making.capacity, policy=making.policy, on_peer_death="wait")
        self._writer = self._requests.writer()
        self._reader = self._replies.reader()
        self.process: BaseProcess | None = None
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
        ends = (self._requests.reader(), self._broadcasts, self._replies.writer())
        making = self._making
        self._writer.__enter__()  # before the worker looks: its reader must find a writer
        self._reader.__enter__()
        self.process = await asyncio.to_thread(
            _process.start, making.method, f"{making.label}-{self.rank}", making.spec, ends, making.threads
        )
        for end in ends:
            end.close()  # these are the worker's now
        self._station.listen(self.process.sentinel, self._on_end)
        self._station.begin(self, 1.0)
        self._listening = asyncio.ensure_future(self._listen())

    # sending

    def ask(self, call: Call) -> None:
        """Hand a call over."""
        self.calls[call.id] = call
        call.deliveries += 1
        self._send(call.pieces(), call)

    def announce(self, call: Call) -> None:
        """Hand over a call that lies in the broadcast queue."""
        self.calls[call.id] = call
        call.deliveries += 1
        self._send(pack(Kind.BROADCAST, call.id), call)

    def cancel(self, call: Call) -> None:
        """Ask the worker to give a call up. Its end is reported all the same."""
        if call.id in self.calls:
            self._send(pack(Kind.CANCEL, call.id), None)

    def _send(self, pieces: Sequence[Any], call: Call | None) -> None:
        if not self._expecting.is_set():
            self._expecting.set()
        if self._sending is None:
            try:
                self._writer.put_nowait(*pieces)
            except Full:
                pass
            else:
                self._sent(call)
                return
        self._unsent.append((pieces, call))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._unsent:
                pieces, call = self._unsent[0]
                await self._writer.aput(*pieces)
                self._unsent.popleft()
                self._sent(call)
        except QueueClosed:
            return
        finally:
            self._sending = None

    def _sent(self, call: Call | None) -> None:
        if call is not None:
            self._ends_at[call.id] = self._writer._cursor

    # receiving

    async def _listen(self) -> None:
        try:
            while True:
                # A worker that owes nothing is not waited for: a loop waits best for few.
                await self._expecting.wait()
                self._serve(await self._reader.acquire_read())
                self._serve_all()
                if self.up and not self.calls:
                    self._expecting.clear()
        except (QueueClosed, PeerDied):
            return

    def _serve_all(self) -> None:
        while (slot := self._reader.try_acquire_read()) is not None:
            self._serve(slot)

    def _serve(self, slot: ReadSlot) -> None:
        with slot:
            message = Envelope.parse(slot.data)
            kind, number = message.kind, message.id
            if kind == Kind.STARTED:
                return
            if kind == Kind.READY:
                self.up = self.was_up = not self._gone
                self._is_async = bool(message.flags & Flag.ASYNC)
                self._station.end(self)
                self._owner.on_up(self)
                return
            if kind == Kind.FAILED:
                self._failure = _failure.revive(message.body)
                return
            call = self.calls.get(number)
            if call is None:
                return
            self._answer(call, kind, message)
        if kind != Kind.PART:
            self._done(call)

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
            value = self._body.decode(message.body, message.buffers)
        except Exception as error:  # noqa: BLE001 - the caller gets whatever decoding raises
            call.sink.fail(error)
            return
        if kind == Kind.PART:
            call.sink.part(value)
        else:
            call.sink.result(value)

    def _done(self, call: Call) -> None:
        del self.calls[call.id]
        self._ends_at.pop(call.id, None)
        call.end()
        self._owner.on_room(self)

    # the end

    def started_calls(self) -> list[Call]:
        """Those that a worker which is gone had begun with, as far as can be known."""
        acquired = acquired_by(self._writer._segment, 0)
        taken = [call for call in self.calls.values() if self._ends_at.get(call.id, acquired + 1) <= acquired]
        return taken if self._is_async else taken[:1]

    def close_requests(self) -> None:
        """Let the worker end by itself when it has answered everything."""
        self._writer.close()

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None and self.process.is_alive():
            self.process.kill()

    def terminate(self) -> None:
        """Ask the process to end with SIGTERM."""
        if self.process is not None and self.process.is_alive():
            self.process.terminate()

    def _on_end(self) -> None:
        if self._gone or self.process is None:
            return
        self._gone = True
        self.up = False
        self._station.ignore(self.process.sentinel)
        self._station.end(self)
        self._burying = asyncio.ensure_future(self._bury(self.process))

    async def _bury(self, process: BaseProcess) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        try:
            self._serve_all()  # what it published before it ended counts
        except QueueClosed:
            pass  # it ended in order
        except AiospinError as error:
            _log.warning(f"a reply of worker {self.rank} (pid {self.pid}) is damaged: {error}")
        reason = _process.how_it_ended(process)
        self._owner.on_lost(self, reason, self._failure)
        _loop.wake(self.gone)

    def _look_after(self) -> None:
        """While it starts, which may take minutes, say so."""
        waited = time.monotonic() - self._began
        if waited >= self._told:
            self._told = 2 * waited
            _log.info(f"{self._making.label} {self.rank} (pid {self.pid}) has been starting for {waited:.0f} s")

    def _abandon(self) -> None:
        """The loop was closed."""
        self.kill()

    def close(self) -> None:
        """Let go of everything. The process must be gone."""
        for task in (self._listening, self._sending):
            if task is not None:
                task.cancel()
        self._writer.close()
        self._reader.close()
        self._requests.close()
        self._replies.close()
        if self.process is not None:
            self.process.join()
            self.process.close()
