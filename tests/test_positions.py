"""What an end can be told apart from its queue, when it claims, and how far its peers have come."""

from __future__ import annotations

import math
import pickle

import pytest
from ends import RING, content, ends

import aiospin


def test_an_end_may_differ_from_its_queue() -> None:
    with aiospin.Queue[bytes](capacity=RING, stall_after=7.0) as queue:
        plain, patient = queue.reader(), queue.reader(stall_after=math.inf, on_peer_death="wait", policy="eco")
        assert plain._options.stall_after == 7.0 and plain._options.on_peer_death == "raise"
        options = pickle.loads(pickle.dumps(patient))._options
        assert (options.stall_after, options.on_peer_death, options.policy.name) == (math.inf, "wait", "eco")
        writer = queue.writer(threadsafe=True, stall_after=2.0)
        assert (writer._options.threadsafe, writer._options.stall_after) == (True, 2.0)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"stall_after": 0}, ValueError),
        ({"stall_after": "soon"}, TypeError),
        ({"on_peer_death": "mourn"}, ValueError),
        ({"policy": "lazy"}, ValueError),
    ],
)
def test_what_an_end_cannot_be_told(option: dict[str, object], error: type[Exception]) -> None:
    (value,) = option.values()
    with aiospin.Queue[bytes](capacity=RING) as queue:
        for make in (queue.reader, queue.writer):
            with pytest.raises(error, match=str(value)):
                make(**option)  # type: ignore[arg-type]


def test_claim_takes_the_role_before_the_first_use() -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue, queue.writer() as writer:
        reader = queue.reader()
        other = aiospin.attach(reader.handle)
        reader.claim()
        reader.claim()
        with pytest.raises(aiospin.RoleTaken):
            other.claim()
        assert writer.closed is False
        reader.close()
        with pytest.raises(aiospin.QueueClosed):
            reader.claim()
        other.close()


def test_a_writer_sees_how_far_each_reader_has_taken() -> None:
    with ends(2) as (_, writer, (first, second)):
        assert writer.position == writer.taken(0) == writer.taken(1)
        ends_at = []
        for sequence in range(3):
            writer.put(content(sequence, 100))
            ends_at.append(writer.position)
        assert ends_at == sorted(set(ends_at))
        with first.acquire_read(), first.acquire_read():
            assert writer.taken(0) == ends_at[1] and writer.taken(1) < ends_at[0]
        assert second.get() == content(0, 100)
        assert writer.taken(1) == ends_at[0]
        for rank in (2, -1):
            with pytest.raises(ValueError, match=str(rank)):
                writer.taken(rank)


def test_what_a_dead_reader_had_taken_stays_known() -> None:
    with ends(1) as (queue, writer, (reader,)):
        writer.put_many([b"taken", b"not"])
        assert reader.get() == b"taken"
        taken = writer.taken(0)
        reader.detach()
        assert writer.taken(0) == taken < writer.position
        with queue.reader() as successor:
            assert successor.get() == b"not" and writer.taken(0) == writer.position
