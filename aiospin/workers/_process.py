"""Starting a worker's process: its environment, its CPUs, and how it ended.

Guarantee: no signal handler of the application is touched, and the environment is as before when `start` returns.
Assumption: while a worker is being started, no other thread counts on the thread-count variables being unset.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Generator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any, Final

from aiospin import _children
from aiospin.workers import _child

START_METHODS: Final = ("spawn", "forkserver", "fork")
THREAD_COUNTS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
_PATIENCE: Final = 0.1  # seconds
_changing = threading.Lock()
_started: weakref.WeakSet[BaseProcess] = weakref.WeakSet()
_lent: set[str] = set()  # variables that are set for a child that is being started


def start(method: str, name: str, spec: _child.Spec, ends: tuple[Any, Any, Any]) -> BaseProcess:
    """Start the process, which takes over the three ends. May take a while; not for an event loop's thread."""
    # multiprocessing is typed per context, and has no common type for them.
    context: Any = multiprocessing.get_context(method)
    process: BaseProcess = context.Process(target=_child.main, args=(spec, *ends), name=name, daemon=False)
    if method != "fork":
        resource_tracker.ensure_running()  # at its own first start it would unblock SIGINT
    # A forkserver would keep the environment for all that it ever starts; the child sets its own.
    inherited: Mapping[str, str] = spec.environment if method == "spawn" else {}
    with _changing, _environment(inherited), _children.sigint_blocked():
        process.start()
    _started.add(process)
    return process


def death_of(process: BaseProcess) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the kernel has none.

    `process.sentinel` is a pipe that children of the process may hold open for longer. The caller closes this.
    """
    try:
        return os.pidfd_open(process.pid) if process.pid is not None else None
    except OSError:
        return None


def thread_counts(threads: int | None) -> Mapping[str, str]:
    """The variables that tell libraries how many threads to start: the user's, and `threads` where there is none.

    A forkserver has the environment of when it was started, so that what the user has set has to be said, too.
    """
    counts = {name: os.environ[name] for name in THREAD_COUNTS if name in os.environ and name not in _lent}
    return counts if threads is None else {**dict.fromkeys(THREAD_COUNTS, str(threads)), **counts}


def allowed_cpus() -> set[int]:
    """The CPUs that this process may use."""
    return os.sched_getaffinity(0)


def how_it_ended(process: BaseProcess) -> str:
    """Of a process that is gone: "was killed by SIGKILL", "ended with exit code 1"."""
    code = _exit_code(process)
    if code is None:
        return "ended, and somebody else took its exit code"
    return _children.how_it_ended(code)


def kill(process: BaseProcess) -> None:
    """End a process, if it has not ended."""
    with _changing:
        if process.is_alive():
            process.kill()


def reap(process: BaseProcess) -> None:
    """End a process, if it has not ended, and let go of it."""
    process.kill()
    _exit_code(process)
    with contextlib.suppress(ValueError):  # it still seems to run to who has not got its exit code
        process.close()


def _exit_code(process: BaseProcess) -> int | None:
    """Wait for the end. None if the program itself has reaped the process.

    Whenever multiprocessing starts a process it reaps all that have ended, in whatever thread. A fork server tells an
    exit code once, and of two threads that ask at a time one may get 255: nobody asks while a process is being started.
    What somebody else's thread took is known here a moment later.
    """
    with _changing:
        process.join()
        deadline = time.monotonic() + _PATIENCE
        while process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.0001)
        return process.exitcode


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Generator[None, None, None]:
    """Children that are spawned inherit these, before their first import."""
    before = {name: os.environ.get(name) for name in wanted}
    _lent.update(name for name, value in before.items() if value is None)
    os.environ.update(wanted)
    try:
        yield
    finally:
        _lent.clear()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_all() -> None:
    """A program that ends without having closed its groups: multiprocessing would wait for their workers for ever."""
    for process in list(_started):
        with contextlib.suppress(ValueError):  # closed: it has ended
            if process._parent_pid == os.getpid():  # type: ignore[attr-defined]
                process.kill()


atexit.register(_end_all)  # runs before what was registered earlier, which multiprocessing's is
