"""The object that a worker hosts, and how a call becomes a call of its method."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any, Final, cast

from aiospin import QueueReader, ReadSlot
from aiospin.workers import _body
from aiospin.workers._envelope import Envelope, Flag, Kind

_SMALL: Final = 65536  # bytes


def own(slot: ReadSlot) -> Envelope:
    """The message in memory of its own. Its slot is given back when the last view of it dies."""
    message = Envelope.parse(memoryview(bytes(slot.data)))
    slot.__exit__(None, None, None)
    return message


class Hosted:
    """The object and its calls, whoever runs them."""

    def __init__(self, target: Any, body: _body.Body, broadcasts: QueueReader[Any]) -> None:
        self._target = target
        self.body = body
        self._broadcasts = broadcasts
        kind = cast("type[object]", type(target))
        members = [getattr(kind, name, None) for name in dir(kind) if not name.startswith("_")]
        self.is_async = any(
            inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member) for member in members
        )

    def begin(self, call: Envelope) -> Any:
        """Call the method. TimeoutError for a call whose time is up already, AttributeError for what is not public."""
        if call.deadline_ns and time.monotonic_ns() >= call.deadline_ns:
            raise TimeoutError(f"the deadline of {call.name}() passed before it began")
        if call.name.startswith("_"):
            raise AttributeError(f"{call.name!r} is not a public method")
        args, kwargs = self.body.decode(call.body, call.buffers)
        return getattr(self._target, call.name)(*args, **kwargs)

    def keep(self, message: Envelope, slot: ReadSlot) -> tuple[Envelope, ReadSlot | None]:
        """The message where it lies, and its slot; or a copy, and None, if it should not take up room for long.

        Room is given back in order: behind a slot that is held, that of others is not. A stream may last for ever, and
        objects like to keep small things; to copy what is small costs less than to wait.
        """
        if message.flags & Flag.STREAM or len(slot.data) <= _SMALL:
            return own(slot), None
        return message, slot

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
                return self.keep(call, slot)
            del call
            slot.release()

    def skip(self, message: Envelope) -> None:
        """Make room for what comes after a call that is not run."""
        call, slot = self.open(message)
        del call
        if slot is not None:
            slot.release()

    def finisher(self) -> Callable[[], Any] | None:
        """What the object wants to be called at its end."""
        found = getattr(self._target, "aclose" if self.is_async else "close", None)
        return found or getattr(self._target, "close", None)
