"""System calls refused by a seccomp filter, as a container or an old kernel does it; or forbidden, all but a few.

Guarantee: after `refuse` the calls named return the error given, in this process and in all that it starts; every other
call is as before, and nobody is killed. After `only` the process is killed by its next call that is not named. A filter
cannot be taken off.
Assumption: imported by child programs (programs.py), and only there.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Sequence

# x86-64 and arm64.
NUMBERS: dict[str, tuple[int, int]] = {
    "epoll_create1": (291, 20),
    "eventfd2": (290, 19),
    "exit_group": (231, 94),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "membarrier": (324, 283),
    "memfd_create": (319, 279),
    "mmap": (9, 222),
    "pidfd_open": (434, 434),
    "pipe2": (293, 59),
    "ppoll": (271, 73),
}
_AUDIT_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(error: int, *calls: str) -> None:
    """From now on these system calls fail with that error."""
    _filter(calls, _ERRNO | error, _ALLOW)


def only(*calls: str) -> None:
    """From now on every other system call is the last thing that this process does: SIGSYS kills it."""
    _filter(calls, _ALLOW, _KILL)


def _filter(calls: Sequence[str], verdict: int, otherwise: int) -> None:
    """`verdict` for the calls named, of this machine's own kind, and `otherwise` for all the rest."""
    machine = platform.machine()
    numbers = [NUMBERS[call][0 if machine == "x86_64" else 1] for call in calls]
    steps = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, _AUDIT_ARCHES[machine]), (_RETURN, 0, 0, otherwise), (_LOAD, 0, 0, 0)]
    for number in numbers:
        steps += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, verdict)]
    steps.append((_RETURN, 0, 0, otherwise))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    _control(_PR_SET_NO_NEW_PRIVS, 1, 0)
    _control(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _control(option: int, *arguments: object) -> None:
    padded = [*arguments, *[0] * (4 - len(arguments))]
    if _libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
