"""aiospin: owned bytes by put and get, leases for what is large, through blocking calls and awaited on both loops."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from aiospin import Queue, QueueReader, QueueWriter, WaitSet
from aiospin.bench.contract import KINDS, End, Line, Plan, Subject

LEASED_FROM = 4096
"""bytes from which on a reader looks at a message where it lies, rather than copying it out"""

Ticket = tuple["QueueWriter[bytes] | None", "QueueReader[bytes] | None"]


@dataclass(frozen=True)
class Aiospin(Subject):
    @contextlib.contextmanager
    def line(self, plan: Plan) -> Generator[Line, None, None]:
        with contextlib.ExitStack() as stack:
            there = stack.enter_context(Queue[bytes](readers=plan.readers, capacity=plan.room))
            back = stack.enter_context(Queue[bytes](readers=1, capacity=plan.room)) if plan.answers else None
            yield Line(
                (there.writer(), back.reader(0) if back else None),
                [(back.writer() if back else None, there.reader(rank)) for rank in range(plan.readers)],
            )

    def open(self, ticket: Ticket, plan: Plan) -> Any:
        return self._open_blocking(ticket, plan) if self.kind == "sync" else self._open_awaited(ticket, plan)

    @contextlib.contextmanager
    def _open_blocking(self, ticket: Ticket, plan: Plan) -> Generator[End, None, None]:
        writer, reader = ticket
        with writer or contextlib.nullcontext(), reader or contextlib.nullcontext():
            calls: dict[str, Any] = {}
            if writer is not None:
                calls |= {"send": writer.put, "send_many": writer.put_many}
            if reader is not None:
                calls |= {"receive": reader.get, "receive_many": reader.get_many, "member": reader}
                if plan.nbytes >= LEASED_FROM:
                    calls |= {"consume": _look(reader)}
            yield End(**calls)

    @contextlib.asynccontextmanager
    async def _open_awaited(self, ticket: Ticket, plan: Plan) -> AsyncGenerator[End, None]:
        writer, reader = ticket
        with writer or contextlib.nullcontext(), reader or contextlib.nullcontext():
            calls: dict[str, Any] = {}
            if writer is not None:
                calls |= {"send": writer.aput, "send_many": writer.aput_many}
            if reader is not None:
                calls |= {"receive": reader.aget, "receive_many": reader.aget_many, "member": reader}
                if plan.nbytes >= LEASED_FROM:
                    calls |= {"consume": _look_awaited(reader)}
            yield End(**calls)

    @contextlib.contextmanager
    def wait_for_any(self, ends: Sequence[End]) -> Generator[Callable[[], Any], None, None]:
        with WaitSet([end.member for end in ends]) as members:
            yield members.wait_sync if self.kind == "sync" else members.wait


def _look(reader: QueueReader[bytes]) -> Callable[[], None]:
    def consume() -> None:
        with reader.acquire_read():
            pass

    return consume


def _look_awaited(reader: QueueReader[bytes]) -> Callable[[], Any]:
    async def consume() -> None:
        (await reader.acquire_read()).release()

    return consume


SUBJECTS = tuple(Aiospin(f"aiospin {kind}", kind, batches=True, waits_for_many=True) for kind in KINDS)
