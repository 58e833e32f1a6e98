"""Descriptors that cannot be mistaken for others: making bells, and opening again what another process holds.

Guarantee: nothing is opened for reading or writing before an O_PATH descriptor of it has been compared, by type,
device and inode, with what the header or the handle states. So a number that was reused since never leads into a
stranger's file.
Assumption: closing an O_PATH descriptor leaves the POSIX locks of this process alone; closing any other does not.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable

from aiospin import _host, _layout
from aiospin._errors import AttachError
from aiospin._handle import SegmentRef
from aiospin._header import FileId

if sys.platform != "win32":  # there this file only has to import
    import fcntl

    BELL_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC

RING = "ring"  # file names in the directory of a named segment
_FLOCK = struct.Struct("@hhqqi4x")  # type, whence, start, length, pid: struct flock where longs have 64 bits
_BELL_BYTES = 4096  # one page: a bell needs one byte, and a user's pipes share an allowance


def bell_name(role: int) -> str:
    """The file name of a role's FIFO."""
    return f"bell-{role}"


def make_bell() -> int:
    """A new pipe as one descriptor for both directions: it neither hangs up nor breaks while anyone holds it."""
    ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fd = os.open(f"/proc/self/fd/{ends[0]}", BELL_FLAGS)
    finally:
        close_all(ends)
    shrink_bell(fd)
    return fd


def shrink_bell(fd: int) -> None:
    """Keep a bell to one page."""
    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _BELL_BYTES)


def ring(fd: int) -> None:
    """Leave a byte in a bell. A full bell has been rung already."""
    try:
        os.write(fd, b"\0")
    except BlockingIOError:
        return


def close_all(descriptors: Iterable[int]) -> None:
    """Close each of them."""
    for fd in descriptors:
        os.close(fd)


def reopen_segment(ref: SegmentRef) -> int:
    """Open the segment file that a handle names, read-write. AttachError says why it cannot be."""
    expected = FileId(ref.device, ref.inode)
    if ref.path is not None:
        return _reopen(ref, lambda: _in_directory(ref, RING), stat.S_ISREG, expected, "the ring file")
    return _reopen(ref, lambda: _in_owner(ref, ref.segment_fd), stat.S_ISREG, expected, "the segment")


def reopen_bell(ref: SegmentRef, role: int, expected: FileId) -> int:
    """Open the bell of a role. AttachError says why it cannot be."""
    what = f"the bell of role {role}"
    if ref.path is not None:
        return _reopen(ref, lambda: _in_directory(ref, bell_name(role)), stat.S_ISFIFO, expected, what)
    return _reopen(ref, lambda: _in_owner(ref, ref.bell_fds[role]), stat.S_ISFIFO, expected, what)


def try_lock(fd: int, start: int, length: int, *, shared: bool = False) -> bool:
    """Lock bytes of a segment file for this process; a `length` of 0 is all from `start` on. False if others bar it."""
    try:
        fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, length, start)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def first_lock(fd: int, start: int, length: int) -> tuple[int, int, int] | None:
    """The first lock of another process among these bytes, as F_GETLK tells: start, length (0: to the end), pid.

    The pid is 0 when the kernel cannot name it here.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, at, found, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (at, found, max(pid, 0))


def be_present(fd: int, path: str) -> None:
    """Count as a user of a named segment for as long as its file is open here. AttachError if it is being removed."""
    if not try_lock(fd, _layout.PRESENCE, 1, shared=True):
        raise AttachError(f"{path} is being unlinked")


def verify(fd: int, is_type: Callable[[int], bool], expected: FileId, what: str) -> None:
    """AttachError unless `fd` is of that type and is the expected file."""
    status = os.fstat(fd)
    if not is_type(status.st_mode) or FileId(status.st_dev, status.st_ino) != expected:
        raise AttachError(
            f"{what} is not what it was: found {stat.filemode(status.st_mode)} inode {status.st_ino} on device "
            f"{status.st_dev}, expected inode {expected.inode} on device {expected.device}"
        )


def open_directory(path: str) -> int:
    """An O_PATH descriptor of a named segment's directory, which must be this user's own and closed to others."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(fd)
    if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return fd
    os.close(fd)
    if status.st_uid != os.geteuid():
        raise AttachError(f"{path} belongs to another user: its uid is {status.st_uid}, this one's is {os.geteuid()}")
    raise AttachError(f"{path} is open to other users: its mode is {stat.S_IMODE(status.st_mode):#o}, not 0o700")


def _reopen(
    ref: SegmentRef, locate: Callable[[], int], is_type: Callable[[int], bool], expected: FileId, what: str
) -> int:
    place = locate()
    try:
        verify(place, is_type, expected, f"{what} of {ref.name}")
        return os.open(f"/proc/self/fd/{place}", BELL_FLAGS)
    except PermissionError as error:
        raise AttachError(f"{what} of {ref.name} may not be opened by uid {os.geteuid()}: {error}") from error
    finally:
        os.close(place)


def _in_directory(ref: SegmentRef, name: str) -> int:
    assert ref.path is not None
    try:
        directory = open_directory(ref.path)
        try:
            return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise AttachError(f"{ref.name} cannot be opened here: {_reason(error)}") from error


def _in_owner(ref: SegmentRef, number: int) -> int:
    _require_living_owner(ref)
    try:
        return os.open(f"/proc/{ref.pid}/fd/{number}", os.O_PATH | os.O_CLOEXEC)
    except PermissionError as error:
        raise AttachError(f"{ref.name} cannot be reached: {_host.why_not_readable(ref.pid)}") from error
    except FileNotFoundError as error:
        _require_living_owner(ref)  # it may have died since
        raise AttachError(f"{ref.name} is gone: its owner has closed descriptor {number}") from error


def _require_living_owner(ref: SegmentRef) -> None:
    if ref.boot_id != _host.boot_id():
        raise AttachError(f"{ref.name} was made on another machine, or before this one last started (boot id)")
    namespace = _host.pid_namespace()
    if ref.pid_namespace != namespace:
        raise AttachError(f"{ref.name} lives in another PID namespace: {ref.pid_namespace}, this one is {namespace}")
    start = _host.start_time(ref.pid)
    if start == 0:
        raise AttachError(f"{ref.name} is stale: its owner is gone (or hidden from this process)")
    if start != ref.start:
        raise AttachError(
            f"{ref.name} is stale: its owner is gone, and its pid belongs to another program (start time {start}, "
            f"not {ref.start})"
        )


def _reason(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return f"{error.filename!r} is not a directory or file of its own (a symbolic link?)"
    return f"{error.strerror}: {error.filename!r}"
