"""Sleeps of blocking readers: what they ask the Python half for, how often, and that no death is missed for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from ends import RING, asleep, ends, epoch
from programs import Program

import aiospin
from aiospin import QueueReader, QueueWriter, WaitSet

pytestmark = pytest.mark.usefixtures("leaves_nothing")

WRITER = """
    with aiospin.attach(arguments) as writer:
        say("ready")
        while (message := hear()) is not None:
            writer.put(message.encode())
"""


def handed_over(reader: QueueReader[bytes], writer: QueueWriter[bytes], pool: ThreadPoolExecutor) -> None:
    """One message, which comes when the reader sleeps."""
    since = epoch(reader)
    getting = pool.submit(reader.get)
    asleep(reader, since)
    writer.put(b"x")
    assert getting.result() == b"x"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Who asked for its peers' descriptors, in order."""
    found: list[object] = []
    real = QueueReader._peer_fds

    def peer_fds(self: QueueReader[bytes]) -> list[int]:
        found.append(self)
        return real(self)

    monkeypatch.setattr(QueueReader, "_peer_fds", peer_fds)
    return found


@pytest.mark.native
def test_a_reader_asks_for_its_peer_once(asked: list[object]) -> None:
    with ends() as (queue, writer, (reader,)), ThreadPoolExecutor(1) as pool:
        writer.put(b"")  # who has not come yet is asked for each time
        assert reader.get() == b""
        for _ in range(4):
            handed_over(reader, writer, pool)
        assert asked == [reader]
        reader._look_for_deaths()  # which may close descriptors
        for _ in range(4):
            handed_over(reader, writer, pool)
        assert asked == [reader] * 2
        writer.detach()
        with queue.writer() as successor:
            successor.put(b"")
            assert reader.get() == b""
            for _ in range(4):
                handed_over(reader, successor, pool)
            assert asked == [reader] * 3


@pytest.mark.native
def test_a_reader_in_a_set_asks_before_each_sleep(asked: list[object]) -> None:
    """The set must hear of every sleep, which may drain the bell that it listens to."""
    with ends() as (_, writer, (reader,)), ThreadPoolExecutor(1) as pool:
        writer.put(b"")
        assert reader.get() == b""
        handed_over(reader, writer, pool)
        with WaitSet([reader]):
            before = len(asked)
            for _ in range(3):
                handed_over(reader, writer, pool)
            assert len(asked) >= before + 3


def test_deaths_are_told_to_later_sleeps_too() -> None:
    with aiospin.Queue[bytes](capacity=RING) as queue, queue.reader(0) as reader, ThreadPoolExecutor(1) as pool:
        for _ in range(2):  # a writer, and its successor
            with Program(WRITER, str(queue.writer().handle)) as child:
                assert child.hear() == "ready"
                for _ in range(3):
                    since = epoch(reader)
                    getting = pool.submit(reader.get)
                    asleep(reader, since)
                    child.say("x")
                    assert getting.result() == b"x"
                since = epoch(reader)
                getting = pool.submit(reader.get)
                asleep(reader, since)
                child.kill()
                with pytest.raises(aiospin.PeerDied) as caught:
                    getting.result()
                assert (caught.value.pid, caught.value.noticed) == (child.pid, "pidfd")
