"""The worker's process: constructs the object, and has its methods run as calls come.

A class with async methods is hosted in an event loop, where every call begins at once. Any other class is hosted
without a loop, one call after the other, which is the faster way.

Guarantee: the process ends when the group closes its queue, or when the group's process dies, whatever a method does.
Ctrl-C is the group's affair. A SIGTERM is heard between calls, unless the program handles it itself; a method that is
running ends first.
Assumption: it is started with SIGINT blocked, so that none can hit it before it is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from typing import Any

from aiospin import PeerDied, QueueClosed, QueueReader, QueueWriter
from aiospin._children import ignore_sigint
from aiospin.workers import _body, _failure
from aiospin.workers._envelope import Kind, pack
from aiospin.workers._hosted import Hosted
from aiospin.workers._looped import Looped
from aiospin.workers._place import Place, take
from aiospin.workers._threaded import Threaded

ORPHANED = 3  # exit code of a worker whose group died under it


@dataclass(frozen=True)
class Spec:
    """What a worker is made of. Travels pickled, to be opened only once the process has been set up."""

    construct: bytes
    """Pickled (factory, args, kwargs)."""
    codec: str
    cpus: frozenset[int] | None
    place: Place
    environment: Mapping[str, str]
    """Set before the factory's modules are imported."""


def main(spec: Spec, requests: QueueReader[Any], broadcasts: QueueReader[Any], replies: QueueWriter[Any]) -> None:
    """The process's entry point."""
    _forget_signals()
    os.environ.update(spec.environment)
    take(spec.place)
    threading.Thread(target=_end_with_the_group, name="aiospin-orphan-watch", daemon=True).start()
    if spec.cpus is not None:
        os.sched_setaffinity(0, spec.cpus)
    with requests, broadcasts, replies:
        try:
            replies.put(*pack(Kind.STARTED))
            try:
                factory, args, kwargs = pickle.loads(spec.construct)
                target = factory(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the group must hear of it
                replies.put(*pack(Kind.FAILED, body=_failure.describe(error)))
                raise SystemExit(1) from None
            run(target, requests, broadcasts, replies, codec=spec.codec)
        except (QueueClosed, PeerDied):
            return  # the group closed or died


def run(
    target: Any,
    requests: QueueReader[Any],
    broadcasts: QueueReader[Any],
    replies: QueueWriter[Any],
    *,
    codec: str = "msgpack",
) -> None:
    """Host an object: answer calls of its public methods until the group closes the queue.

    Then its `close()`, or `aclose()`, runs if it has one. PeerDied when the group's process died. In the main thread of
    a program without a handler for SIGTERM that signal is heard between calls: the object is closed likewise, and then
    the signal ends the process as it would have.
    """
    hosted = Hosted(target, _body.find(codec), broadcasts)
    if hosted.is_async:
        terminated = _run_loop(Looped(hosted, requests, replies).serve())
    else:
        terminated = Threaded(hosted, requests, replies).serve()
    if terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)


def _forget_signals() -> None:
    """A forked worker has the group's handlers, which wake the group's loop and run code that is not for it."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    ignore_sigint()


def _end_with_the_group() -> None:
    parent = parent_process()
    if parent is None or parent.pid is None:
        return
    ends: list[int] = [parent.sentinel]
    with contextlib.suppress(OSError):  # where the kernel refuses it, or the parent is gone already
        ends.append(os.pidfd_open(parent.pid))  # the sentinel is open in forked siblings, too
    connection.wait(ends)
    # A method may be running, and must not go on for nobody.
    os._exit(ORPHANED)


def _run_loop(main: Coroutine[Any, Any, bool]) -> bool:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return bool(uvloop.run(main))
