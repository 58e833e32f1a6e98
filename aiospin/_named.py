"""Named segments in a directory: who uses them, and taking away those that nobody uses.

Every process that has a named segment open holds a shared lock on one byte of the ring file, and roles are locks too;
whoever takes a segment away locks all of the file first. So a segment in use is never removed, and one that is being
removed cannot be attached.

Guarantee: what is removed is a directory of this user that holds a ring which aiospin made, or began to make, in that
very place, and its bells, and nothing else; symbolic links are not followed. Nothing here drops a lock of this process.
Assumption: a forked child that has claimed nothing does not count as a user; it goes on with what it inherited.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal

from aiospin import _header, _host, _layout
from aiospin._backing import MARKED, parent_of, remove_own_parent
from aiospin._descriptors import RING, first_lock, open_directory, try_lock
from aiospin._errors import AiospinError, AttachError
from aiospin._header import FileId
from aiospin._segment import registry

State = Literal["live", "orphan", "unfinished", "damaged"]

_OWN_NAMES = re.compile(r"ring|bell-[0-9]+")
_UNFINISHED_S: Final = 60.0  # a directory without a ring is being made, if it is no older than that


class InUse(AiospinError):
    """A segment that some process uses cannot be taken away."""


@dataclass(frozen=True)
class Named:
    """A named segment as it was a moment ago."""

    path: str
    state: State
    bytes: int
    """Memory that it occupies."""
    readers: int | None
    """None where the header cannot be believed."""
    owner: int
    """The pid of the process that made it, dead or alive; 0 when it is unknown or in another PID namespace."""
    users: dict[str, int]
    """Who has it: "writer", "reader 0", ... and "open" for one of those who have it open; with pids, 0 as above."""
    damage: str | None
    """Why nobody could attach to it, if that is so."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return os.path.basename(self.path)


def where(directory: str | None) -> str:
    """The directory that is meant: the one given, AIOSPIN_DIR, or this user's own."""
    return str(parent_of("any", directory))


def find(directory: str) -> list[Named]:
    """The named segments of this user in a directory, sorted by name. One that is not there has none.

    NotADirectoryError and PermissionError as from the system; what is not a segment of this user is passed over.
    """
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [found for name in names if (found := look(os.path.join(directory, name))) is not None]


def look(path: str) -> Named | None:
    """The segment in that place. None if there is none, or it belongs to somebody else."""
    # Closing a descriptor of a ring drops this process's locks on it: nobody may open it here in the meantime.
    with registry.lock, ExitStack() as undo:
        try:
            directory = open_directory(path)
        except (OSError, AttachError):
            return None
        undo.callback(os.close, directory)
        if not _looks_like_one(directory):
            return None
        fd, ours = _open_ring(directory, undo, os.O_RDONLY)
        if fd is None:
            return Named(path, "unfinished" if _is_begun(fd, directory) else "orphan", 0, None, 0, {}, "it has no ring")
        users = dict(_users(fd))
        if ours is not None:
            users = {"open": os.getpid()} | {_layout.role_name(role): os.getpid() for role in ours} | users
        foreign, occupied = _why_foreign(fd), os.fstat(fd).st_blocks * 512
        state: State = "orphan" if foreign is None else "damaged"
        if _is_begun(fd, directory):
            state = "unfinished"
        if users:
            state = "live"
        try:
            header = _header.read(fd, path)
            _header.check(fd, header, path, boot_id=_host.boot_id())
        except AttachError as error:
            return Named(path, state, occupied, None, 0, users, str(error))
        owner = header.creator_pid if header.pid_namespace == _host.pid_namespace() else 0
        return Named(path, state, occupied, header.readers, owner, users, None)


def unlink(path: str) -> int:
    """Take an orphan away; returns how many bytes that frees.

    InUse when a process has it, FileNotFoundError when there is nothing, AttachError when it is no segment of this
    user, or too damaged to be sure. Nothing is removed then.
    """
    _require_leaf(path)
    with registry.lock, ExitStack() as undo:  # as in look()
        directory = open_directory(path)
        undo.callback(os.close, directory)
        if not _looks_like_one(directory):
            raise AttachError(f"{path} is not a segment: it does not hold a ring and bells, and nothing else")
        fd, ours = _open_ring(directory, undo, os.O_RDWR)
        if ours is not None:
            raise InUse(f"{path} is in use by this process")
        if _is_begun(fd, directory):
            raise InUse(f"{path} has no ring yet: it was made less than {_UNFINISHED_S:.0f} s ago")
        freed = 0
        if fd is not None:
            _lock_whole(fd, path)
            freed = os.fstat(fd).st_blocks * 512
            foreign = _why_foreign(fd)
            if foreign is not None:
                raise AttachError(f"{path} is left alone: {foreign}")
        os.chmod(f"/proc/self/fd/{directory}", MARKED)
        for name in sorted(_names_in(directory), reverse=True):  # the ring first: nobody can attach from then on
            if _is_own(directory, name):
                os.unlink(name, dir_fd=directory)
        os.rmdir(path)
        remove_own_parent(path)
        return freed


