"""The worker's process: constructs the object, runs its methods as calls come, answers.

A class with async methods is hosted in an event loop, where every call begins at once; its sync methods run in the loop's
thread. Any other class is hosted without a loop, one call after the other, which is the faster way.

Guarantee: the process ends when the group closes its queue, or when the group's process dies, whatever a method does.
Ctrl-C is the group's affair; SIGTERM and everything else are left as they are.
Assumption: it is started with SIGINT blocked, so that none can hit it before it is ignored.
"""

from __future__ import annotations

import asyncio
import collections
import inspect
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any, TypeVar

from aiospin import Full, PeerDied, QueueClosed, QueueReader, QueueWriter, ReadSlot
from aiospin.workers import _body, _failure
from aiospin.workers._envelope import Envelope, Flag, Kind, pack

T = TypeVar("T")

ORPHANED = 3  # exit code of a worker whose group died under it


@dataclass(frozen=True)
class Spec:
    """What a worker is made of. Travels pickled, to be opened only once the process has been set up."""

    construct: bytes
    """Pickled (factory, args, kwargs)."""
    codec: str
    cpus: frozenset[int] | None


def main(spec: Spec, requests: QueueReader[Any], broadcasts: QueueReader[Any], replies: QueueWriter[Any]) -> None:
    """The process's entry point."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_the_group, name="aiospin-orphan-watch", daemon=True).start()
    if spec.cpus is not None:
        os.sched_setaffinity(0, spec.cpus)
    with requests, broadcasts, replies:
        try:
            replies.put(*pack(Kind.STARTED))
            try:
                factory, args, kwargs = pickle.loads(spec.construct)
                target = factory(*args, **kwargs)
            except BaseException as error:
                replies.put(*pack(Kind.FAILED, body=_failure.describe(error)))
                raise SystemExit(1) from None
            run(target, requests, broadcasts, replies, codec=spec.codec)
        except (QueueClosed, PeerDied):
            return  # the group closed or died


def run(
    target: Any,
    requests: QueueReader[Any],
    broadcasts: QueueReader[Any],
    replies: QueueWriter[Any],
    *,
    codec: str = "msgpack",
) -> None:
    """Host an object: answer calls of its public methods until the group closes the queue.

    Then its `close()`, or `aclose()`, runs if it has one. PeerDied when the group's process died.
    """
    hosted = _Hosted(target, _body.find(codec), broadcasts)
    replies.put(*pack(Kind.READY, flags=Flag.ASYNC if hosted.is_async else 0))
    if hosted.is_async:
        _run_loop(_Loop(hosted, requests, replies).serve())
    else:
        _Thread(hosted, requests, replies).serve()


def _end_with_the_group() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        # A method may be running, and must not go on for nobody.
        os._exit(ORPHANED)


def _run_loop(main: Any) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


class _Hosted:
    """The object and its calls, whoever runs them."""

    def __init__(self, target: Any, body: _body.Body, broadcasts: QueueReader[Any]) -> None:
        self._target = target
        self.body = body
        self._broadcasts = broadcasts
        public = [name for name in dir(type(target)) if not name.startswith("_")]
        self.is_async = any(
            inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
            for member in (getattr(type(target), name, None) for name in public)
        )

    def begin(self, call: Envelope) -> Any:
        """Call the method. TimeoutError for a call whose time is up already."""
        if call.deadline_ns and time.monotonic_ns() >= call.deadline_ns:
            raise TimeoutError(f"the deadline of {call.name}() passed before it began")
        if call.name.startswith("_"):
            raise AttributeError(f"{call.name!r} is not a public method")
        args, kwargs = self.body.decode(call.body, call.buffers)
        return getattr(self._target, call.name)(*args, **kwargs)

    def open(self, message: Envelope) -> tuple[Envelope, ReadSlot | None]:
        """The call itself, and the slot that holds it if it lies in the broadcast queue."""
        if message.kind != Kind.BROADCAST:
            return message, None
        while True:
            # It was published before it was announced. What lies before it was published while this rank was joining.
            slot = self._broadcasts.try_acquire_read()
            if slot is None:
                raise LookupError(f"broadcast {message.id} is not there")
            call = Envelope.parse(slot.data)
            if call.id == message.id:
                return call, slot
            del call
            slot.release()

    def finisher(self) -> Callable[[], Any] | None:
        """What the object wants to be called at its end."""
        found = getattr(self._target, "aclose" if self.is_async else "close", None)
        return found or getattr(self._target, "close", None)


class _Thread:
    """Hosts a class without async methods: one call after the other, in this thread."""

    def __init__(self, hosted: _Hosted, requests: QueueReader[Any], replies: QueueWriter[Any]) -> None:
        self._hosted = hosted
        self._requests = requests
        self._replies = replies
        self._ahead: collections.deque[ReadSlot] = collections.deque()  # taken while a stream looked for its cancel

    def serve(self) -> None:
        """Until the queue ends."""
        try:
            while True:
                with self._ahead.popleft() if self._ahead else self._requests.acquire_read() as slot:
                    self._serve_one(Envelope.parse(slot.data))
        except QueueClosed:
            finish = self._hosted.finisher()
            if finish is not None:
                finish()

    def _serve_one(self, message: Envelope) -> None:
        if message.kind not in (Kind.CALL, Kind.BROADCAST):
            return  # a cancel that comes when its call has run
        slot: ReadSlot | None = None
        try:
            call, slot = self._hosted.open(message)
            result = self._hosted.begin(call)
            if call.flags & Flag.STREAM:
                self._stream(call.id, result)
                return
            body, buffers = self._hosted.body.encode(result)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self._replies.put(*pack(Kind.ERROR, message.id, body=_failure.describe(error)))
        else:
            self._replies.put(*pack(Kind.RESULT, message.id, body=body, buffers=buffers))
        finally:
            if slot is not None:
                slot.__exit__(None, None, None)

    def _stream(self, number: int, parts: Iterable[Any]) -> None:
        for part in parts:
            body, buffers = self._hosted.body.encode(part)
            self._replies.put(*pack(Kind.PART, number, body=body, buffers=buffers))
            if self._is_cancelled(number):
                break
        self._replies.put(*pack(Kind.END, number))

    def _is_cancelled(self, number: int) -> bool:
        while (slot := self._requests.try_acquire_read()) is not None:
            message = Envelope.parse(slot.data)
            kind, cancelled = message.kind, message.id
            del message
            if kind != Kind.CANCEL:
                self._ahead.append(slot)
                continue
            slot.release()
            if cancelled == number:
                return True
        return False


class _Loop:
    """Hosts a class with async methods: every call is a task."""

    def __init__(self, hosted: _Hosted, requests: QueueReader[Any], replies: QueueWriter[Any]) -> None:
        self._hosted = hosted
        self._requests = requests
        self._replies = replies
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until the queue ends, and every call that has begun with it."""
        try:
            while True:
                self._take(await self._requests.acquire_read())
        except QueueClosed:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            finish = self._hosted.finisher()
            if finish is not None:
                outcome = finish()
                if inspect.isawaitable(outcome):
                    await outcome

    def _take(self, slot: ReadSlot) -> None:
        message = Envelope.parse(slot.data)
        if message.kind == Kind.CANCEL:
            task = self._tasks.get(message.id)
            if task is not None:
                task.cancel()
        if message.kind not in (Kind.CALL, Kind.BROADCAST):
            del message
            slot.release()
            return
        task = asyncio.get_running_loop().create_task(self._serve_one(slot, message))
        self._tasks[message.id] = task
        task.add_done_callback(lambda _, number=message.id: self._tasks.pop(number, None))

    async def _serve_one(self, slot: ReadSlot, message: Envelope) -> None:
        number = message.id
        inner: ReadSlot | None = None
        try:
            call, inner = self._hosted.open(message)
            result = self._hosted.begin(call)
            if call.flags & Flag.STREAM:
                await self._stream(number, result)
                return
            if inspect.isawaitable(result):
                result = await result
            body, buffers = self._hosted.body.encode(result)
            await self._send(pack(Kind.RESULT, number, body=body, buffers=buffers))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the caller gets it
            await self._send(pack(Kind.ERROR, number, body=_failure.describe(error)))
        finally:
            for held in (inner, slot):
                if held is not None:
                    held.__exit__(None, None, None)

    async def _stream(self, number: int, parts: Any) -> None:
        if hasattr(parts, "__aiter__"):
            async for part in parts:
                await self._send_part(number, part)
        else:
            for part in parts:
                await self._send_part(number, part)
        await self._send(pack(Kind.END, number))

    async def _send_part(self, number: int, part: Any) -> None:
        body, buffers = self._hosted.body.encode(part)
        await self._send(pack(Kind.PART, number, body=body, buffers=buffers))

    async def _send(self, pieces: list[Any]) -> None:
        try:
            self._replies.put_nowait(*pieces)
        except Full:
            await self._replies.aput(*pieces)
