"""System calls refused by a seccomp filter, as a container or an old kernel does it.

Guarantee: after `refuse` the calls named return the error given, in this process and in all that it starts; every other
call is as before. Nobody is killed, and the filter cannot be taken off.
Assumption: imported by child programs (programs.py), and only there.
"""

from __future__ import annotations

import ctypes
import platform
import struct

# x86-64 and arm64.
NUMBERS: dict[str, tuple[int, int]] = {
    "epoll_create1": (291, 20),
    "eventfd2": (290, 19),
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
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(error: int, *calls: str) -> None:
    """From now on these system calls fail with that error."""
    machine = platform.machine()
    numbers = [NUMBERS[call][0 if machine == "x86_64" else 1] for call in calls]
    steps = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, _AUDIT_ARCHES[machine]), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for number in numbers:
        steps += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    _control(_PR_SET_NO_NEW_PRIVS, 1, 0)
    _control(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _control(option: int, *arguments: object) -> None:
    padded = [*arguments, *[0] * (4 - len(arguments))]
    if _libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
