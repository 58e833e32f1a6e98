"""Segments: made closed to others, attached only when everything fits, closed without a trace."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import Child, in_child, open_descriptors

import aiospin
from aiospin import _backing, _header, _host, _layout, _roles
from aiospin._errors import AttachError, LayoutMismatch, SegmentTooLarge
from aiospin._handle import Handle, SegmentRef
from aiospin._segment import SEGMENT_KEY, Segment, registry

RING = 65536
HEADER_FIELDS = tuple(_header.Header.__dataclass_fields__)
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", *([] if IS_ROOT else ["--user", "--map-root-user"])]
CAN_UNSHARE = (
    shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
)

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def segment() -> Iterator[Segment]:
    """An anonymous segment of two readers."""
    made = Segment.create(readers=2, capacity=RING)
    yield made
    made.drop()


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Segment]:
    """A named one in a directory of the test's own."""
    made = Segment.create(readers=2, capacity=RING, directory=tmp_path, name="q")
    yield made
    made.drop()


@pytest.fixture
def owner() -> Iterator[Child]:
    """A child that owns an anonymous segment, of which this process knows only the text of a handle."""

    def body(channel: Any) -> None:
        made = Segment.create(readers=2, capacity=RING, checksum=True)
        channel.send(str(Handle(made.ref, 1, "bytes")))
        while (request := channel.recv()) is not None:
            channel.send(request(made))

    with Child(body) as child:
        yield child


def ref_from(owner: Child) -> SegmentRef:
    """What the owner's handle says."""
    return Handle.parse(owner.channel.recv()).segment


def refused(ref: SegmentRef, reason: str, error: type[AttachError] = AttachError) -> AttachError:
    """Attaching fails for that reason, names the segment and leaves no descriptor open."""
    before = open_descriptors()
    with pytest.raises(error, match=reason) as caught:
        Segment.adopt(ref)
    assert open_descriptors() == before
    assert ref.identity.hex()[:12] in str(caught.value)
    return caught.value


def forget(segment: Segment) -> Segment:
    """Let the registry not know the segment, so that the next adopt really attaches."""
    del registry.segments[segment._file]
    return segment


@pytest.fixture
def strange(segment: Segment) -> Iterator[Segment]:
    """A segment that this process holds, but whose handle leads through /proc as a stranger's would."""
    yield forget(segment)
    registry.segments[segment._file] = segment


@pytest.fixture
def strange_named(named: Segment) -> Iterator[Segment]:
    """A named one that this process holds, but will attach as a stranger."""
    yield forget(named)
    registry.segments[named._file] = named


# Creation


def test_an_anonymous_segment_is_private_sealed_and_reserved(segment: Segment) -> None:
    status = os.fstat(segment.fd)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == _layout.segment_bytes(2, RING)
    assert status.st_blocks * 512 >= status.st_size
    assert fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    assert fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, 0)


def test_one_descriptor_of_each_kind_and_all_close_on_exec(segment: Segment) -> None:
    ours = {fd: name for fd, name in open_descriptors().items() if "memfd:aiospin" in name}
    modes = sorted(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE for fd in ours)
    assert modes == [os.O_RDONLY, os.O_RDWR]
    assert not any(os.get_inheritable(fd) for fd in (*ours, *segment.bells_for(0).values()))


def test_bells_are_small_nonblocking_pipes_open_both_ways(segment: Segment) -> None:
    for role in range(3):
        bell = segment.bell(role)
        flags = fcntl.fcntl(bell, fcntl.F_GETFL)
        assert flags & os.O_ACCMODE == os.O_RDWR
        assert flags & os.O_NONBLOCK
        for _ in range(100_000):
            segment.ring(role)  # a full bell has been rung
        assert 0 < len(os.read(bell, 1 << 20)) <= 4096
        with pytest.raises(BlockingIOError):
            os.read(bell, 1)


def test_no_readers_is_legal() -> None:
    segment = Segment.create(readers=0, capacity=RING)
    assert segment.bells_for(0) == {0: segment.bell(0)}
    segment.drop()


def test_who_needs_which_bells(segment: Segment) -> None:
    assert segment.bells_for(0).keys() == {0, 1, 2}
    assert segment.bells_for(2).keys() == {0, 2}