def _names_in(directory: int) -> list[str]:
    listing = os.open(f"/proc/self/fd/{directory}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.listdir(listing)
    finally:
        os.close(listing)


def _looks_like_one(directory: int) -> bool:
    names = _names_in(directory)
    marked = stat.S_IMODE(os.fstat(directory).st_mode) == MARKED
    return (bool(names) or marked) and all(_is_own(directory, name) for name in names)


def _is_own(directory: int, name: str) -> bool:
    """A ring that is a file, or a bell that is a FIFO."""
    if not _OWN_NAMES.fullmatch(name):
        return False
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) if name == RING else stat.S_ISFIFO(mode)


def _why_foreign(fd: int) -> str | None:
    """Why this may be a ring that aiospin did not make in this place. None: it did, or was killed while it did."""
    status = os.fstat(fd)
    if status.st_nlink != 1:
        return f"its ring has {status.st_nlink} names"
    start = os.pread(fd, _layout.HEADER_BYTES, 0)
    if not start.strip(b"\0"):
        return None if status.st_size % _layout.RING_ALIGN == 0 else "its ring has no header"
    if len(start) < _layout.HEADER_BYTES:
        return f"its ring has {len(start)} bytes, and a header {_layout.HEADER_BYTES}"
    header = _header.Header(*_layout.HEADER.unpack(start))
    if header.magic not in (0, _layout.MAGIC):  # the magic comes last
        return f"its ring begins with {header.magic:#018x} and is none of aiospin's"
    if FileId(header.segment_device, header.segment_inode) != FileId(status.st_dev, status.st_ino):
        return "its ring is a copy, or was made by another version"
    return None


def _require_leaf(path: str) -> None:
    """AttachError for what can be no segment's path, whatever is there: the directory of segments itself, for one."""
    leaf = os.path.basename(path)
    if not leaf or leaf.startswith("."):
        raise AttachError(f"{path!r} does not end in the name of a segment")


def _is_begun(fd: int | None, directory: int) -> bool:
    """Somebody may be making it: there is no ring yet, or an empty one, whose maker is about to lock it."""
    if fd is not None and os.fstat(fd).st_size > 0:
        return False
    return abs(time.time() - os.fstat(directory).st_mtime) < _UNFINISHED_S


def _open_ring(directory: int, undo: ExitStack, flags: int) -> tuple[int | None, list[int] | None]:
    """The ring's descriptor, and the roles of this process if it has the segment already: then it is its own one."""
    try:
        place = os.open(RING, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None, None
    try:
        known = registry.segments.get(FileId.of(place))
        if known is not None:  # closing another descriptor of it would drop the locks
            return known.fd, list(known.claims)
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return None, None
        fd = os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC)
    finally:
        os.close(place)
    undo.callback(os.close, fd)
    return fd, None


def _users(fd: int) -> Iterator[tuple[str, int]]:
    """Every lock that other processes hold, as F_GETLK tells them one by one."""
    start = 0
    while start <= _layout.PRESENCE and (lock := first_lock(fd, start, 0)) is not None:
        at, length, pid = lock
        for role in range(at, min(at + (length or _layout.PRESENCE), _layout.PRESENCE)):
            yield _layout.role_name(role), pid
        if at <= _layout.PRESENCE < at + (length or _layout.PRESENCE + 1):
            yield "open", pid
        start = at + length if length else _layout.PRESENCE + 1


def _lock_whole(fd: int, path: str) -> None:
    if not try_lock(fd, 0, 0):
        users = ", ".join(f"{who} (pid {pid or 'in another PID namespace'})" for who, pid in _users(fd))
        raise InUse(f"{path} is in use: {users or 'by a process that has gone since'}")
