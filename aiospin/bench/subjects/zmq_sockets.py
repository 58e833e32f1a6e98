"""pyzmq over ipc: PAIR sockets for two, PUB and SUB for a broadcast; blocking and on asyncio.

Large messages are sent and received without the copies that pyzmq can do without. The publisher waits for its
subscribers, and bounds nothing: with a bound it would drop what exceeds it.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Any

from aiospin.bench.contract import End, Line, Plan, Subject, imported

MESSAGES = 1000
UNCOPIED_FROM = 1 << 16
LINGER = 5000
"""ms for which a writer's last messages are still sent"""


@dataclass(frozen=True)
class Zmq(Subject):
    @contextlib.contextmanager
    def line(self, plan: Plan) -> Generator[Line, None, None]:
        with tempfile.TemporaryDirectory(dir=plan.folder) as folder:
            url = f"ipc://{folder}/z"
            if plan.readers == 1:
                yield Line((url, "PAIR", "bind"), [(url, "PAIR", "connect")])
            else:
                yield Line((url, "XPUB", "bind"), [(url, "SUB", "connect")] * plan.readers)

    def open(self, ticket: Any, plan: Plan) -> Any:
        return self._open_blocking(ticket, plan) if self.kind == "sync" else self._open_awaited(ticket, plan)

    @contextlib.contextmanager
    def _open_blocking(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        with _socket(imported("zmq"), ticket, plan) as socket:
            if ticket[1] == "XPUB":
                for _ in range(plan.readers):
                    socket.recv()
            yield _end(socket, plan)

    @contextlib.asynccontextmanager
    async def _open_awaited(self, ticket: Any, plan: Plan) -> AsyncGenerator[End, None]:
        with _socket(imported("zmq.asyncio"), ticket, plan) as socket:
            if ticket[1] == "XPUB":
                for _ in range(plan.readers):
                    await socket.recv()
            yield _end(socket, plan)


@contextlib.contextmanager
def _socket(flavour: Any, ticket: Any, plan: Plan) -> Generator[Any, None, None]:
    zmq = imported("zmq")
    url, kind, verb = ticket
    context = flavour.Context()
    socket = context.socket(getattr(zmq, kind))
    try:
        socket.set_hwm(max(2, min(MESSAGES, plan.room // plan.nbytes)) if kind == "PAIR" else 0)
        socket.setsockopt(zmq.RECONNECT_IVL, 1)  # ms; whoever comes first need not wait long for the other
        if kind == "XPUB":
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # tells of every subscriber, and not only of the first
        if kind == "SUB":
            socket.subscribe(b"")
        getattr(socket, verb)(url)
        yield socket
    finally:
        socket.close(linger=LINGER if verb == "bind" else 0)  # a reader has nothing left to send
        context.term()


def _end(socket: Any, plan: Plan) -> End:
    if plan.nbytes < UNCOPIED_FROM:
        return End(socket.send, socket.recv)
    uncopied = functools.partial(socket.recv, copy=False)
    return End(functools.partial(socket.send, copy=False), socket.recv, uncopied)


SUBJECTS = tuple(Zmq(f"pyzmq {kind}", kind, needs="zmq", package="pyzmq") for kind in ("sync", "asyncio"))
