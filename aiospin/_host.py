"""Facts about this machine and its running programs, read from /proc.

Guarantee: every answer is a plain value; what the kernel does not tell is 0 or None and not an exception, since these
facts explain failures and must not cause new ones. Only when this process could not even ask, being out of descriptors
or memory, the OSError says so: no answer is not the answer "no". `proc` replaces /proc in tests.
Assumption: /proc belongs to the caller's own PID namespace.
"""

from __future__ import annotations

import errno
import os
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PROC = Path("/proc")


def _reraise_exhaustion(error: OSError) -> None:
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error


@lru_cache(maxsize=1)
def boot_id() -> bytes:
    """16 bytes that are the same for everyone on this kernel until it boots again; zeros when it does not say."""
    try:
        return uuid.UUID((PROC / "sys/kernel/random/boot_id").read_text().strip()).bytes
    except OSError as error:
        _reraise_exhaustion(error)
        return bytes(16)
    except ValueError:
        return bytes(16)


def pid_namespace() -> int:
    """The inode that names this process's PID namespace, 0 when unknown."""
    try:
        return os.stat(PROC / "self/ns/pid").st_ino
    except OSError:
        return 0


def start_time(pid: int, proc: Path = PROC) -> int:
    """When `pid` started, in clock ticks since boot; 0 when it has ended, reaped or not, or is hidden."""
    try:
        line = (proc / str(pid) / "stat").read_bytes()
    except OSError as error:
        _reraise_exhaustion(error)
        return 0
    fields = line[line.rfind(b")") + 2 :].split()  # the name before it may hold spaces and parentheses
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return 0
    return int(fields[19])


@dataclass(frozen=True)
class Credentials:
    """What decides whether one process may look into another."""

    uids: tuple[int, ...]  # real, effective, saved, file system
    gids: tuple[int, ...]
    capabilities: int  # permitted
    user_map: str  # how its user namespace maps to the reader's

    @classmethod
    def of(cls, pid: int | str, proc: Path = PROC) -> Credentials | None:
        """Those of a running process; None when it is gone or hidden."""
        try:
            lines = (proc / str(pid) / "status").read_text().splitlines()
            user_map = (proc / str(pid) / "uid_map").read_text()
        except OSError as error:
            _reraise_exhaustion(error)
            return None
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return cls(
            uids=tuple(int(field) for field in fields["Uid"].split()),
            gids=tuple(int(field) for field in fields["Gid"].split()),
            capabilities=int(fields["CapPrm"], 16),
            user_map=" ".join(user_map.split()),
        )


def is_stopped(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is stopped, by a signal or a debugger. False when it is gone or hidden."""
    try:
        line = (proc / str(pid) / "stat").read_text()
    except OSError as error:
        _reraise_exhaustion(error)
        return False
    return line[line.rindex(")") + 2] in "Tt"


def is_dumpable(pid: int, peer: Credentials, proc: Path = PROC) -> bool:
    """False when the kernel hides the process's insides: /proc/<pid> then belongs to root and not to its user."""
    try:
        return os.stat(proc / str(pid)).st_uid == peer.uids[1]
    except OSError:
        return True


def why_not_readable(pid: int, proc: Path = PROC) -> str:
    """Say which of the kernel's conditions for reading /proc/<pid>/fd (PTRACE_MODE_READ) fails for the caller."""
    peer, own = Credentials.of(pid, proc), Credentials.of("self", proc)
    if peer is None or own is None:
        return f"pid {pid} is gone or hidden from this process (hidepid)"
    if set(peer.uids[:3]) != {own.uids[3]}:
        return f"pid {pid} belongs to another user: its uid is {peer.uids[0]}, this one's is {own.uids[0]}"
    if set(peer.gids[:3]) != {own.gids[3]}:
        return f"pid {pid} belongs to another group: its gid is {peer.gids[0]}, this one's is {own.gids[0]}"
    if peer.user_map != own.user_map:
        return f"pid {pid} lives in another user namespace"
    if peer.capabilities & ~own.capabilities:
        return f"pid {pid} has capabilities that this process lacks"
    if not is_dumpable(pid, peer, proc):
        return f"pid {pid} is not dumpable, so its descriptors are closed to others (PTRACE_MODE_READ)"
    return f"the kernel forbids this process to look into pid {pid} (PTRACE_MODE_READ; a security module?)"
