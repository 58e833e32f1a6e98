"""Whether programs find each other's anonymous segments: text handles lead through /proc/<pid>/fd.

Guarantee: what a child process finds out by following such a path is said, beside what the kernel says of the
conditions. The child is gone when this is done, whatever happens.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from aiospin._children import sigint_blocked
from aiospin.doctor.fact import Fact, good, plain, unknown, warning
from aiospin.doctor.machine import Machine

FIRST_NAMESPACE: Final = 0xEFFFFFFC
"""the inode of the PID namespace that the kernel itself begins with (include/uapi/linux/nsfs.h)"""
FOLLOW: Final = """
import os, sys
try:
    os.close(os.open(sys.argv[1], os.O_RDWR))
except OSError as error:
    print(error.strerror)
"""
PATIENCE: Final = 30
"""seconds for a child that does almost nothing"""
PR_GET_DUMPABLE: Final = 3
INSTEAD: Final = "hand ends over when you start a process, or give the queue a name (docs/howto/containers.md)."


def follow() -> str | None:
    """Let a child open a descriptor of this process by its path; None, or why it could not.

    OSError and subprocess.TimeoutExpired when that could not be tried.
    """
    mine = os.memfd_create("aiospin-doctor", os.MFD_CLOEXEC)
    try:
        command = [sys.executable, "-I", "-S", "-c", FOLLOW, f"/proc/{os.getpid()}/fd/{mine}"]
        with sigint_blocked():  # a child of which nobody knows could not be ended
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        with child:
            try:
                said, _ = child.communicate(timeout=PATIENCE)
            finally:
                child.kill()
        if child.returncode != 0:
            raise OSError(f"a child process ended with exit code {child.returncode}")
        return said.strip() or None
    finally:
        os.close(mine)


def dumpable() -> bool | None:
    """Whether the kernel shows this process's insides to others of its user; None when it does not say."""
    try:
        found = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return None
    return None if found < 0 else bool(found == 1)


def examine(
    machine: Machine,
    follow: Callable[[], str | None] = follow,
    dumpable: Callable[[], bool | None] = dumpable,
) -> Iterator[Fact]:
    yield _namespace(machine)
    yield from _proc(machine)
    seen = dumpable()
    if seen is None:
        yield unknown("dumpable", "the kernel does not say")
    elif seen:
        yield good("dumpable", "yes", True)
    else:
        yield warning(
            "dumpable",
            "no",
            False,
            "This process is not dumpable, so others cannot open its descriptors, and text handles of its segments "
            "lead nowhere.",
            f"Do not run it with set-uid or file capabilities, nor with PR_SET_DUMPABLE off; or {INSTEAD}",
        )
    scope = machine.number("proc/sys/kernel/yama/ptrace_scope")
    if scope is not None:
        yield plain("ptrace_scope", f"{scope} (of no matter: it restricts attaching only)", scope)
    yield _handles(follow)


def _namespace(machine: Machine) -> Fact:
    target = machine.target("proc/self/ns/pid") or ""
    number = target.removeprefix("pid:[").removesuffix("]")
    if not number.isdecimal() or len(number) > 20:
        return unknown("pid_namespace", "/proc/self/ns/pid does not say")
    if int(number) == FIRST_NAMESPACE:
        return plain("pid_namespace", "the machine's own", "first")
    return plain("pid_namespace", "one of its own: others need a named segment", "own")


def _proc(machine: Machine) -> Iterator[Fact]:
    mount = machine.mount("/proc")
    if mount is None and not machine.has("proc/self"):
        yield warning(
            "proc",
            "not mounted",
            None,
            "Without /proc nothing tells processes apart, and text handles lead nowhere.",
            "Mount it: mount -t proc proc /proc",
        )
        return
    if (other := _stranger(machine)) is not None:
        yield warning(
            "proc",
            f"of another PID namespace: it calls this process {other}",
            None,
            "/proc shows another PID namespace than this process is in, so text handles lead to the wrong processes.",
            "Mount its own: mount -t proc proc /proc (unshare --mount-proc).",
        )
        return
    options = mount[1] if mount is not None else frozenset[str]()
    hidden = next((each for each in sorted(options) if each.startswith("hidepid=")), "hidepid=0")
    if hidden in ("hidepid=0", "hidepid=off"):
        yield good("proc", "mounted, nothing hidden", hidden)
    else:
        yield plain("proc", f"mounted with {hidden}: other users' processes are hidden", hidden)


def _stranger(machine: Machine) -> str | None:
    """What /proc calls this process, where that is not its pid: then it belongs to another namespace."""
    try:
        called = os.readlink(machine.root / "proc/self")
    except OSError:
        return None
    return called if called.isdecimal() and int(called) != os.getpid() else None


def _handles(follow: Callable[[], str | None]) -> Fact:
    try:
        refused = follow()
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return unknown("text_handles", f"not tried: {error}")
    if refused is None:
        return good("text_handles", "a child opened a segment by its path", True)
    return warning(
        "text_handles",
        f"a child could not open a segment: {refused}",
        False,
        f"Text handles of anonymous segments cannot be followed here: {refused}.",
        f"A security module, a sandbox or /proc stands between; {INSTEAD}",
    )
