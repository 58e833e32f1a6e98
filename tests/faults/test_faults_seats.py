"""A seat that somebody scribbled on: its holder's death is told all the same, and the role can be claimed anew."""

from __future__ import annotations

from typing import Any

import pytest
from ends import RING
from forked import Child

import aiospin
from aiospin import _layout, _roles

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LAST_TENURE = (1 << 56) - 1


def holder(text: str) -> Child:
    """A process that has the role which a handle names, until it is killed, or told to detach."""

    def hold(channel: Any) -> None:
        end = aiospin.attach(text)
        end.__enter__()
        channel.send("holds")
        channel.recv()
        end.detach()
        channel.send("left")

    return Child(hold)


def seat_word(role: int) -> int:
    return _layout.seat_offset(1, role) + _layout.SEAT_STATE


@pytest.mark.parametrize("state", [0, 1 << 63, 0xF8], ids=hex)
def test_a_death_behind_a_scribbled_seat_is_told(state: int) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue, queue.reader(0) as reader:
        segment: Any = queue._segment
        with holder(str(queue.writer().handle)) as peer:
            assert peer.channel.recv() == "holds"
            with pytest.raises(TimeoutError):
                reader.get(timeout=0.01)  # has seen the writer by now
            segment.mapping.store(seat_word(_layout.WRITER), state)
            peer.kill()
            with pytest.raises(aiospin.PeerDied) as caught:
                reader.get(timeout=60)
            assert caught.value.pid == peer.pid and caught.value.rank is None
            with pytest.raises(TimeoutError):  # once
                reader.get(timeout=0.01)
        with queue.writer() as writer:
            writer.put(b"from a successor")
        assert reader.get() == b"from a successor"


def test_leaving_on_purpose_is_no_death() -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue, queue.reader(0) as reader:
        with holder(str(queue.writer().handle)) as peer:
            assert peer.channel.recv() == "holds"
            with pytest.raises(TimeoutError):
                reader.get(timeout=0.01)
            peer.channel.send("leave")
            assert peer.channel.recv() == "left"
        for _ in range(2):
            with pytest.raises(TimeoutError):
                reader.get(timeout=0.01)
        assert reader._peers is not None and reader._peers.state(_layout.WRITER) == "detached"


@pytest.mark.parametrize("role", [_layout.WRITER, 1])
def test_the_last_tenure_is_followed_by_the_first(role: int) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue:
        segment: Any = queue._segment
        segment.mapping.store(seat_word(role), LAST_TENURE << 8 | _layout.SEAT_PRESENT)
        with queue.writer() as writer, queue.reader(0) as reader:
            writer.put(b"x")
            assert reader.get() == b"x"
            assert _roles.seat(segment, role).tenure == 1


@pytest.mark.parametrize("stay", [2**64 - 1, 2**64 - 2])
def test_a_stay_at_the_end_of_the_range_starts_over(stay: int) -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue, queue.writer() as writer:
        segment: Any = queue._segment
        segment.mapping.store(_layout.reader_offset(1, 0) + _layout.READER_STAY, stay)
        segment.mapping.store(_layout.gate_offset(1, 0) + _layout.GATE_GATE, stay | 1)
        with queue.reader(0) as reader:
            assert reader.try_acquire_read() is None
            writer.put_many([b"before it joined", b"after"])
            assert reader.get(timeout=60) == b"before it joined"
            assert reader.get(timeout=60) == b"after"
