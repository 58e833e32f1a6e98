"""A worker in an event loop: every call begins at once, and async methods run beside each other.

Guarantee: cancelling a call cancels its task, and its end is reported. A SIGTERM lets what has begun end, if the
program has no handler of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
import threading
from typing import Any, Final

from aiospin import QueueClosed, QueueReader, QueueWriter, ReadSlot, _loop
from aiospin.workers import _failure
from aiospin.workers._envelope import Envelope, Flag, Kind, pack
from aiospin.workers._hosted import Hosted

_AT_ONCE: Final = 64


class Looped:
    """Hosts a class with async methods. Its sync methods run in the loop's thread."""

    def __init__(self, hosted: Hosted, requests: QueueReader[Any], replies: QueueWriter[Any]) -> None:
        self._hosted = hosted
        self._requests = requests
        self._replies = replies
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: set[int] = set()
        self._cancelled: set[int] = set()
        self._leaving = False
        self._over = False

    async def serve(self) -> bool:
        """Until the group closes the queue (False) or a SIGTERM comes (True), and what has begun has ended."""
        reading = asyncio.ensure_future(self._read())
        try:
            return await self._serve(reading)
        finally:
            self._over = True

    async def _serve(self, reading: asyncio.Task[None]) -> bool:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            _loop.here().on_signal(signal.SIGTERM, self._leave, reading)
        await self._send(pack(Kind.READY, flags=Flag.ASYNC))
        await asyncio.wait([reading])
        if not reading.cancelled():
            reading.result()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._leaving:
            await self._send(pack(Kind.LEAVING))
        finish = self._hosted.finisher()
        if finish is not None:
            outcome = finish()
            if inspect.isawaitable(outcome):
                await outcome
        return self._leaving

    def _leave(self, reading: asyncio.Task[None]) -> None:
        self._leaving = True
        reading.cancel()

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._requests.acquire_read())
                for _ in range(_AT_ONCE):  # no call begins before this turn's end, so one that was given up never does
                    slot = self._requests.try_acquire_read()
                    if slot is None:
                        break
                    self._take(slot)
        except QueueClosed:
            return

    def _take(self, slot: ReadSlot) -> None:
        message = Envelope.parse(slot.data)
        if message.kind == Kind.CANCEL:
            task = self._tasks.get(message.id)
            if task is not None:
                self._cancelled.add(message.id)
                if message.id in self._begun:
                    task.cancel()  # one that has not begun would never come to its end
        if message.kind not in (Kind.CALL, Kind.BROADCAST):
            del message
            slot.release()
            return
        message, kept = self._hosted.keep(message, slot)
        task = asyncio.ensure_future(self._serve_one(kept, message))
        self._tasks[message.id] = task
        task.add_done_callback(functools.partial(self._forget, message.id))

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        self._cancelled.discard(number)
        if not task.cancelled():
            task.exception()  # SystemExit, which ends the process, needs no words of the loop's
        self._begun.discard(number)

    async def _serve_one(self, slot: ReadSlot | None, message: Envelope) -> None:
        number = message.id
        self._begun.add(number)
        inner: ReadSlot | None = None
        try:
            if number in self._cancelled:
                self._hosted.skip(message)
                await self._send(pack(Kind.END, number))
                return
            call, inner = self._hosted.open(message)
            result = self._hosted.begin(call)
            if call.flags & Flag.STREAM:
                await self._stream(number, result)
                return
            if inspect.isawaitable(result):
                result = await result
            body, buffers = self._hosted.body.encode(result)
            await self._send(pack(Kind.RESULT, number, body=body, buffers=buffers))
        except asyncio.CancelledError as error:
            if number in self._cancelled:
                await self._send(pack(Kind.END, number))
            elif not self._over:  # the method's own
                await self._send(pack(Kind.ERROR, number, body=_failure.describe(error)))
            raise
        except (SystemExit, KeyboardInterrupt):
            self._over = True  # the loop ends, and cancels all that runs
            raise
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            await self._send(pack(Kind.ERROR, number, body=_failure.describe(error)))
        finally:
            for held in (inner, slot):
                if held is not None:
                    held.__exit__(None, None, None)

    async def _stream(self, number: int, parts: Any) -> None:
        if hasattr(parts, "__aiter__"):
            try:
                async for part in parts:
                    await self._send_part(number, part)
            finally:
                close = getattr(parts, "aclose", None)
                if close is not None:
                    await close()
        else:
            for part in parts:
                await self._send_part(number, part)
        await self._send(pack(Kind.END, number))

    async def _send_part(self, number: int, part: Any) -> None:
        body, buffers = self._hosted.body.encode(part)
        await self._send(pack(Kind.PART, number, body=body, buffers=buffers))

    async def _send(self, pieces: list[Any]) -> None:
        await self._replies.aput(*pieces)
