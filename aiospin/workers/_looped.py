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
from typing import Any

from aiospin import Full, QueueClosed, QueueReader, QueueWriter, ReadSlot, _loop
from aiospin.workers import _failure
from aiospin.workers._envelope import Envelope, Flag, Kind, pack
from aiospin.workers._hosted import Hosted


class Looped:
    """Hosts a class with async methods. Its sync methods run in the loop's thread."""

    def __init__(self, hosted: Hosted, requests: QueueReader[Any], replies: QueueWriter[Any]) -> None:
        self._hosted = hosted
        self._requests = requests
        self._replies = replies
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving = False

    async def serve(self) -> bool:
        """Until the group closes the queue (False) or a SIGTERM comes (True), and what has begun has ended."""
        reading = asyncio.ensure_future(self._read())
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            _loop.here().on_signal(signal.SIGTERM, self._leave, reading)
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
        except QueueClosed:
            return

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
        task = asyncio.ensure_future(self._serve_one(slot, message))
        self._tasks[message.id] = task
        task.add_done_callback(functools.partial(self._forget, message.id))

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]

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
        except asyncio.CancelledError:
            await self._send(pack(Kind.END, number))
            raise
        except Exception as error:  # noqa: BLE001 - the caller gets it
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
        try:
            self._replies.put_nowait(*pieces)
        except Full:
            await self._replies.aput(*pieces)
