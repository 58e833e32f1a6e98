"""Attaching: by handle, by descriptors that travelled, again; and every reason to refuse."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from forked import Child, in_child, open_descriptors
from strangers import RING, forgotten, refused

from aiospin import _layout, _roles
from aiospin._errors import AttachError
from aiospin._handle import Handle, SegmentRef
from aiospin._segment import SEGMENT_KEY, Segment, registry

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def segment() -> Iterator[Segment]:
    """An anonymous segment of two readers."""
    made = Segment.create(readers=2, capacity=RING)
    yield made
    made.drop()


@pytest.fixture
def strange() -> Iterator[Segment]:
    """A segment that this process holds, but whose handle leads through /proc as a stranger's would."""
    made = Segment.create(readers=2, capacity=RING)
    with forgotten(made):
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
    with forgotten(segment):
        ref = replace(segment.ref, pid=1 << 30, pid_namespace=1)
        landed = Segment.adopt(ref, travelled)
        assert landed.fd == travelled[SEGMENT_KEY]
        assert landed.bells_for(2) == {0: travelled[0], 2: travelled[2]}
        with pytest.raises(AttachError, match="another PID namespace"):
            landed.bell(1)
        landed.drop()
        assert not set(travelled.values()) & open_descriptors().keys()


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
    with forgotten(segment), pytest.raises(AttachError, match=reason):
        Segment.adopt(segment.ref, travelled)
    assert open_descriptors() == before


def test_a_stale_handle_says_that_the_owner_is_gone(owner: Child) -> None:
    ref = ref_from(owner)
    owner.kill()
    refused(ref, f"owner pid {ref.pid}.*stale: its owner is gone")


def test_an_owner_that_nobody_has_reaped_is_gone_too(owner: Child) -> None:
    ref = ref_from(owner)
    os.kill(owner.pid, signal.SIGKILL)
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    refused(ref, "stale: its owner is gone")


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
