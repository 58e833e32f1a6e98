"""The object that a worker hosts, and how a call becomes a call of its method."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from aiospin import QueueReader, ReadSlot
from aiospin.workers import _body
from aiospin.workers._envelope import Envelope, Kind


class Hosted:
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
        """Call the method. TimeoutError for a call whose time is up already, AttributeError for what is not public."""
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
