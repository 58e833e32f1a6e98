"""Descriptors travel to processes that multiprocessing starts, once each, and nowhere else."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

import pytest

from aiospin import _roles
from aiospin._errors import AttachError
from aiospin._handle import SegmentRef
from aiospin._segment import SEGMENT_KEY, Segment
from aiospin._travel import Traveller, land, travel


class Endpoint:
    """The least that travels like an endpoint: a held segment and a role."""

    def __init__(self, segment: Segment, role: int, landed: dict[int, int] | None = None) -> None:
        self.segment = segment
        self.role = role
        self.landed = landed

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (self.segment.ref, self.role, travel(self.segment, self.role))


def arrive(ref: SegmentRef, role: int, travelled: dict[int, Traveller] | None) -> Endpoint:
    landed = None if travelled is None else land(travelled)
    return Endpoint(Segment.adopt(ref, landed), role, landed)


def work(reader: Endpoint, writer: Endpoint, answers: Connection[Any, Any]) -> None:
    """In the child: claim both roles, ring, and report."""
    assert reader.landed is not None and writer.landed is not None
    segment = reader.segment
    tenures = [_roles.claim(segment, reader.role), _roles.claim(segment, writer.role)]
    segment.ring(reader.role)
    answers.send(
        {
            "same": segment is writer.segment,
            "tenures": tenures,
            "landed": (sorted(reader.landed), sorted(writer.landed)),
            "shared numbers": all(writer.landed[key] == fd for key, fd in reader.landed.items()),
            "inheritable": [fd for fd in (*reader.landed.values(), *writer.landed.values()) if os.get_inheritable(fd)],
        }
    )
    answers.recv()


@pytest.fixture
def segment(leaves_nothing: object) -> Iterator[Segment]:
    """An anonymous segment of two readers."""
    made = Segment.create(readers=2, capacity=65536)
    yield made
    made.drop()


@pytest.mark.parametrize("context", [get_context("spawn"), get_context("forkserver")])
def test_two_endpoints_of_one_segment_travel_together(
    segment: Segment, context: SpawnContext | ForkServerContext
) -> None:
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(Endpoint(segment, 1), Endpoint(segment, 0), theirs))
    child.start()
    theirs.close()
    assert ours.recv() == {
        "same": True,
        "tenures": [1, 1],
        "landed": ([SEGMENT_KEY, 0, 1], [SEGMENT_KEY, 0, 1, 2]),
        "shared numbers": True,
        "inheritable": [],
    }
    assert _roles.holder(segment, 1) == child.pid
    assert os.read(segment.bell(1), 10) == b"\0"
    ours.send("end")
    child.join()
    assert child.exitcode == 0
    child.close()
    ours.close()
    assert _roles.holder(segment, 1) is None
    if isinstance(context, ForkServerContext):
        stop_forkserver()


def stop_forkserver() -> None:
    """It is started once and stays: end it, so that it does not count as left behind."""
    from multiprocessing import forkserver

    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def test_without_a_process_being_started_nothing_travels(segment: Segment) -> None:
    assert travel(segment, 0) is None
    copy = pickle.loads(pickle.dumps(Endpoint(segment, 2)))
    assert copy.segment is segment
    assert copy.landed is None
    copy.segment.drop()


def test_a_descriptor_that_did_not_arrive_is_an_attach_error(segment: Segment) -> None:
    class Lost:
        def detach(self) -> int:
            return 1 << 20

    with pytest.raises(AttachError, match="not open here"):
        land({SEGMENT_KEY: Lost()})
