"""Runs the server: one process, or several that share a port.

A worker group belongs to one event loop, and a queue has one writer, so server processes do not share workers: each has
a group of its own. The kernel divides connections among them (SO_REUSEPORT).

Guarantee: SIGTERM and Ctrl-C end it in order: no new connections, what is under way within bounds, then the workers. A
second Ctrl-C does not wait. When one of several server processes ends unasked, the others end too: whoever supervises
this program is to know.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from model_server.app import create_app
from model_server.settings import Settings
from model_server.workers_pool import WorkersPool


@dataclass(frozen=True)
class Place:
    """Where to listen, and how much to say."""

    host: str
    port: int
    log_level: str = "warning"
    shared: bool = False


class Server(uvicorn.Server):
    """Tells the application as soon as a signal asks for the end, so that streams which never end by themselves do."""

    def __init__(self, config: uvicorn.Config, app: Starlette, welcome: str) -> None:
        super().__init__(config)
        self._app = app
        self._welcome = welcome

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it is once it is there."""
        await super().startup(sockets)
        if self.started:
            print(self._welcome, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal."""
        self._app.state.service.begin_to_drain()
        super().handle_exit(sig, frame)


def serve(settings: Settings, place: Place, servers: int = 1) -> int:
    """Until a signal. Returns an exit code: 0 after an orderly end."""
    signal.signal(signal.SIGTERM, _raise_exit)  # uvicorn raises it again after the orderly end, as it does with Ctrl-C
    if servers == 1:
        return _serve_one(settings, place)
    return _serve_many(settings, place, servers)


def _serve_one(settings: Settings, place: Place) -> int:
    pool = WorkersPool(settings.model, settings.workers, drain_timeout=settings.drain)
    app = create_app(settings, pool)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        lifespan="on",
        log_level=place.log_level,
        timeout_graceful_shutdown=max(1, round(settings.drain)),
    )
    with _bound(place.host, place.port, shared=place.shared) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        workers = f"{settings.workers} worker{'s' if settings.workers > 1 else ''}"
        server = Server(config, app, f"model server: http://{shown}:{port}/  ({settings.model}, {workers})")
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # uvicorn raises a signal again after the orderly end
    return 0


def _serve_many(settings: Settings, place: Place, servers: int) -> int:
    context = multiprocessing.get_context("spawn")
    code = 0
    # Bound and not listening, it holds the port and gets no connection.
    with _bound(place.host, place.port, shared=True) as holder:
        here = Place(place.host, holder.getsockname()[1], place.log_level, shared=True)
        processes = [context.Process(target=_serve_share, args=(settings, here)) for _ in range(servers)]
        try:
            for process in processes:
                process.start()
            connection.wait([process.sentinel for process in processes])
            code = 1
            for process in processes:
                if process.exitcode is not None:
                    how = f"server process {process.pid} ended with exit code {process.exitcode}"
                    print(f"model server: {how}; the others end, too", file=sys.stderr, flush=True)
        except (KeyboardInterrupt, SystemExit):
            pass  # asked for
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    return code


def _serve_share(settings: Settings, place: Place) -> None:
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    sys.exit(serve(settings, place))


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def _raise_exit(sig: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
