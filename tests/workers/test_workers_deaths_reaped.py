"""The exit code of a worker, which multiprocessing may take in another thread while it starts a process."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import threading
import time
from multiprocessing import forkserver
from typing import Any

import pytest

from aiospin.workers import _process


class Asked:
    """A lock that tells who asks for it."""

    def __init__(self, told: queue.Queue[str]) -> None:
        self._lock, self._told = threading.Lock(), told

    def __enter__(self) -> None:
        self._told.put(threading.current_thread().name)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_an_exit_code_is_not_asked_for_while_a_start_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server tells it once. Who asks as well, before the first has noted it, would get 255."""
    told: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(_process, "_changing", Asked(told))
    context = multiprocessing.get_context("forkserver")
    dead, other = context.Process(target=time.sleep, args=(60,)), context.Process(target=os.getpid)
    dead.start()
    real, taken, noted, answer = forkserver.read_signed, threading.Event(), threading.Event(), list[str]()

    def read_signed(fd: int) -> Any:
        value = real(fd)
        if threading.current_thread().name == "starts" and not taken.is_set():
            taken.set()
            noted.wait(60)
        return value

    def start() -> None:
        with _process._changing:
            other.start()  # which reaps the dead one first

    def ask() -> None:
        answer.append(_process.how_it_ended(dead))
        told.put("has asked")

    assert dead.pid is not None
    os.kill(dead.pid, signal.SIGKILL)
    assert multiprocessing.connection.wait([dead.sentinel], 60)
    monkeypatch.setattr(forkserver, "read_signed", read_signed)
    starts, asks = threading.Thread(target=start, name="starts"), threading.Thread(target=ask, name="asks")
    starts.start()
    assert told.get(timeout=60) == "starts" and taken.wait(60)
    asks.start()
    assert told.get(timeout=60) in ("asks", "has asked")  # it waits for the start; or did not, and has been misled
    noted.set()
    starts.join()
    asks.join()
    assert answer == ["was killed by SIGKILL"]
    for process in (dead, other):
        _process.reap(process)
