"""Roles: one holder at a time, among threads, processes, forks and PID namespaces."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from forked import Child, in_child

from aiospin import Queue, _descriptors, _layout, _roles
from aiospin._errors import RoleTaken
from aiospin._peers import Peers
from aiospin._segment import Segment, registry
from aiospin._tenancy import Tenancy

WRITER, READER = 0, 1


@pytest.fixture
def segment(leaves_nothing: object) -> Iterator[Segment]:
    """A segment of two readers; the test must leave it without claims."""
    made = Segment.create(readers=2, capacity=65536)
    yield made
    for role in list(made.claims):
        _roles.release(made, role)
    made.drop()


def claiming(segment: Segment, role: int) -> Child:
    """A child that holds the role when this returns, and does so until it is sent something; then it gives it back."""

    def body(channel: Any) -> None:
        channel.send(_roles.claim(segment, role))
        channel.recv()
        _roles.release(segment, role)

    return Child(body)


def test_a_free_role_has_no_holder(segment: Segment) -> None:
    assert [_roles.holder(segment, role) for role in range(3)] == [None, None, None]


def test_the_seat_says_who_sits_there(segment: Segment) -> None:
    tenure = _roles.claim(segment, READER, light=True)
    seat = _roles.seat(segment, READER)
    assert tenure == seat.tenure == 1
    assert seat.present and seat.light
    assert seat.pid == os.getpid()
    assert seat.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert _roles.holder(segment, READER) == os.getpid()
    assert _roles.holder(segment, WRITER) is None


def test_each_claim_is_a_new_tenure(segment: Segment) -> None:
    for expected in (1, 2, 3):
        assert _roles.claim(segment, WRITER) == expected
        _roles.release(segment, WRITER)
        assert not _roles.seat(segment, WRITER).present
    assert not _roles.seat(segment, WRITER).light


def test_a_role_is_taken_once_within_a_process(segment: Segment) -> None:
    _roles.claim(segment, READER)
    with pytest.raises(RoleTaken, match=f"reader 0 is held by pid {os.getpid()}") as caught:
        _roles.claim(segment, READER)
    assert caught.value.pid == os.getpid()
    _roles.claim(segment, READER + 1)


def test_one_of_many_threads_wins(segment: Segment) -> None:
    outcomes: list[object] = []
    barrier = threading.Barrier(8)

    def contend() -> None:
        barrier.wait()
        try:
            outcomes.append(_roles.claim(segment, WRITER))
        except RoleTaken as error:
            outcomes.append(error.pid)

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == sorted(["1"] + [str(os.getpid())] * 7)


def test_another_process_is_named(segment: Segment) -> None:
    with claiming(segment, READER) as child:
        assert child.channel.recv() == 1
        assert _roles.holder(segment, READER) == child.pid
        with pytest.raises(RoleTaken) as caught:
            _roles.claim(segment, READER)
        assert caught.value.pid == child.pid
        child.channel.send("go")
        child.result()
        assert _roles.holder(segment, READER) is None
        assert _roles.claim(segment, READER) == 2


def test_death_frees_the_lock_and_leaves_the_seat_taken(segment: Segment) -> None:
    with claiming(segment, READER) as child:
        child.channel.recv()
        child.kill()
        assert _roles.holder(segment, READER) is None
        assert _roles.seat(segment, READER).present
        assert _roles.claim(segment, READER) == 2


def test_releasing_what_is_not_held_does_nothing(segment: Segment) -> None:
    _roles.release(segment, WRITER)
    with claiming(segment, WRITER) as child:
        child.channel.recv()
        _roles.release(segment, WRITER)
        assert _roles.holder(segment, WRITER) == child.pid
        assert _roles.seat(segment, WRITER).present


def test_a_fork_hands_no_role_down(segment: Segment) -> None:
    _roles.claim(segment, READER)
    parent, generation = os.getpid(), _roles.fork_generation()

    def as_child() -> tuple[object, ...]:
        _roles.release(segment, READER)  # the parent's: not ours to give back
        with pytest.raises(RoleTaken):
            _roles.claim(segment, READER)
        return _roles.holder(segment, READER), _roles.fork_generation(), _roles.claim(segment, READER + 1)

    assert in_child(as_child) == (parent, generation + 1, 1)
    assert _roles.fork_generation() == generation
    assert _roles.holder(segment, READER) == parent
    assert _roles.seat(segment, READER).present


def test_a_fork_hook_that_runs_too_early_cannot_give_up_the_parents_role(segment: Segment) -> None:
    _roles.claim(segment, READER)
    generation, parent = _roles.fork_generation(), os.getpid()

    def as_child() -> list[int]:
        # Hooks run in the order of their registration. As one finds things that came before the registry's:
        registry._generation, registry._pid, registry._forking = generation, parent, True
        segment.claims[READER] = 1
        _roles.release(segment, READER)
        seen = [_roles.fork_generation()]
        registry.after_fork_in_child()
        return [*seen, _roles.fork_generation()]

    assert in_child(as_child) == [generation + 1, generation + 1]
    assert _roles.seat(segment, READER).present
    assert _roles.holder(segment, READER) == parent


def test_a_child_with_the_pid_of_its_parent_is_told_by_the_hook(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, pid = _roles.fork_generation(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid)
    assert in_child(_roles.fork_generation) == generation + 1


def test_a_fork_finds_the_registry_unlocked(segment: Segment) -> None:
    locked, go = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with registry.lock:
            locked.set()
            go.wait()

    thread = threading.Thread(target=hold_the_lock)
    thread.start()
    locked.wait()
    threading.Timer(0.0, go.set).start()  # fork waits for the lock, so that the child never sees half a change
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking beside threads is the point here
        assert in_child(lambda: _roles.claim(segment, WRITER)) == 1
    thread.join()


def test_locks_survive_whatever_else_happens_to_the_inode(segment: Segment) -> None:
    _roles.claim(segment, READER)
    again = Segment.adopt(segment.ref, {-1: os.dup(segment.fd), 1: os.dup(segment.bell(1))})
    os.close(os.open(f"/proc/self/fd/{segment.fd}", os.O_PATH))
    again.drop()
    assert in_child(lambda: _roles.holder(segment, READER)) == os.getpid()


def test_a_claim_keeps_a_dropped_segment_open(leaves_nothing: object) -> None:
    segment = Segment.create(readers=1, capacity=65536)
    _roles.claim(segment, READER)
    segment.drop()
    assert in_child(lambda: _roles.holder(segment, READER)) == os.getpid()
    _roles.release(segment, READER)
    assert segment not in registry.segments.values()


@pytest.mark.parametrize("role", [-1, 3, 1000])
def test_a_role_out_of_range_is_named(segment: Segment, role: int) -> None:
    for function in (_roles.claim, _roles.holder):
        with pytest.raises(ValueError, match=f"from 0 to 2, got {role}"):
            function(segment, role)


def test_a_holder_whose_pid_the_kernel_hides_is_pid_zero(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    with claiming(segment, READER) as child:
        child.channel.recv()
        monkeypatch.setattr(fcntl, "fcntl", lambda fd, command, asked: _descriptors._FLOCK.pack(1, 0, READER, 1, 0))
        assert _roles.holder(segment, READER) == 0
        with pytest.raises(RoleTaken, match="a process in another PID namespace"):
            _roles.claim(segment, READER)


def test_errors_cross_processes() -> None:
    error = pickle.loads(pickle.dumps(RoleTaken(_layout.role_name(1), 42)))
    assert (error.role_name, error.pid, str(error)) == ("reader 0", 42, "the role of reader 0 is held by pid 42")


def test_a_claim_that_is_cut_short_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's exception may come when the seat is taken and nothing says yet that this process has it."""
    with Queue(readers=1, capacity="64 KiB") as queue, queue.writer() as writer:
        writer.put(b"x")
        reader = queue.reader(0)
        sit_down = _roles._sit_down

        def sit_down_and_be_struck(*arguments: Any) -> int:
            sit_down(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(_roles, "_sit_down", sit_down_and_be_struck)
        with pytest.raises(KeyboardInterrupt):
            reader.__enter__()
        monkeypatch.undo()
        assert reader._segment.claims == {WRITER: 1}
        assert in_child(lambda: _roles.holder(reader._segment, READER)) is None
        assert writer._peers is not None
        assert writer._peers.check() == []
        assert writer._peers.state(READER) == "detached"
        with reader:
            assert reader.get() == b"x"


@pytest.mark.parametrize("at", ["before", "after"])
@pytest.mark.parametrize("by", ["end", "collection"])
def test_giving_a_role_up_can_be_cut_short_and_done_again(
    segment: Segment, by: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = Peers(segment, [READER])
    tenancy: Tenancy | None = Tenancy(segment, READER)
    peers.refresh()
    stand_up = _roles._stand_up
    struck: list[Any] = []

    def stand_up_and_be_struck(*arguments: Any) -> None:
        monkeypatch.setattr(_roles, "_stand_up", stand_up)
        if at == "after":
            stand_up(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(_roles, "_stand_up", stand_up_and_be_struck)
    monkeypatch.setattr(sys, "unraisablehook", lambda told: struck.append(told.exc_type))
    if by == "end":
        assert tenancy is not None
        with pytest.raises(KeyboardInterrupt):
            tenancy.end()
        tenancy.end()
    else:
        tenancy = None
        assert struck == [KeyboardInterrupt]
    assert segment.claims == {}
    assert in_child(lambda: _roles.holder(segment, READER)) is None
    assert peers.check() == []
    assert peers.state(READER) == "detached"
    peers.close()


def test_a_tenancy_that_nobody_got_to_hold_is_no_death() -> None:
    with Queue(readers=1, capacity="64 KiB") as queue, queue.writer() as writer:
        writer.put(b"x")
        assert queue._segment is not None
        Tenancy(queue._segment, READER)
        gc.collect()
        assert writer._peers is not None
        assert writer._peers.check() == []
        assert writer._peers.state(READER) == "detached"
