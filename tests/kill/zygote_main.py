"""The program of a zygote: a process with everything imported and nothing claimed, which forks actors on request.

Guarantee: an actor starts within milliseconds; it is a child of the zygote, which kills and reaps it on request.
Assumption: standard input is a SOCK_SEQPACKET socket; one request, one answer. Zygotes live as long as that socket.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

import aiospin

sys.path.append(os.environ["TESTS"])
sys.path.append(os.path.join(os.environ["TESTS"], "kill"))

import actor
import probes
import warden


def serve(harness: socket.socket) -> None:
    """Answer requests until the harness goes."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(harness, 4096, 2)
        if not message:
            return
        harness.send(json.dumps(_answer(json.loads(message), descriptors, harness)).encode())


def _answer(request: dict[str, Any], descriptors: list[int], harness: socket.socket) -> Any:
    kind = request["do"]
    if kind == "fork":
        return _fork(request, descriptors, harness)
    if kind == "signal":
        os.kill(request["pid"], request["number"])
        return None
    if kind == "reap":
        return os.waitpid(request["pid"], 0)[1]
    if kind == "about":
        return {"backend": aiospin.backend, "pid": os.getpid(), "descriptors": len(os.listdir("/proc/self/fd"))}
    raise ValueError(f"no such request: {kind}")


def _fork(request: dict[str, Any], descriptors: list[int], harness: socket.socket) -> int:
    pid = os.fork()
    if pid:
        for fd in descriptors:
            os.close(fd)
        return pid
    status = 1
    try:
        harness.detach()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        script: Connection[Any, Any] = Connection(descriptors[0])
        if len(descriptors) == 1:
            actor.play(script, request["way"])
        else:
            _become_warden(script, Connection(descriptors[1]), request)
        status = 0
    finally:
        os._exit(status)
    return 0


def _become_warden(script: Connection[Any, Any], channel: Connection[Any, Any], request: dict[str, Any]) -> None:
    victim = os.fork()
    if victim == 0:
        channel.close()
        actor.play(script, request["way"])
        return
    script.close()
    channel.send(("forked", victim))
    warden.watch(victim, channel, request["occurrence"])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the harness is the one to interrupt
    asyncio.SelectorEventLoop().close()
    uvloop.new_event_loop().close()
    if aiospin.backend == "native":
        probes.located(Path(sys.modules["aiospin._native"].__file__ or ""))
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=0))
