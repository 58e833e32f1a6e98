"""What a new segment is made of: an anonymous file and pipes, or a directory with a ring file and FIFOs.

Guarantee: every byte is reserved when a function here returns, nothing is accessible to other users whatever the umask
says, and a failure leaves neither a descriptor nor a name behind.
Assumption: named backing trusts this user's own programs not to truncate the file; anonymous backing seals it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from aiospin import _preflight
from aiospin._descriptors import BELL_FLAGS, RING, be_present, bell_name, make_bell, open_directory, shrink_bell
from aiospin._errors import SegmentTooLarge
from aiospin._header import FileId

if sys.platform != "win32":  # there this file only has to import
    import fcntl

    _NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

MARKED = 0o1700
"""Mode of a segment's directory before its ring is there and when it goes: tells it from any other empty directory."""
_MFD_NOEXEC_SEAL = 0x0008  # not in Python's os yet; Linux 6.3, and required where vm.memfd_noexec is 2


@dataclass(frozen=True)
class Backing:
    """Open descriptors of a segment that was just made; whoever gets it closes them."""

    fd: int
    bells: tuple[int, ...]  # one per role
    path: str | None  # the directory of a named one


def make_anonymous(size: int, roles: int) -> Backing:
    """A memfd of fixed size, and a pipe per role. SegmentTooLarge if the memory is not there."""
    with ExitStack() as undo:
        fd = _memfd()
        undo.callback(os.close, fd)
        os.fchmod(fd, 0o600)
        _reserve(fd, size, None)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        bells = _each_role(roles, lambda role: make_bell(), undo)
        undo.pop_all()
        return Backing(fd, bells, None)


def make_named(path: str, size: int, roles: int) -> Backing:
    """A new directory with a ring file and a FIFO per role. FileExistsError if anything has that name already."""
    with ExitStack() as undo:
        _make_place(path)
        undo.callback(_remove_place, path, roles)
        directory = open_directory(path)
        undo.callback(os.close, directory)
        fd = os.open(RING, _NEW, 0o600, dir_fd=directory)
        undo.callback(os.close, fd)
        be_present(fd, path)
        os.chmod(f"/proc/self/fd/{directory}", 0o700)
        os.fchmod(fd, 0o600)
        _reserve(fd, size, path)
        bells = _each_role(roles, lambda role: _make_fifo(directory, bell_name(role)), undo)
        undo.pop_all()
        os.close(directory)
        return Backing(fd, bells, path)


def remove_named(path: str, ring: FileId, roles: int) -> None:
    """Take the names of a segment away, unless they are gone or by now belong to another segment."""
    try:
        status = os.lstat(os.path.join(path, RING))
    except FileNotFoundError:
        return
    if FileId(status.st_dev, status.st_ino) == ring:
        _remove_place(path, roles)


def parent_of(name: str | None, directory: str | os.PathLike[str] | None) -> str | None:
    """In which directory a segment goes: the one given, AIOSPIN_DIR, or this user's own; None if it is anonymous."""
    if name is None and directory is None:
        return None
    return os.path.abspath(directory or os.environ.get("AIOSPIN_DIR") or _own_parent())


def named_path(name: str | None, directory: str | os.PathLike[str] | None, identity: bytes) -> str:
    """The directory of a new named segment, called `name` or else after its identity. ValueError for a bad name."""
    leaf = identity.hex() if name is None else name
    if not leaf or "/" in leaf or "\0" in leaf or leaf.startswith("."):
        raise ValueError(f"name must be one visible file name without a slash, got {name!r}")
    return os.path.join(str(parent_of(leaf, directory)), leaf)


def _own_parent() -> str:
    return f"/dev/shm/aiospin-{os.geteuid()}"


def _make_place(path: str) -> None:
    """Make the segment's directory; this user's own parent comes with the first segment and goes with the last."""
    parent = os.path.dirname(path)
    if parent != _own_parent():
        return _make_directory(path, MARKED)
    while True:
        try:
            _require_parent(parent)
            return _make_directory(path, MARKED)
        except FileNotFoundError:
            continue  # someone closed the last other segment, and the parent went with it


def _remove_place(path: str, roles: int) -> None:
    _remove(lambda place: os.chmod(place, MARKED), path)  # should this process be killed when it is empty
    for name in (RING, *map(bell_name, range(roles))):
        _remove(os.unlink, os.path.join(path, name))
    _remove(os.rmdir, path)
    remove_own_parent(path)


def remove_own_parent(path: str) -> None:
    """Take away the directory of this user's own segments, if `path` was its last."""
    if os.path.dirname(path) == _own_parent():
        _remove(os.rmdir, _own_parent())


def _remove(remove: Callable[[str], None], path: str) -> None:
    """Remove a name unless it is gone already, or a directory that something else is still in."""
    try:
        remove(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise


def _require_parent(parent: str) -> None:
    try:
        _make_directory(parent, 0o700)
    except FileExistsError:
        os.close(open_directory(parent))  # whoever made it: it must be ours, no link, and closed to others


def _make_directory(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError as error:
        raise FileExistsError(
            error.errno, f"{error.strerror} (aiospin ls tells whether it is an orphan)", path
        ) from None
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, error.strerror, os.path.dirname(path)) from None
    with ExitStack() as undo:
        undo.callback(os.rmdir, path)
        place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{place}", mode)  # a umask may have taken the owner's own bits
        finally:
            os.close(place)
        undo.pop_all()


def _make_fifo(directory: int, name: str) -> int:
    os.mkfifo(name, 0o600, dir_fd=directory)
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o600)
        fd = os.open(f"/proc/self/fd/{place}", BELL_FLAGS)
    finally:
        os.close(place)
    shrink_bell(fd)
    return fd


def _memfd() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("aiospin", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("aiospin", flags)


def _reserve(fd: int, size: int, path: str | None) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT):
            raise
        room = _preflight.room(path)
        raise SegmentTooLarge(size, room.bytes, f"{room.source}; the kernel says: {error.strerror}") from error


def _each_role(roles: int, make: Callable[[int], int], undo: ExitStack) -> tuple[int, ...]:
    bells: list[int] = []
    for role in range(roles):
        bells.append(make(role))
        undo.callback(os.close, bells[-1])
    return tuple(bells)
