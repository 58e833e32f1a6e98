"""A server that answers as the model server does, except where it is told to misbehave.

Guarantee: what it does to the N-th request that it gets is what `faults` says, and nothing else goes wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from .samples import Sample

Fault = Callable[["Exchange"], None]


@dataclass
class Exchange:
    """A request, and the way to answer it."""

    name: str
    label: str
    writer: asyncio.StreamWriter

    def respond(self, status: int = 200, *, name: str | None = None, label: str | None = None) -> None:
        """One response."""
        body = json.dumps({"name": name or self.name, "label": label or self.label}).encode()
        self.writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)


def right(exchange: Exchange) -> None:
    exchange.respond()


def never(exchange: Exchange) -> None:
    """The request is dropped."""


def twice(exchange: Exchange) -> None:
    exchange.respond()
    exchange.respond()


def wrong_label(exchange: Exchange) -> None:
    exchange.respond(label="nonsense")


def of_another(exchange: Exchange) -> None:
    """With the name of the request before, which was answered; then right."""
    number, _, name = exchange.name.partition("-")
    exchange.respond(name=f"{int(number) - 1}-{name}")
    exchange.respond()


def of_nobody(exchange: Exchange) -> None:
    exchange.respond(name="1000000-x")
    exchange.respond()


def refused(exchange: Exchange) -> None:
    exchange.respond(503)


def late(exchange: Exchange) -> None:
    exchange.respond(504)


def broken(exchange: Exchange) -> None:
    exchange.respond(500)


def hang_up(exchange: Exchange) -> None:
    exchange.writer.close()


def hang_up_half_way(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\n{")
    exchange.writer.close()


def no_http(exchange: Exchange) -> None:
    exchange.writer.write(b"hello\r\n\r\n")


@contextlib.asynccontextmanager
async def stub(sample: Sample, faults: Mapping[int, Fault]) -> AsyncIterator[int]:
    """The port of a server that knows one sample. Requests are counted from 0."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(int(head.partition("Content-Length: ")[2].split("\r\n")[0]))
                name = head.partition("?name=")[2].split(" ")[0]
                fault, count = faults.get(count, right), count + 1
                fault(Exchange(name, sample.label, writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
