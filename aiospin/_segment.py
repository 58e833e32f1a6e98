"""Segments: the shared memory of one queue as this process holds it.

Guarantee: one Segment, one read-write and one read-only descriptor per inode and process, found through the registry.
They are closed together, when nobody holds the segment and this process has no role on it: closing any descriptor of
the inode drops every POSIX lock that the process has there, and roles are such locks.
Assumption: mapping and words belong to the backend; this file never maps memory itself.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from contextlib import ExitStack

from aiospin import _backend, _backing, _descriptors, _header, _host, _layout
from aiospin._errors import AttachError
from aiospin._exhaustion import descriptors_for
from aiospin._handle import SegmentRef
from aiospin._header import FileId, Header

SEGMENT_KEY = -1  # among descriptors that travelled: the segment file; every other key is the role of a bell


class Registry:
    """Every open segment of this process. A forked child starts with the same segments, no claims and a free lock.

    The child's first look at `lock` or `generation` does the reset, be it from another module's fork hook that runs
    before the one of this file: nothing in a child may take the parent's roles for its own, not even for a moment.
    """

    def __init__(self) -> None:
        self.segments: dict[FileId, Segment] = {}
        self._lock = threading.RLock()
        self._generation = 0
        self._pid = os.getpid()
        self._forking = False

    @property
    def lock(self) -> threading.RLock:
        """Guards the segments, their descriptors and their claims."""
        self._notice_fork()
        return self._lock

    @property
    def generation(self) -> int:
        """How many forks lie between this process and the one that imported aiospin."""
        self._notice_fork()
        return self._generation

    def before_fork(self) -> None:
        """Let nobody be in the middle of a change: the child gets a copy of whatever there is."""
        self._lock.acquire()
        self._forking = True

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._forking = False
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Reset, unless that happened already. A child in a new PID namespace can have its parent's pid."""
        if self._forking:
            self._reset()

    def _notice_fork(self) -> None:
        if os.getpid() != self._pid:
            self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._generation += 1
        self._pid = os.getpid()
        self._forking = False
        for segment in self.segments.values():
            segment.claims.clear()


