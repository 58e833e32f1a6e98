"""An executor's thread around a blocking receive: how an async program waits for what knows no event loop.

The transport is a duplex multiprocessing.Pipe, with a thread for each reader. Sending is done in the loop's own thread,
which is quicker, and blocks the loop where the pipe is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from aiospin.bench.contract import End, Plan
from aiospin.bench.fan import AwaitedPairs


class Executor(AwaitedPairs):
    @contextlib.contextmanager
    def pair(self, plan: Plan) -> Generator[tuple[Any, Any], None, None]:
        reader, writer = multiprocessing.Pipe()
        with reader, writer:
            yield writer, reader

    @contextlib.asynccontextmanager
    async def enter(self, ticket: Connection, plan: Plan) -> AsyncGenerator[End, None]:
        run_in_executor = asyncio.get_running_loop().run_in_executor
        send_bytes, recv_bytes = ticket.send_bytes, ticket.recv_bytes
        thread = ThreadPoolExecutor(1)

        async def send(payload: bytes) -> None:
            send_bytes(payload)

        def receive() -> Any:
            return run_in_executor(thread, recv_bytes)

        try:
            yield End(send, receive)
        finally:
            with socket.socket(fileno=os.dup(ticket.fileno())) as wake, contextlib.suppress(OSError):
                wake.shutdown(socket.SHUT_RDWR)  # ends a receive that a cancelled task has left behind
            thread.shutdown(cancel_futures=True)


SUBJECTS = (Executor("executor", "asyncio"),)