def test_a_new_segment_is_empty_and_its_words_can_be_written(segment: Segment) -> None:
    words = range(_layout.control_offset(2), _layout.gates_offset(2) + 2 * _layout.GATE_BYTES, 8)
    assert {segment.mapping.load(offset) for offset in words} == {0}
    at = _layout.seat_offset(2, 1)
    segment.mapping.store(at, 41)
    assert segment.mapping.add(at, 1) == 41
    assert in_child(lambda: segment.mapping.load(at)) == 42


@pytest.mark.parametrize(
    ("readers", "capacity", "named_value"),
    [(-1, RING, "-1"), (1025, RING, "1025"), (1, 0, "0"), (1, -RING, str(-RING)), (1, RING + 1, str(RING + 1))],
)
def test_numbers_out_of_range_are_named(readers: int, capacity: int, named_value: str) -> None:
    with pytest.raises(ValueError, match=f"got {named_value}"):
        Segment.create(readers=readers, capacity=capacity)


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.ENOMEM, errno.EFBIG])
@pytest.mark.parametrize("backing", ["anonymous", "named"])
def test_memory_that_is_not_there_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusal: int, backing: str
) -> None:
    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(SegmentTooLarge) as caught:
        Segment.create(readers=1, capacity=RING, directory=tmp_path if backing == "named" else None)
    assert caught.value.size == _layout.segment_bytes(1, RING)
    assert caught.value.limit > 0
    assert os.strerror(refusal) in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("backing", ["anonymous", "named"])
@pytest.mark.parametrize("step", range(12))
def test_a_failure_at_any_step_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backing: str, step: int
) -> None:
    calls = iter(range(1000))

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if next(calls) == step:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(*args, **named)

        return call

    before = open_descriptors()
    with monkeypatch.context() as patch:
        for name in ("open", "pipe2", "memfd_create", "mkfifo", "mkdir", "pwrite", "fchmod"):
            patch.setattr(os, name, failing(getattr(os, name)))
        with pytest.raises(OSError):
            Segment.create(readers=3, capacity=RING, directory=tmp_path if backing == "named" else None)
    assert open_descriptors() == before
    assert os.listdir(tmp_path) == []
    assert not registry.segments


def test_too_few_descriptors_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(flags: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe2", refuse)
    with pytest.raises(OSError, match="5 readers take 6 bells"):
        Segment.create(readers=5, capacity=RING)


# Named segments


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_named_segments_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        segment = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, *tmp_path.rglob("*"))}
    assert modes | {tmp_path.name: 0} == {tmp_path.name: 0, "q": 0o700, "ring": 0o600, "bell-0": 0o600, "bell-1": 0o600}
    segment.drop()
    assert os.listdir(tmp_path) == []


def test_a_name_alone_goes_to_the_directory_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOSPIN_DIR", str(tmp_path))
    segment = Segment.create(readers=0, capacity=RING, name="q")
    assert segment.ref.path == str(tmp_path / "q")
    segment.drop()


def test_a_name_alone_goes_to_the_users_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOSPIN_DIR", raising=False)
    segment = Segment.create(readers=0, capacity=RING, name=f"test-{os.getpid()}")
    assert segment.ref.path == f"/dev/shm/aiospin-{os.geteuid()}/test-{os.getpid()}"
    assert stat.S_IMODE(os.stat(os.path.dirname(segment.ref.path)).st_mode) == 0o700
    segment.drop()


def test_without_a_name_two_segments_never_collide(tmp_path: Path) -> None:
    pair = [Segment.create(readers=0, capacity=RING, directory=tmp_path) for _ in range(2)]
    assert pair[0].ref.path != pair[1].ref.path
    for segment in pair:
        segment.drop()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("/tmp")])
def test_a_name_that_exists_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "q")
    with pytest.raises(FileExistsError, match="q"):
        Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    assert os.listdir(tmp_path) == ["q"]


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/abs", "nul\0"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name must be"):
        Segment.create(readers=1, capacity=RING, directory=tmp_path, name=name)


def test_a_parent_that_others_can_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOSPIN_DIR", raising=False)
    parent = tmp_path / "parent"
    monkeypatch.setattr(_backing, "_own_parent", lambda: str(parent))
    parent.mkdir(0o755)
    with pytest.raises(AttachError, match="open to other users"):
        Segment.create(readers=1, capacity=RING, name="q")
    parent.rmdir()
    parent.symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        Segment.create(readers=1, capacity=RING, name="q")


