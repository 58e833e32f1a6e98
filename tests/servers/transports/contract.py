"""What a transport is: an awaited call to one of N worker processes that all host the same model.

Each transport is written as its competent user would write it for a server: workers are spawned, the model is made once
in each of them, requests go to whichever worker is free, and many may be under way at once. The payload is bytes, as a
web framework hands a request's body over; what a worker makes of it, and what travels, is the transport's affair.

Guarantee: `call` returns what the model made of this payload, and nothing of another call.
Assumption: a transport is entered once, and used from the loop that it was entered in.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol


class Transport(Protocol):
    """N workers behind an awaited call."""

    async def __aenter__(self) -> Transport:
        """Start the workers; each has made its model when this returns."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers. No call may be under way."""

    async def call(self, payload: bytes) -> int:
        """What `NoModel.answer` returns."""

    @property
    def pids(self) -> Sequence[int]:
        """The workers' processes."""


class NoModel:
    """Stands for a model that costs nothing, so that only the way to it and back remains."""

    def answer(self, payload: bytes | bytearray | memoryview) -> int:
        """The payload's length, and its first and last byte: enough to see that it came."""
        return len(payload) << 16 | payload[0] << 8 | payload[-1]
