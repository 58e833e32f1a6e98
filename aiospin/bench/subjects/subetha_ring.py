"""subetha-ipc: its adaptive ring, which carries frames of any size up to a limit, and its notifiers to sleep on.

A broadcast goes through its BroadcastRing, whose slots hold up to 52 bytes, with the same notifiers. A full ring is
waited for by looking again, since the package has nothing better for writers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

from aiospin.bench.contract import End, Line, Plan, Subject, imported

SLOTS = 1024
FRAME = 8192
"""bytes of the largest frame of a ring"""


@dataclass(frozen=True)
class Subetha(Subject):
    @contextlib.contextmanager
    def line(self, plan: Plan) -> Generator[Line, None, None]:
        subetha = imported("subetha")
        with tempfile.TemporaryDirectory(dir=plan.folder) as folder, contextlib.ExitStack() as stack:
            ring = subetha.Ring if plan.readers == 1 else subetha.BroadcastRing
            names = ("there", "back") if plan.answers else ("there",)
            for name in names:
                stack.enter_context(ring(f"{folder}/{name}", SLOTS))
            there, back = f"{folder}/there", f"{folder}/back" if plan.answers else None
            yield Line((there, back), [(back, there)] * plan.readers)

    def open(self, ticket: Any, plan: Plan) -> Any:
        return self._open_blocking(ticket, plan) if self.kind == "sync" else self._open_awaited(ticket, plan)

    @contextlib.contextmanager
    def _open_blocking(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        subetha = imported("subetha")
        outgoing, incoming = ticket
        with contextlib.ExitStack() as stack:
            calls: dict[str, Callable[..., Any]] = {}
            if outgoing is not None:
                put, signal = _sending(subetha, stack, outgoing, plan)

                def send(payload: bytes) -> None:
                    while not put(payload):
                        os.sched_yield()
                    signal()

                calls |= {"send": send}
            if incoming is not None:
                pop, notifier = _receiving(subetha, stack, incoming, plan)
                wait, drain = notifier.wait, notifier.drain

                def receive() -> Any:
                    while (message := pop()) is None:
                        wait()
                        drain()
                    return message

                calls |= {"receive": receive}
            yield End(**calls)

    @contextlib.asynccontextmanager
    async def _open_awaited(self, ticket: Any, plan: Plan) -> AsyncGenerator[End, None]:
        subetha = imported("subetha")
        aio = imported("subetha.aio")
        outgoing, incoming = ticket
        with contextlib.ExitStack() as stack:
            calls: dict[str, Callable[..., Any]] = {}
            if outgoing is not None:
                put, signal = _sending(subetha, stack, outgoing, plan)

                async def send(payload: bytes) -> None:
                    while not put(payload):
                        await asyncio.sleep(0)
                    signal()

                calls |= {"send": send}
            if incoming is not None:
                pop, notifier = _receiving(subetha, stack, incoming, plan)

                async def receive() -> Any:
                    while (message := pop()) is None:
                        await aio.wait(notifier)
                        notifier.drain()
                    return message

                calls |= {"receive": receive}
            yield End(**calls)


def _sending(subetha: Any, stack: contextlib.ExitStack, path: str, plan: Plan) -> tuple[Any, Any]:
    """The calls that put one message, and that wake whoever waits for it."""
    signal = subetha.NotifierSet(f"{path}.bells").signal
    if plan.readers > 1:
        ring = stack.enter_context(subetha.BroadcastRing.open(path, SLOTS))
        ring.wait_for_consumers(plan.readers, timeout=10.0)
        return ring.push, signal
    ring = stack.enter_context(subetha.Ring.open(path, SLOTS))
    return functools.partial(ring.send_frame, ring.register_producer()), signal


def _receiving(subetha: Any, stack: contextlib.ExitStack, path: str, plan: Plan) -> tuple[Any, Any]:
    """The call that takes one message or None, and the notifier that a put signals."""
    notifier = subetha.NotifierSet(f"{path}.bells").attach()
    if plan.readers > 1:
        ring = stack.enter_context(subetha.BroadcastRing.open(path, SLOTS))
        recv, consumer, nbytes = ring.recv, ring.register_consumer(), plan.nbytes

        def pop() -> bytes | None:
            item: bytes | None = recv(consumer)  # a whole slot, whatever was put into it
            return None if item is None else item[:nbytes]

        return pop, notifier
    ring = stack.enter_context(subetha.Ring.open(path, SLOTS))
    return functools.partial(ring.recv_frame, ring.register_consumer()), notifier


SUBJECTS = tuple(
    Subetha(f"subetha {kind}", kind, needs="subetha", package="subetha-ipc", python=(3, 11), largest=FRAME)
    for kind in ("sync", "asyncio")
)