def test_a_parent_that_vanishes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOSPIN_DIR", raising=False)
    parent = tmp_path / "parent"
    monkeypatch.setattr(_backing, "_own_parent", lambda: str(parent))
    require, times = _backing._require_parent, iter([True])

    def require_then_lose(place: str) -> None:
        require(place)
        if next(times, False):
            os.rmdir(place)

    monkeypatch.setattr(_backing, "_require_parent", require_then_lose)
    Segment.create(readers=1, capacity=RING, name="q").drop()
    assert os.listdir(tmp_path) == []


def test_only_the_owner_takes_the_name_away(named: Segment) -> None:
    assert named.ref.path is not None
    in_child(named.drop)
    assert os.path.exists(named.ref.path)
    with Child(lambda channel: Segment.adopt(channel.recv()).drop()) as child:
        child.channel.send(named.ref)
        child.result()
    assert os.path.exists(named.ref.path)


def test_a_name_that_belongs_to_another_by_now_stays(tmp_path: Path) -> None:
    segment = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    os.rename(tmp_path / "q", tmp_path / "moved")
    other = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
    segment.drop()
    assert sorted(os.listdir(tmp_path)) == ["moved", "q"]
    other.drop()
    shutil.rmtree(tmp_path / "moved")


def test_a_named_segment_outlives_its_owner(tmp_path: Path) -> None:
    def body(channel: Any) -> None:
        made = Segment.create(readers=1, capacity=RING, directory=tmp_path, name="q")
        made.mapping.store(_layout.seat_offset(1, 1), 7)
        channel.send(made.ref)
        channel.recv()

    with Child(body) as child:
        ref = child.channel.recv()
        child.kill()
    segment = Segment.adopt(ref)
    assert segment.mapping.load(_layout.seat_offset(1, 1)) == 7
    segment.ring(1)
    assert os.read(segment.bell(1), 10) == b"\0"
    segment.drop()
    _backing.remove_named(str(ref.path), _header.FileId(ref.device, ref.inode), 2)


# Attaching


def test_a_handle_leads_to_the_same_memory_and_bells(owner: Child) -> None:
    ref = ref_from(owner)
    segment = Segment.adopt(ref)
    assert (segment.readers, segment.capacity, segment.checksum) == (2, RING, True)
    assert segment.identity == ref.identity
    segment.mapping.store(_layout.seat_offset(2, 2), 99)
    owner.channel.send(_read_seat_word)
    assert owner.channel.recv() == 99
    segment.ring(1)
    owner.channel.send(_read_bell)
    assert owner.channel.recv() == b"\0"
    assert _roles.claim(segment, 0) == 1
    _roles.release(segment, 0)
    segment.drop()


def _read_seat_word(segment: Segment) -> int:
    return int(segment.mapping.load(_layout.seat_offset(2, 2)))


def _read_bell(segment: Segment) -> bytes:
    return os.read(segment.bell(1), 10)


def test_attaching_again_gives_the_same_segment(owner: Child) -> None:
    ref = ref_from(owner)
    first = Segment.adopt(ref)
    before = open_descriptors()
    second = Segment.adopt(ref)
    assert first is second
    assert open_descriptors() == before
    first.drop()
    assert second in registry.segments.values()
    second.drop()
    assert not registry.segments


def test_an_extra_drop_is_harmless(owner: Child) -> None:
    segment = Segment.adopt(ref_from(owner))
    segment.drop()
    segment.drop()
    segment.settle()
    assert not registry.segments


def test_a_used_segment_needs_its_owner_no_more(owner: Child) -> None:
    segment = Segment.adopt(ref_from(owner))
    segment.bells_for(0)
    owner.kill()
    segment.ring(2)
    assert os.read(segment.bell(2), 10) == b"\0"
    segment.drop()