class Segment:
    """One segment. `create` and `adopt` return it held once; every `hold` needs its `drop`."""

    def __init__(self, ref: SegmentRef, header: Header, fd: int, ring_fd: int, bells: dict[int, int]) -> None:
        self.ref = ref
        self.readers = header.readers
        self.capacity = header.capacity
        self.checksum = header.checksum
        self.identity = header.identity
        self.fd = fd
        self.claims: dict[int, int] = {}  # role -> tenure, of this process; written by _roles under the registry's lock
        self.mapping = _backend.core.Mapping(fd, ring_fd, header.readers, header.capacity)
        self._file = FileId(ref.device, ref.inode)
        self._descriptors = [fd, ring_fd]
        self._bells = bells
        self._holds = 1
        self._owned_since: int | None = None  # the registry's generation, when this process made the segment

    def __repr__(self) -> str:
        return f"<{self.ref.name} readers={self.readers} capacity={self.capacity}>"

    @classmethod
    def create(
        cls,
        *,
        readers: int,
        capacity: int,
        checksum: bool = False,
        name: str | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> Segment:
        """Make a segment: anonymous, or named when `name` or `directory` is given.

        `capacity` is the ring's size in bytes, a multiple of RING_ALIGN. Raises ValueError for numbers out of range,
        FileExistsError for a taken name, SegmentTooLarge when the memory is not there.
        """
        _check_shape(readers, capacity)
        identity = os.urandom(16)
        size, roles = _layout.segment_bytes(readers, capacity), readers + 1
        with descriptors_for(f"a queue of {readers} readers", roles + 2), ExitStack() as undo:
            if name is None and directory is None:
                backing = _backing.make_anonymous(size, roles)
            else:
                backing = _backing.make_named(_backing.named_path(name, directory, identity), size, roles)
                undo.callback(_backing.remove_named, str(backing.path), FileId.of(backing.fd), roles)
            undo.callback(_descriptors.close_all, (backing.fd, *backing.bells))
            header = _new_header(backing.fd, identity, readers, capacity, checksum)
            _header.write(backing.fd, header, [FileId.of(bell) for bell in backing.bells])
            ring_fd = _open_ring(backing.fd)
            undo.callback(os.close, ring_fd)
            segment = cls(_new_ref(header, backing), header, backing.fd, ring_fd, dict(enumerate(backing.bells)))
            undo.pop_all()  # first: what is in the registry must not be closed here, whatever a signal raises
            with registry.lock:
                segment._owned_since = registry.generation
                registry.segments[segment._file] = segment
                if backing.path is not None:
                    # Again: a look from this process may have ended it.
                    _descriptors.be_present(backing.fd, backing.path)
            return segment

    @classmethod
    def adopt(cls, ref: SegmentRef, descriptors: Mapping[int, int] | None = None) -> Segment:
        """Open the segment that `ref` names, or hold the one that this process has already.

        `descriptors` came from another process and belong to this call, whether it succeeds or not. Without them the
        segment is found in its directory or in the owner's descriptors. AttachError (LayoutMismatch) says why it
        cannot be used.
        """
        with registry.lock:
            known = registry.segments.get(FileId(ref.device, ref.inode))
            if known is None:
                return cls._attach(ref, dict(descriptors or {}))
            known._keep(descriptors or {})
            if known.identity != ref.identity:
                raise AttachError(f"{ref.name} is gone: its inode now belongs to {known.ref.name}")
            known.hold()
            return known

    @classmethod
    def _attach(cls, ref: SegmentRef, descriptors: dict[int, int]) -> Segment:
        with descriptors_for(f"attaching to {ref.name}", 2), ExitStack() as undo:
            for travelled in set(descriptors.values()):
                undo.callback(os.close, travelled)
            fd = descriptors.pop(SEGMENT_KEY, -1)
            travelled_too = fd >= 0
            if not travelled_too:
                fd = _descriptors.reopen_segment(ref)
                undo.callback(os.close, fd)
            _descriptors.verify(fd, stat.S_ISREG, FileId(ref.device, ref.inode), ref.name)
            if ref.path is not None:
                _descriptors.be_present(fd, ref.path)
                if not travelled_too and os.fstat(fd).st_nlink == 0:
                    raise AttachError(f"{ref.name} is gone: it was unlinked while it was being opened")
            header = _header.read(fd, ref.name)
            _header.check(fd, header, ref.name, boot_id=_host.boot_id())
            if (header.identity, header.readers) != (ref.identity, ref.readers):
                raise AttachError(f"{ref.name} is gone: its place was taken by segment {header.identity.hex()[:12]}")
            for role, bell in descriptors.items():
                _verify_bell(fd, ref, role, bell)
            ring_fd = _open_ring(fd)
            undo.callback(os.close, ring_fd)
            segment = cls(ref, header, fd, ring_fd, descriptors)
            undo.pop_all()  # first, as above
            registry.segments[segment._file] = segment
            return segment

    def bell(self, role: int) -> int:
        """The descriptor of a role's bell, opened at first use and kept. AttachError if it cannot be."""
        if not 0 <= role <= self.readers:
            raise ValueError(f"role must be from 0 to {self.readers}, got {role}")
        with registry.lock:
            if role not in self._bells:
                self._bells[role] = _descriptors.reopen_bell(self.ref, role, _header.bell(self.fd, role))
            return self._bells[role]

    def bells_for(self, role: int) -> dict[int, int]:
        """Every bell that the holder of `role` sleeps on or rings, by role: all for the writer, two for a reader.

        Open them while the owner lives: afterwards nobody can be asked for them.
        """
        needed = range(self.readers + 1) if role == _layout.WRITER else (_layout.WRITER, role)
        with descriptors_for(f"{_layout.role_name(role)} of {self.ref.name}", len(needed)):
            return {other: self.bell(other) for other in needed}

    def ring(self, role: int) -> None:
        """Wake whoever sleeps on that bell."""
        _descriptors.ring(self.bell(role))

    def hold(self) -> None:
        """Count one more user."""
        with registry.lock:
            self._holds += 1

    def drop(self) -> None:
        """Count one user less. The last one closes the segment, or the release of the last role after it."""
        with registry.lock:
            self._holds -= 1
            self.settle()

    def settle(self) -> None:
        """Close the descriptors if nobody needs them any more. Idempotent."""
        with registry.lock:
            if self._holds > 0 or self.claims or registry.segments.get(self._file) is not self:
                return
            del registry.segments[self._file]
            self.mapping.close()
            if self.ref.path is not None and self._owned_since == registry.generation:
                _backing.remove_named(self.ref.path, self._file, self.readers + 1)
            _descriptors.close_all({*self._descriptors, *self._bells.values()})

    def _keep(self, descriptors: Mapping[int, int]) -> None:
        """Take in descriptors that travelled here later. Those of the inode must stay open while it is used."""
        for role, fd in descriptors.items():
            if fd in self._descriptors or fd in self._bells.values():
                continue
            if FileId.of(fd) == self._file:
                self._descriptors.append(fd)
            elif role in self._bells or FileId.of(fd) != _header.bell(self.fd, role):
                os.close(fd)
            else:
                self._bells[role] = fd


registry = Registry()


def _check_shape(readers: int, capacity: int) -> None:
    if not 0 <= readers <= _layout.MAX_READERS:
        raise ValueError(f"readers must be from 0 to {_layout.MAX_READERS}, got {readers}")
    if capacity <= 0 or capacity % _layout.RING_ALIGN:
        raise ValueError(f"capacity must be a positive multiple of {_layout.RING_ALIGN} bytes, got {capacity}")


def _new_header(fd: int, identity: bytes, readers: int, capacity: int, checksum: bool) -> Header:
    file = FileId.of(fd)
    return Header(
        magic=_layout.MAGIC,
        version=_layout.LAYOUT_VERSION,
        word_bytes=_layout.WORD_BYTES,
        segment_bytes=_layout.segment_bytes(readers, capacity),
        capacity=capacity,
        readers=readers,
        flags=_layout.HEADER_CHECKSUM if checksum else 0,
        identity=identity,
        creator_pid=os.getpid(),
        creator_start=_host.start_time(os.getpid()),
        boot_id=_host.boot_id(),
        pid_namespace=_host.pid_namespace(),
        control_offset=_layout.control_offset(readers),
        ring_offset=_layout.ring_offset(readers),
        segment_device=file.device,
        segment_inode=file.inode,
    )


def _new_ref(header: Header, backing: _backing.Backing) -> SegmentRef:
    return SegmentRef(
        pid=header.creator_pid,
        start=header.creator_start,
        boot_id=header.boot_id,
        pid_namespace=header.pid_namespace,
        segment_fd=backing.fd,
        bell_fds=() if backing.path else backing.bells,
        device=header.segment_device,
        inode=header.segment_inode,
        identity=header.identity,
        readers=header.readers,
        path=backing.path,
    )


def _open_ring(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def _verify_bell(fd: int, ref: SegmentRef, role: int, bell: int) -> None:
    if not 0 <= role <= ref.readers:
        raise AttachError(f"{ref.name} has no role {role}: it has {ref.readers} readers")
    _descriptors.verify(bell, stat.S_ISFIFO, _header.bell(fd, role), f"the bell of role {role} of {ref.name}")


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(
        before=registry.before_fork,
        after_in_parent=registry.after_fork_in_parent,
        after_in_child=registry.after_fork_in_child,
    )
