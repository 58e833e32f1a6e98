"""A unix socket through asyncio's StreamReader and StreamWriter, on uvloop and asyncio: what async programs use."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncGenerator, Generator
from typing import Any

from aiospin.bench.contract import End, Plan
from aiospin.bench.fan import AwaitedPairs

LIMIT = 1 << 16


class UnixStream(AwaitedPairs):
    @contextlib.contextmanager
    def pair(self, plan: Plan) -> Generator[tuple[Any, Any], None, None]:
        writer, reader = socket.socketpair()
        with reader, writer:
            yield writer, reader

    @contextlib.asynccontextmanager
    async def enter(self, ticket: socket.socket, plan: Plan) -> AsyncGenerator[End, None]:
        # The limit is what a reader buffers before it stops the sender; a message that exceeds it comes in pieces.
        reader, writer = await asyncio.open_unix_connection(sock=ticket, limit=max(LIMIT, plan.nbytes))
        write, drain = writer.write, writer.drain

        async def send(payload: bytes) -> None:
            write(payload)
            await drain()

        try:
            yield End(send, functools.partial(reader.readexactly, plan.nbytes))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


SUBJECTS = tuple(UnixStream(f"stream {kind}", kind) for kind in ("uvloop", "asyncio"))