def test_descriptors_that_travelled_need_no_proc(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    travelled = {SEGMENT_KEY: os.dup(segment.fd), 0: os.dup(segment.bell(0)), 2: os.dup(segment.bell(2))}
    forget(segment)
    ref = replace(segment.ref, pid=1 << 30, pid_namespace=1)
    landed = Segment.adopt(ref, travelled)
    assert landed.fd == travelled[SEGMENT_KEY]
    assert landed.bells_for(2) == {0: travelled[0], 2: travelled[2]}
    with pytest.raises(AttachError, match="another PID namespace"):
        landed.bell(1)
    landed.drop()
    assert not set(travelled.values()) & open_descriptors().keys()
    registry.segments[segment._file] = segment


def test_descriptors_that_come_twice_are_sorted_out(owner: Child) -> None:
    ref = ref_from(owner)
    segment = Segment.adopt(ref)
    bell = segment.bell(1)
    spare = {SEGMENT_KEY: os.dup(segment.fd), 1: os.dup(bell), 0: os.open(f"/proc/self/fd/{bell}", os.O_RDWR)}
    _roles.claim(segment, 1)
    assert Segment.adopt(ref, spare) is segment
    assert spare[SEGMENT_KEY] in open_descriptors()  # closing it would free the role
    assert spare[1] not in open_descriptors() and spare[0] not in open_descriptors()
    assert Segment.adopt(ref, {SEGMENT_KEY: segment.fd, 1: bell}) is segment
    assert in_child(lambda: _roles.holder(segment, 1)) == os.getpid()
    _roles.release(segment, 1)
    for _ in range(3):
        segment.drop()


@pytest.mark.parametrize(
    ("key", "reason"),
    [(SEGMENT_KEY, "is not what it was"), (1, "bell of role 1 .* is not what it was"), (9, "no role 9")],
)
def test_a_travelled_descriptor_of_something_else_is_refused(segment: Segment, key: int, reason: str) -> None:
    before = open_descriptors()
    travelled = {SEGMENT_KEY: os.dup(segment.fd)} if key != SEGMENT_KEY else {}
    travelled[key] = os.open("/dev/null", os.O_RDWR)
    forget(segment)
    with pytest.raises(AttachError, match=reason):
        Segment.adopt(segment.ref, travelled)
    registry.segments[segment._file] = segment
    assert open_descriptors() == before


def test_a_stale_handle_says_that_the_owner_is_gone(owner: Child) -> None:
    ref = ref_from(owner)
    owner.kill()
    refused(ref, f"owner pid {ref.pid}.*stale: its owner is gone")


def test_a_pid_that_changed_hands_is_not_the_owner(strange: Segment) -> None:
    refused(
        replace(strange.ref, start=strange.ref.start + 1), "stale: its owner is gone, and its pid belongs to another"
    )


def test_a_closed_descriptor_is_gone(strange: Segment) -> None:
    refused(replace(strange.ref, segment_fd=1 << 20), "gone: its owner has closed descriptor")


def test_another_machine_is_another_boot(strange: Segment) -> None:
    refused(replace(strange.ref, boot_id=bytes(16)), "another machine, or before this one last started")


def test_another_pid_namespace_is_named(strange: Segment) -> None:
    refused(replace(strange.ref, pid_namespace=17), "another PID namespace: 17")


def test_a_reused_number_is_noticed(strange: Segment) -> None:
    refused(replace(strange.ref, segment_fd=strange.bell(0)), "is not what it was: found prw")
    refused(replace(strange.ref, inode=strange.ref.inode + 1000), "is not what it was")


def test_another_identity_is_noticed(strange: Segment) -> None:
    ref = replace(strange.ref, identity=bytes(16))
    refused(ref, f"its place was taken by segment {strange.identity.hex()[:12]}")
    registry.segments[strange._file] = strange
    refused(ref, f"now belongs to segment {strange.identity.hex()[:12]}")


def test_a_bell_that_was_reused_is_never_written_to(strange: Segment) -> None:
    stranger = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    bells = (strange.ref.bell_fds[0], stranger[0], strange.ref.bell_fds[2])
    segment = Segment.adopt(replace(strange.ref, bell_fds=bells))
    before = open_descriptors()
    with pytest.raises(AttachError, match=r"the bell of role 1 .* is not what it was"):
        segment.ring(1)
    assert open_descriptors() == before
    with pytest.raises(BlockingIOError):
        os.read(stranger[0], 1)
    segment.drop()
    for fd in stranger:
        os.close(fd)


@pytest.mark.parametrize("role", [-1, 3])
def test_a_bell_out_of_range_is_named(segment: Segment, role: int) -> None:
    with pytest.raises(ValueError, match=f"from 0 to 2, got {role}"):
        segment.bell(role)


# What the file says


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("magic", 0, "not an aiospin segment: it begins with 0x0000000000000000"),
        ("word_bytes", 4, "damaged: word_bytes is 4, not 8"),
        ("segment_bytes", 1 << 62, "damaged: segment_bytes is"),
        ("capacity", 0, "damaged: its capacity is 0"),
        ("capacity", RING + 8, "damaged: its capacity is"),
        ("capacity", RING * 2, "damaged: segment_bytes is"),
        ("readers", 1025, "damaged: it claims 1025 readers"),
        ("readers", 1024, "damaged: control_offset is"),
        ("readers", 1, "its place was taken|damaged"),
        ("flags", 1 << 31, "damaged: unknown flags 0x80000000"),
        ("control_offset", 8, "damaged: control_offset is 8"),
        ("ring_offset", 8, "damaged: ring_offset is 8"),
        ("boot_id", bytes(16), "another machine, or before"),
        ("segment_inode", 1, "is a copy"),
        ("identity", bytes(16), "its place was taken by segment 000000000000"),
    ],
)
def test_a_scribbled_header_is_refused(strange: Segment, field: str, value: Any, reason: str) -> None:
    header = _header.read(strange.fd, "it")
    _header.write(strange.fd, replace(header, **{field: value}), [])
    refused(strange.ref, reason)
    _header.write(strange.fd, header, [])
    Segment.adopt(strange.ref).drop()


