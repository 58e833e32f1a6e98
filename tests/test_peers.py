"""Peers: who lives, who died, who left; each death once."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from forked import Child, in_child, open_descriptors

from aiospin import _layout, _roles
from aiospin._peers import Death, Peers
from aiospin._segment import Segment

WRITER, READER, OTHER = 0, 1, 2
SEAT = _layout.seat_offset(2, READER)  # its first word is the state


@pytest.fixture
def segment(leaves_nothing: object) -> Iterator[Segment]:
    """A segment of two readers; the test must leave it without claims."""
    made = Segment.create(readers=2, capacity=65536)
    yield made
    for role in list(made.claims):
        _roles.release(made, role)
    made.drop()


@pytest.fixture
def peers(segment: Segment) -> Iterator[Peers]:
    """Watches all roles."""
    watching = Peers(segment, [WRITER, READER, OTHER])
    yield watching
    watching.close()


def holding(segment: Segment, *roles: int) -> Child:
    """A child that holds the roles when this returns. Sent "leave", it gives them back, says so, and lives on."""

    def body(channel: Any) -> None:
        channel.send([_roles.claim(segment, role) for role in roles])
        channel.recv()
        for role in roles:
            _roles.release(segment, role)
        channel.send("left")
        channel.recv()

    child = Child(body)
    child.channel.recv()
    return child


def wait_for(fds: list[int]) -> None:
    """Sleep until one of the descriptors is readable."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    assert poll.poll()


def set_word(segment: Segment, offset: int, value: int) -> None:
    segment.mapping.store(offset, value)


def test_nobody_is_no_death(peers: Peers) -> None:
    assert not peers.refresh()
    assert peers.fds() == {}
    assert peers.check() == []
    assert peers.state(READER) == "never attached"


def test_a_death_is_reported_once_and_its_pidfd_closed(segment: Segment, peers: Peers) -> None:
    before = open_descriptors().keys()
    with holding(segment, READER) as child:
        assert peers.refresh()
        assert not peers.refresh()
        assert list(peers.fds().values()) == [READER]
        assert peers.check() == []
        assert peers.state(READER) == "alive"
        child.kill()
        wait_for(list(peers.fds()))
        assert peers.state(READER) == "dead"
        deaths = peers.check()
        assert deaths == [Death(READER, child.pid, 1)] and deaths[0].noticed == "pidfd"
        assert peers.check() == []
        assert peers.fds() == {}
        assert open_descriptors().keys() - before == {child.channel.fileno()}


def test_each_tenure_dies_once_and_for_every_watcher(segment: Segment, peers: Peers) -> None:
    second = Peers(segment, [READER])
    pids = []
    for tenure in (1, 2, 3):
        with holding(segment, READER) as child:
            assert peers.refresh()
            child.kill()
            assert peers.check() == [Death(READER, child.pid, tenure)]
            pids.append(child.pid)
    assert second.check() == [Death(READER, pids[-1], 3)]
    assert Peers(segment, [OTHER]).check() == []


def test_a_death_that_nobody_saw_alive_is_reported(segment: Segment, peers: Peers) -> None:
    with holding(segment, WRITER, OTHER) as child:
        child.kill()
    assert sorted(peers.check(), key=lambda death: death.role) == [
        Death(WRITER, child.pid, 1),
        Death(OTHER, child.pid, 1),
    ]


def test_leaving_is_no_death(segment: Segment, peers: Peers) -> None:
    with holding(segment, READER) as child:
        peers.refresh()
        child.channel.send("leave")
        assert child.channel.recv() == "left"
        assert peers.state(READER) == "detached"
        assert peers.check() == []
        assert peers.fds() == {}
        child.kill()
        assert peers.check() == []


def test_a_successor_takes_the_place_of_the_dead(segment: Segment, peers: Peers) -> None:
    with holding(segment, READER) as first:
        peers.refresh()
        fired = list(peers.fds())
        first.kill()
        wait_for(fired)
        with holding(segment, READER) as second:
            assert peers.check() == []
            assert peers.state(READER) == "alive"
            second.kill()
            wait_for(list(peers.fds()))
            assert peers.check() == [Death(READER, second.pid, 2)]


def test_a_fired_pidfd_goes_even_if_the_tenure_still_looks_the_same(segment: Segment, peers: Peers) -> None:
    with holding(segment, READER) as first:
        peers.refresh()
        seated = segment.mapping.load(SEAT)
        first.kill()
        wait_for(list(peers.fds()))
        with holding(segment, READER):
            # 1. the successor has the lock, 2. has not sat down yet: so it looks to the watcher
            set_word(segment, SEAT, seated)
            assert peers.check() == []
            assert peers.fds() == {}


def test_a_claimant_that_died_before_it_sat_down_has_not_come(segment: Segment, peers: Peers) -> None:
    """Killed at each store before the last: no death, and nobody counts it as attached."""
    for word in (_layout.SEAT_PID, _layout.SEAT_START, _layout.SEAT_PID_NAMESPACE):
        set_word(segment, SEAT + word, 12345)
        assert peers.check() == []
        assert peers.state(READER) == "never attached"


def test_a_claimant_that_died_as_it_sat_down_is_a_death(segment: Segment, peers: Peers) -> None:
    set_word(segment, SEAT + _layout.SEAT_PID, 12345)
    set_word(segment, SEAT, 1 << _layout.SEAT_TENURE_SHIFT | _layout.SEAT_PRESENT)
    assert [death.tenure for death in peers.check()] == [1]
    assert peers.state(READER) == "dead"


