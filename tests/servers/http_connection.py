"""One keep-alive connection to a server, speaking just enough HTTP/1.1 to be fast.

Guarantee: every byte that the server sends is accounted for: it belongs to a response that `read` or `finish` returns,
or one of them raises Disconnected.
Assumptions: used by one task, in one loop; responses have a Content-Length.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast


class Disconnected(Exception):
    """The connection ended, or what came is no response."""


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    keeps_alive: bool


class Connection(asyncio.Protocol):
    """Made by `open`."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._received = bytearray()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, host: str, port: int) -> Connection:
        """OSError when nobody listens."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(f"{host}:{port}"), host, port)
        return connection

    def send(self, method: str, target: str, body: bytes = b"") -> None:
        """Send a request; a response is to be read then."""
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    async def read(self) -> Response:
        """The next response. Disconnected if there is none."""
        while (response := self._take()) is None:
            if self._ended:
                raise Disconnected(f"the connection ended after {len(self._received)} bytes of a response")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return response

    async def finish(self) -> list[Response]:
        """Say that nothing more will be asked, and return what the server sends until it closes all the same."""
        if not self._ended and not self._transport.is_closing():
            self._transport.write_eof()
        late = []
        while True:
            try:
                late.append(await self.read())
            except Disconnected:
                if self._received:
                    raise
                return late
            finally:
                if self._ended:
                    self.close()

    def close(self) -> None:
        """Drop it."""
        self._transport.close()

    # what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self) -> Response | None:
        """A whole response out of what was received."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        status, length, keeps_alive = _parse(bytes(self._received[:end]))
        body = end + 4
        if len(self._received) < body + length:
            return None
        response = Response(status, bytes(self._received[body : body + length]), keeps_alive)
        del self._received[: body + length]
        return response


def _parse(head: bytes) -> tuple[int, int, bool]:
    """Status, length of the body, and whether the connection stays."""
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    version, _, rest = first.partition(" ")
    status, length = rest[:3], fields.get("content-length", "")
    if not version.startswith("HTTP/1.") or not status.isdecimal() or not length.isdecimal():
        raise Disconnected(f"not a response with a length: {first!r}")
    return int(status), int(length), fields.get("connection", "").lower() != "close"