def test_another_layout_version_is_named_with_ours(strange: Segment) -> None:
    header = _header.read(strange.fd, "it")
    _header.write(strange.fd, replace(header, version=9), [])
    error = refused(strange.ref, "layout version 9; this aiospin reads version 1", LayoutMismatch)
    assert isinstance(error, LayoutMismatch) and (error.found, error.supported) == (9, 1)
    _header.write(strange.fd, header, [])


@pytest.mark.parametrize("word", range(0, _layout.HEADER_BYTES, 8))
def test_no_scribble_anywhere_in_the_header_gets_past(strange: Segment, word: int) -> None:
    before = os.pread(strange.fd, 8, word)
    os.pwrite(strange.fd, struct.pack("<Q", struct.unpack("<Q", before)[0] ^ (1 << 40)), word)
    creator = {56, 64, 88}  # pid, start and namespace of the creator are for people; nothing is computed from them
    if word in creator:
        Segment.adopt(strange.ref).drop()
    else:
        refused(strange.ref, "segment ")
    os.pwrite(strange.fd, before, word)


@pytest.mark.parametrize("length", [0, 8, _layout.HEADER_BYTES - 1, _layout.HEADER_BYTES, 4096, 65536])
def test_a_file_that_is_too_short_is_refused(strange_named: Segment, length: int) -> None:
    whole = os.fstat(strange_named.fd).st_size
    content = os.pread(strange_named.fd, whole, 0)
    os.ftruncate(strange_named.fd, length)
    refused(strange_named.ref, f"too short: {length} bytes")
    os.pwrite(strange_named.fd, content, 0)


# What the directory says


def test_a_named_segment_is_found_without_its_owner(strange_named: Segment) -> None:
    ref = replace(strange_named.ref, pid=1 << 30, pid_namespace=17)
    segment = Segment.adopt(ref)
    segment.ring(2)
    assert os.read(strange_named.bell(2), 10) == b"\0"
    segment.drop()


def test_a_directory_that_is_gone_is_named(strange_named: Segment) -> None:
    path = str(strange_named.ref.path)
    os.rename(path, f"{path}-away")
    refused(strange_named.ref, f"No such file or directory: '{path}'")
    os.rename(f"{path}-away", path)


def test_a_directory_open_to_others_is_refused(strange_named: Segment) -> None:
    os.chmod(str(strange_named.ref.path), 0o701)
    with pytest.raises(AttachError, match="its mode is 0o701"):
        Segment.adopt(strange_named.ref)
    os.chmod(str(strange_named.ref.path), 0o700)


