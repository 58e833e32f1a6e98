"""Child processes for tests that need a second one: forked, steered over a channel, killed at the end.

Guarantee: leaving the `with` kills and reaps the child, whatever it was doing; `result` raises what its body raised.
Assumption: the test process has one thread when it forks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any


class Child:
    """A forked process that runs `body(channel)` and sends what it returns or raises."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        self.channel, inner = Pipe()
        self._reaped = False
        self.pid = os.fork()
        if self.pid == 0:
            self.channel.close()
            _run(body, inner)
        inner.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.channel.close()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Idempotent."""
        if not self._reaped:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._reaped = True

    def result(self) -> Any:
        """What the body returned. The next message must be that."""
        kind, value = self.channel.recv()
        if kind == "raised":
            raise value
        return value


def _run(body: Callable[[Any], Any], channel: Connection[Any, Any]) -> None:
    try:
        try:
            outcome = ("returned", body(channel))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
            outcome = ("raised", error)
        channel.send(outcome)
    finally:
        os._exit(0)


def in_child(body: Callable[[], Any]) -> Any:
    """Run `body` in a forked process and return, or raise, what it did."""
    with Child(lambda channel: body()) as child:
        return child.result()


def open_descriptors() -> dict[int, str]:
    """This process's descriptors and what they lead to."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:  # the listing's own
            continue
    return found
