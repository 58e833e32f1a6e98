"""What the kernel lets a process have and do: descriptors, pipes, and calls that a sandbox may refuse.

Guarantee: each call is tried in a way that leaves nothing behind; limits are read and never changed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiospin.doctor.fact import Fact, good, plain, plural, unknown, warning
from aiospin.doctor.machine import Machine

if sys.platform != "win32":  # there this file only has to import
    import resource

FEW_DESCRIPTORS: Final = 1024
FEW_PAGES: Final = 1024
"""of pipes; each end of a queue has one with a page"""
USERS_PAGES: Final = 16
"""of a pipe, until it is shrunk to one"""
MEMBARRIER: Final = {"x86_64": 324, "aarch64": 283}
"""the numbers of the system call"""


def descriptors() -> tuple[int, int]:
    """The soft and the hard limit; -1 for none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def memfd() -> None:
    os.close(os.memfd_create("aiospin-doctor", os.MFD_CLOEXEC))


def pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def membarrier() -> None:
    number = MEMBARRIER.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, 0, 0) < 0:  # MEMBARRIER_CMD_QUERY
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


CALLS: Final[Mapping[str, Callable[[], None]]] = {
    "memfd_create": memfd,
    "pidfd_open": pidfd,
    "membarrier": membarrier,
}
WITHOUT: Final = {
    "memfd_create": "No anonymous segment can be made",
    "pidfd_open": "The death of a peer is noticed within a second instead of at once",
    "membarrier": "On queues with a process on the pure-Python fallback a sleep is bounded to 10 ms",
}


def examine(
    machine: Machine,
    descriptors: Callable[[], tuple[int, int]] = descriptors,
    calls: Mapping[str, Callable[[], None]] = CALLS,
) -> Iterator[Fact]:
    yield _descriptors(descriptors)
    yield from _pipes(machine)
    for call, attempt in calls.items():
        yield _call(call.partition("_")[0], call, attempt)


def _descriptors(descriptors: Callable[[], tuple[int, int]]) -> Fact:
    try:
        soft, hard = descriptors()
    except (OSError, ValueError) as error:
        return unknown("descriptors", str(error))
    most = "no limit" if hard < 0 else str(hard)
    if soft < 0:
        return good("descriptors", "no limit", None)
    text = f"{soft}, can be raised to {most}" if soft != hard else f"{soft}, the most there may be"
    if soft >= FEW_DESCRIPTORS:
        return good("descriptors", text, soft)
    how = "ulimit -n, or resource.setrlimit(resource.RLIMIT_NOFILE, ...)"
    return warning(
        "descriptors",
        text,
        soft,
        f"A process may have only {soft} descriptors open; a queue takes one and another for each of its ends.",
        f"Raise it: {how}." if soft != hard else "Only its administrator can raise it (ulimit -Hn, LimitNOFILE=).",
    )


def _pipes(machine: Machine) -> Iterator[Fact]:
    for name, consequence in (("soft", "are slower to make"), ("hard", "cannot be made (ENFILE)")):
        pages = machine.number(f"proc/sys/fs/pipe-user-pages-{name}")
        if pages is None or pages < 0:
            yield unknown(f"pipe_pages_{name}", "the kernel does not say")
        elif pages == 0:
            yield plain(f"pipe_pages_{name}", "no limit", None)
        elif pages >= FEW_PAGES:
            yield good(f"pipe_pages_{name}", f"{pages} per user", pages)
        else:
            yield warning(
                f"pipe_pages_{name}",
                f"{pages} per user",
                pages,
                f"All pipes of a user may have {plural(pages, 'page')}; each end of a queue has one, and beyond that "
                f"they {consequence}. Root is exempt.",
                f"As root: sysctl fs.pipe-user-pages-{name}=16384",
            )


def _call(name: str, call: str, attempt: Callable[[], None]) -> Fact:
    try:
        attempt()
    except (OSError, AttributeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "this Python has no such call"
        return warning(
            name,
            f"{call} is refused: {reason}",
            False,
            f"{WITHOUT.get(call, 'Something is missing')}, since {call} is refused ({reason}).",
            "Allow it in the sandbox (docker: a newer seccomp profile), or use a newer kernel.",
        )
    return good(name, f"{call} works", True)