def test_a_directory_of_another_user_is_refused(strange_named: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(AttachError, match=f"another user: its uid is {own}"):
        Segment.adopt(strange_named.ref)


@pytest.mark.parametrize("entry", [".", "ring"])
def test_symbolic_links_are_refused(strange_named: Segment, entry: str) -> None:
    place = os.path.normpath(os.path.join(str(strange_named.ref.path), entry))
    os.rename(place, f"{place}-away")
    os.symlink(f"{place}-away", place)
    refused(strange_named.ref, "a symbolic link|is not what it was")
    os.unlink(place)
    os.rename(f"{place}-away", place)


def test_a_copied_ring_file_is_refused(strange_named: Segment) -> None:
    place = os.path.join(str(strange_named.ref.path), "ring")
    os.rename(place, f"{place}-away")
    shutil.copy(f"{place}-away", place)
    refused(strange_named.ref, "is not what it was")
    copied = os.stat(place)
    refused(replace(strange_named.ref, inode=copied.st_ino, device=copied.st_dev), "is a copy")
    os.rename(f"{place}-away", place)


# Who may look


class Peer:
    """A /proc of two processes, written by the test: the caller ("self") and the owner (7)."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.write("self")

    def write(
        self, pid: str, uid: int = 1000, gid: int = 1000, caps: int = 0, user_map: str = "0 0 4294967295"
    ) -> None:
        place = self.proc / pid
        place.mkdir(exist_ok=True)
        ids = "Uid:" + f"\t{uid}" * 4 + "\nGid:" + f"\t{gid}" * 4 + "\n"
        (place / "status").write_text(f"Name:\tx: y\n{ids}CapPrm:\t{caps:016x}\n")
        (place / "uid_map").write_text(f"   {user_map}\n")


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (None, "gone or hidden"),
        ({"uid": 1001}, "another user: its uid is 1001, this one's is 1000"),
        ({"gid": 1001}, "another group: its gid is 1001"),
        ({"user_map": "0 1000 1"}, "another user namespace"),
        ({"caps": 1 << 21}, "capabilities that this process lacks"),
        ({}, "not dumpable"),
    ],
)
def test_the_failing_condition_is_named(tmp_path: Path, peer: dict[str, Any] | None, reason: str) -> None:
    machine = Peer(tmp_path)
    if peer is not None:
        machine.write("7", **peer)
    assert reason in _host.why_not_readable(7, tmp_path)


def test_when_every_condition_holds_the_kernel_has_its_own_reasons(tmp_path: Path) -> None:
    machine = Peer(tmp_path)
    machine.write("self", uid=os.getuid())
    machine.write("7", uid=os.getuid())
    assert "security module" in _host.why_not_readable(7, tmp_path)


def test_start_times_survive_any_program_name(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b) S) S {fields}\n")
    assert _host.start_time(7, tmp_path) == 22
    assert _host.start_time(8, tmp_path) == 0


if IS_ROOT:

    def test_another_user_is_refused_by_name() -> None:
        def as_nobody(channel: Any) -> None:
            ref = channel.recv()
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with pytest.raises(AttachError) as caught:
                Segment.adopt(ref)
            channel.send(str(caught.value))

        with Child(as_nobody) as stranger:
            segment = Segment.create(readers=1, capacity=RING)
            stranger.channel.send(segment.ref)
            assert f"another user: its uid is 0, this one's is {NOBODY}" in stranger.channel.recv()
            segment.drop()


if CAN_UNSHARE:

    def test_a_program_in_another_pid_namespace(segment: Segment, named: Segment) -> None:
        script = (
            "import sys\n"
            "from aiospin import _roles\n"
            "from aiospin._errors import AttachError\n"
            "from aiospin._handle import Handle\n"
            "from aiospin._segment import Segment\n"
            "anonymous, named = map(Handle.parse, sys.argv[1:])\n"
            "try:\n"
            "    Segment.adopt(anonymous.segment)\n"
            "except AttachError as error:\n"
            "    print(error)\n"
            "segment = Segment.adopt(named.segment)\n"
            "print(_roles.holder(segment, 0), _roles.holder(segment, 2))\n"
            "print(_roles.claim(segment, named.role), flush=True)\n"
            "sys.stdin.read()\n"
        )
        _roles.claim(named, 0)
        handles = [str(Handle(made.ref, 1, "bytes")) for made in (segment, named)]
        root = Path(next(iter(aiospin.__path__))).parent
        path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        with subprocess.Popen(
            [*UNSHARE, sys.executable, "-c", script, *handles],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        ) as program:
            assert program.stdout is not None
            assert "lives in another PID namespace" in program.stdout.readline()
            assert program.stdout.readline() == "0 None\n"
            assert program.stdout.readline() == "1\n"
            assert _roles.holder(named, 1) not in (None, os.getpid())
            assert _roles.seat(named, 1).pid_namespace != named.ref.pid_namespace
            program.communicate("")
        assert _roles.holder(named, 1) is None
        _roles.release(named, 0)
