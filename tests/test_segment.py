"""New segments: closed to others, reserved, and nothing left of those that failed half-way."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import in_child, open_descriptors
from strangers import RING

from aiospin import _layout
from aiospin._errors import SegmentTooLarge
from aiospin._segment import Segment, registry

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def segment() -> Iterator[Segment]:
    """An anonymous segment of two readers."""
    made = Segment.create(readers=2, capacity=RING)
    yield made
    made.drop()


def test_an_anonymous_segment_is_private_sealed_and_reserved(segment: Segment) -> None:
    status = os.fstat(segment.fd)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == _layout.segment_bytes(2, RING)
    assert status.st_blocks * 512 >= status.st_size
    for seal in (fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SEAL):
        assert fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS) & seal
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
    with pytest.raises(OSError, match="a queue of 5 readers takes 8 descriptors; this process may have"):
        Segment.create(readers=5, capacity=RING)
