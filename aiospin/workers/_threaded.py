"""A worker without an event loop: one call after the other, in the process's main thread.

Guarantee: a call that was cancelled before its turn is answered without being run; a stream stops at the next part. A
SIGTERM is heard between calls, if the program has no handler of its own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from typing import Any

from aiospin import QueueClosed, QueueReader, QueueWriter
from aiospin.workers import _failure
from aiospin.workers._envelope import Envelope, Flag, Kind, pack
from aiospin.workers._hosted import Hosted
from aiospin.workers._inbox import Inbox


class _Leave(BaseException):
    """Ends a wait for the next call. Not an error, so that nothing but the wait takes it for one."""


class Threaded:
    """Hosts a class without async methods."""

    def __init__(self, hosted: Hosted, requests: QueueReader[Any], replies: QueueWriter[Any]) -> None:
        self._hosted = hosted
        self._inbox = Inbox(requests)
        self._replies = replies
        self._waiting = False
        self._leaving = False

    def serve(self) -> bool:
        """Until the group closes the queue (False) or a SIGTERM comes (True). Then the object is closed."""
        self._listen_to_sigterm()
        self._replies.put(*pack(Kind.READY))
        try:
            while not self._leaving:
                self._wait()
                self._inbox.look()
                self._serve_next()
        except (QueueClosed, _Leave):
            pass
        if self._leaving:
            self._replies.put(*pack(Kind.LEAVING))
        finish = self._hosted.finisher()
        if finish is not None:
            finish()
        return self._leaving

    def _wait(self) -> None:
        if self._inbox:
            return
        self._waiting = True
        try:
            if self._leaving:  # it came just before
                raise _Leave
            while not self._inbox:
                self._inbox.wait()
        finally:
            self._waiting = False

    def _listen_to_sigterm(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: object) -> None:
        self._leaving = True
        if self._waiting:
            self._waiting = False
            raise _Leave

    def _serve_next(self) -> None:
        slot, message, wanted = self._inbox.pop()
        try:
            if wanted:
                if slot is not None:
                    message, slot = self._hosted.keep(message, slot)
                self._serve_one(message)
            else:
                self._hosted.skip(message)
                self._replies.put(*pack(Kind.END, message.id))
        finally:
            del message
            if slot is not None:
                slot.__exit__(None, None, None)

    def _serve_one(self, message: Envelope) -> None:
        slot = None
        try:
            call, slot = self._hosted.open(message)
            result = self._hosted.begin(call)
            if call.flags & Flag.STREAM:
                self._stream(call.id, result)
                return
            body, buffers = self._hosted.body.encode(result)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._replies.put(*pack(Kind.ERROR, message.id, body=_failure.describe(error)))
        else:
            self._replies.put(*pack(Kind.RESULT, message.id, body=body, buffers=buffers))
        finally:
            if slot is not None:
                slot.__exit__(None, None, None)

    def _stream(self, number: int, parts: Iterable[Any]) -> None:
        iterator = iter(parts)
        try:
            for part in iterator:
                body, buffers = self._hosted.body.encode(part)
                self._replies.put(*pack(Kind.PART, number, body=body, buffers=buffers))
                self._inbox.look(number)
                if self._inbox.is_cancelled(number):
                    break
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
        self._replies.put(*pack(Kind.END, number))