def test_own_roles_are_alive_and_need_no_pidfd(segment: Segment, peers: Peers) -> None:
    _roles.claim(segment, READER)
    assert not peers.refresh()
    assert peers.state(READER) == "alive"
    assert peers.check() == []
    _roles.release(segment, READER)
    assert peers.check() == []
    assert peers.state(READER) == "detached"


def test_a_role_given_up_without_leaving_is_a_death(segment: Segment, peers: Peers) -> None:
    _roles.claim(segment, READER)
    _roles.release(segment, READER, vacate=False)
    assert peers.state(READER) == "dead"
    assert peers.check() == [Death(READER, os.getpid(), 1)]


@pytest.mark.parametrize(
    ("role", "offset"),
    [
        (WRITER, _layout.control_offset(2) + _layout.CONTROL_WRITER_CLOSED),
        (READER, _layout.reader_offset(2, 0) + _layout.READER_STAY),
    ],
)
def test_closing_shows_until_someone_comes_again(segment: Segment, peers: Peers, role: int, offset: int) -> None:
    _roles.claim(segment, role)
    set_word(segment, offset, 1)
    assert peers.state(role) == "alive"
    _roles.release(segment, role)
    assert peers.state(role) == "closed"
    set_word(segment, offset, 0)
    assert peers.state(role) == "detached"


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ESRCH])
def test_without_pidfds_the_lock_tells(
    segment: Segment, peers: Peers, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with holding(segment, READER) as child:
        assert not peers.refresh()
        assert peers.fds() == {}
        child.kill()
        deaths = peers.check()
        assert deaths == [Death(READER, child.pid, 1)] and deaths[0].noticed == "lock"


def test_a_pid_that_changed_hands_gets_no_pidfd(
    segment: Segment, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_descriptors().keys()
    with holding(segment, READER) as child, Child(lambda channel: channel.recv()) as stranger:
        opened = os.pidfd_open

        def die_first(pid: int) -> int:
            # 1. the watcher asked who holds the lock, 2. the holder dies, 3. its pid goes to a stranger
            child.kill()
            return opened(stranger.pid)

        monkeypatch.setattr(os, "pidfd_open", die_first)
        assert not peers.refresh()
        assert open_descriptors().keys() - before == {child.channel.fileno(), stranger.channel.fileno()}
        assert peers.check() == [Death(READER, child.pid, 1)]


def test_a_peer_in_another_pid_namespace_has_pid_zero(
    segment: Segment, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(segment, READER) as child:
        with monkeypatch.context() as patch:
            patch.setattr(_roles, "_locker", lambda segment, role: 0 if role == READER else None)
            assert not peers.refresh()
            assert peers.state(READER) == "alive"
        child.kill()
        assert peers.check() == [Death(READER, 0, 1)]


def leave_between(monkeypatch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    """Run `step` once, just before the lock is looked at for the first time after a seat was read."""
    pending = [step]
    read, look = _roles.seat, _roles.holder
    armed = []

    def seat(segment: Segment, role: int) -> _roles.Seat:
        armed.append(True)
        return read(segment, role)

    def holder(segment: Segment, role: int) -> int | None:
        if armed and pending:
            pending.pop()()
        return look(segment, role)

    monkeypatch.setattr(_roles, "seat", seat)
    monkeypatch.setattr(_roles, "holder", holder)


def test_a_claim_in_the_middle_of_the_check_is_no_death_of_the_claimant(
    segment: Segment, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(segment, READER) as first:
        peers.refresh()
        first.kill()
        successors: list[Child] = []
        leave_between(monkeypatch, lambda: successors.append(holding(segment, READER)))
        assert peers.check() == []
        assert peers.state(READER) == "alive"
        successors[0].kill()
        successors[0].channel.close()
        assert peers.check() == [Death(READER, successors[0].pid, 2)]


def test_leaving_in_the_middle_of_the_check_is_no_death(
    segment: Segment, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    _roles.claim(segment, READER)
    with monkeypatch.context() as patch:
        # 1. the watcher saw the lock free, 2. the holder comes, 3. the seat is read, 4. the holder goes
        answers = iter([None])
        look = _roles.holder
        patch.setattr(_roles, "holder", lambda segment, role: next(answers, look(segment, role)))
        leave_between(patch, lambda: _roles.release(segment, READER))
        assert peers.check() == []


def test_a_forked_child_closes_the_parents_pidfds(segment: Segment, peers: Peers) -> None:
    with holding(segment, READER):
        peers.refresh()
        (pidfd,) = peers.fds()
        assert in_child(lambda: (peers.fds(), pidfd in open_descriptors())) == ({}, False)
        assert list(peers.fds()) == [pidfd]


def test_close_is_idempotent(segment: Segment) -> None:
    peers = Peers(segment, [READER])
    with holding(segment, READER):
        before = open_descriptors().keys()
        peers.refresh()
        peers.close()
        peers.close()
        assert open_descriptors().keys() == before


def test_a_successors_pidfd_is_another_number_and_its_predecessors_stays_open_for_now(
    segment: Segment, peers: Peers
) -> None:
    """Whoever compares numbers to bring a poll set up to date would take the new one for the old one."""
    with holding(segment, READER) as first:
        assert peers.refresh()
        assert not peers.is_stale()
        (old,) = peers.fds()
        first.channel.send("leave")
        first.channel.recv()
        with holding(segment, READER):
            assert peers.is_stale()
            assert peers.refresh()
            assert not peers.is_stale()
            (new,) = peers.fds()
            assert new != old
            assert old in open_descriptors()
            assert not peers.refresh()
            assert old not in open_descriptors()
