"""Large buffers lent in place: whose memory they are, when the ring has it back, and when they are copied instead.

Each test sends arrays that are larger than the least that is lent. "The same place" is the next lap of the ring.
"""

from __future__ import annotations

import gc
import pickle
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from forked import Child
from programs import Program

from aiospin import _pages, _roles
from aiospin.compat.vllm import MessageQueue, _loan, _wire
from aiospin.compat.vllm._loan import LEAST, Loans

pytestmark = pytest.mark.usefixtures("leaves_nothing")

RING = 8 * LEAST
SIZE = LEAST + 12345

Array = np.ndarray[Any, np.dtype[np.uint8]]


@pytest.fixture(autouse=True)
def lending_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of the last loan."""
    monkeypatch.setattr(_loan, "ABSTAINS", 0)


def array(seed: int, size: int = SIZE) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.fixture
def queues() -> Iterator[tuple[MessageQueue, list[MessageQueue]]]:
    writer = MessageQueue(2, 2, capacity=RING)
    readers = [MessageQueue.create_from_handle(writer.export_handle(), rank) for rank in range(2)]
    yield writer, readers
    gc.collect()
    for queue in (writer, *readers):
        queue.shutdown()


def loans(queue: MessageQueue) -> Loans:
    assert queue._receiver is not None
    return queue._receiver.loans


def go_round(writer: MessageQueue, readers: list[MessageQueue], laps: int = 1) -> None:
    """Fill the whole ring with other messages, and take them."""
    for seed in range(1000, 1000 + laps * (RING // SIZE + 1)):
        writer.enqueue(array(seed), timeout=60)
        for reader in readers:
            assert np.array_equal(reader.dequeue(timeout=60), array(seed))


def test_what_is_lent_is_not_copied_and_can_be_written(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    writer, (reader, other) = queues
    writer.enqueue({"large": array(1), "small": b"x"})
    lent = reader.dequeue()["large"]
    pages = loans(reader).pages
    assert pages is not None and 0 <= lent.ctypes.data - pages.address < pages.length
    assert len(loans(reader).lent) == 1 and lent.ctypes.data % _pages.BYTES == 0
    assert np.array_equal(lent, array(1))
    lent[:] = 7
    assert np.array_equal(other.dequeue()["large"], array(1)), "a reader saw what another one wrote to its own"
    assert (lent == 7).all()


def test_the_ring_has_the_bytes_back_when_the_buffer_dies(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    writer, (reader, other) = queues
    writer.enqueue(array(1))
    del writer, other
    lent = reader.dequeue()
    part = lent[10:20]
    del lent
    assert len(loans(reader).lent) == 1, "a part of it is alive"
    assert part.tolist() == array(1)[10:20].tolist()
    del part
    assert len(loans(reader).lent) == 0
    assert reader._receiver is not None and reader._receiver.end._counters()["leases"] == 0


@pytest.mark.parametrize("touched", ["first page", "last byte", "everything"])
def test_what_was_written_to_a_buffer_is_gone_with_it(
    queues: tuple[MessageQueue, list[MessageQueue]], touched: str
) -> None:
    """The same pages show the ring again: else the next message there would be seen with the old one's bytes in it."""
    writer, readers = queues
    where = {"first page": slice(0, 1), "last byte": slice(SIZE - 1, SIZE), "everything": slice(None)}[touched]
    for lap in range(2):
        for seed in range(RING // SIZE):
            writer.enqueue(array(lap * 100 + seed))
            for reader in readers:
                lent = reader.dequeue(timeout=60)
                assert np.array_equal(lent, array(lap * 100 + seed))
                lent[where] = 99
                del lent
    go_round(writer, readers)


def test_without_a_descriptor_to_look_with_written_pages_are_forgotten_all_the_same(
    queues: tuple[MessageQueue, list[MessageQueue]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, readers = queues
    writer.enqueue(array(1))
    lent = [reader.dequeue() for reader in readers]
    lent[0][:] = 99

    def fail(address: int, length: int) -> bool:
        raise OSError("no descriptor is left")

    monkeypatch.setattr(_pages, "has_copies", fail)
    del lent[:]
    monkeypatch.undo()
    go_round(writer, readers, laps=2)


def test_what_is_held_for_long_makes_nobody_wait(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    """A reader that goes on reading copies what it holds; both contents and changes stay."""
    writer, (reader, other) = queues
    writer.enqueue(array(1))
    held = reader.dequeue()
    held[:5] = 99
    other.dequeue()
    expected = array(1)
    expected[:5] = 99
    go_round(writer, [reader, other], laps=2)
    assert len(loans(reader).lent) == 0, "it holds bytes of the ring"
    assert np.array_equal(held, expected)
    held[-5:] = 98
    go_round(writer, [reader, other], laps=2)
    assert (held[-5:] == 98).all()


def test_a_reader_that_waits_gives_the_writer_room(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    """What it holds is less than half of the ring, so that only the wait recalls it."""
    writer, (reader, other) = queues
    writer.enqueue(array(1))
    held = reader.dequeue()
    other.dequeue()
    with pytest.raises(TimeoutError):
        reader.dequeue(timeout=0.05)
    assert len(loans(reader).lent) == 0
    writer.enqueue(bytes(RING - 4 * _pages.BYTES), timeout=0)
    assert len(reader.dequeue()) == RING - 4 * _pages.BYTES
    assert np.array_equal(held, array(1))
    other.dequeue()


async def test_a_coroutine_that_waits_gives_the_writer_room(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    writer, (reader, _) = queues
    await writer.aenqueue(array(1))
    held = await reader.adequeue()
    with pytest.raises(TimeoutError):
        await reader.adequeue(timeout=0.05)
    assert len(loans(reader).lent) == 0
    assert np.array_equal(held, array(1))


def test_addresses_of_a_recalled_buffer_are_its_own_until_it_dies(
    queues: tuple[MessageQueue, list[MessageQueue]],
) -> None:
    writer, readers = queues
    reader, pages = readers[0], loans(readers[0]).pages
    assert pages is not None
    writer.enqueue(array(1))
    held = reader.dequeue()
    readers[1].dequeue()
    loans(reader).recall()
    begin, end = held.ctypes.data, held.ctypes.data + SIZE
    copied = 0
    for seed in range(2, 40):
        writer.enqueue(array(seed))
        readers[1].dequeue()
        lent = reader.dequeue()
        assert np.array_equal(lent, array(seed))
        inside = 0 <= lent.ctypes.data - pages.address < pages.length
        copied += not inside
        assert not inside or lent.ctypes.data + SIZE <= begin or lent.ctypes.data >= end
        del lent
    assert copied, "no lap came past that place"
    del held
    go_round(writer, readers, laps=3)
    assert loans(reader).lent == {} == loans(reader)._recalled


def test_what_would_fill_half_of_the_ring_is_not_lent(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    writer, (reader, _) = queues
    writer.enqueue(array(1, RING // 2))
    assert np.array_equal(reader.dequeue(), array(1, RING // 2)) and len(loans(reader).lent) == 0


@pytest.mark.parametrize("way", ["written", "held over half of the ring", "held while waiting"])
def test_who_was_lent_to_in_vain_gets_copies_for_a_while(
    queues: tuple[MessageQueue, list[MessageQueue]], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_loan, "ABSTAINS", 2)
    writer, (reader, other) = queues

    def receive(seed: int) -> tuple[bool, Array]:
        writer.enqueue(array(seed))
        other.dequeue()
        before = loans(reader).count
        found = reader.dequeue()
        assert np.array_equal(found, array(seed))
        return loans(reader).count > before, found

    lent, found = receive(0)
    assert lent
    held = []
    if way == "written":
        found[0] = 1
        del found
    elif way == "held while waiting":
        with pytest.raises(TimeoutError):
            reader.dequeue(timeout=0.05)
        held.append(found)
    else:
        while loans(reader).lent:
            held.append(receive(len(held))[1])
            if loans(reader)._abstains:
                break
    assert [receive(seed)[0] for seed in range(50, 53)] == [False, False, True]


def test_a_shut_down_reader_keeps_no_place_for_what_it_has_lent(
    queues: tuple[MessageQueue, list[MessageQueue]],
) -> None:
    writer, (reader, _) = queues
    writer.enqueue(array(1))
    held = reader.dequeue()
    reader.shutdown()
    successor = MessageQueue.create_from_handle(writer.export_handle(), 0)
    successor.shutdown()
    assert np.array_equal(held, array(1))


@dataclass
class At:
    """A writer, as far as laying out a message is concerned."""

    _cursor: int


def make_unmappable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise OSError("no address space")

    monkeypatch.setattr(_pages, "map_twice", fail)


def make_unrecallable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pages, "_MADV_POPULATE_WRITE", 9999)


def make_opaque(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pages, "has_copies", lambda address, length: False)


@pytest.mark.parametrize("make", [make_unmappable, make_unrecallable, make_opaque])
def test_where_the_kernel_does_not_help_buffers_are_copied(
    make: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = MessageQueue(1, 1, capacity=RING)
    reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
    with monkeypatch.context() as patch:
        make(patch)
        assert loans(reader).pages is None
    try:
        writer.enqueue(array(1))
        copy = reader.dequeue()
        assert len(loans(reader).lent) == 0 and copy.flags.writeable
        assert np.array_equal(copy, array(1))
    finally:
        writer.shutdown()
        reader.shutdown()


def test_buffers_that_share_a_page_are_not_lent(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    """A second sender came between the layout and the place: here the layout is for one 64 bytes on."""
    writer, (reader, _) = queues
    sender = writer._sender
    assert sender is not None
    sender.end.put(*_wire.encode(array(1), At(sender.end._cursor - 64)))
    copy = reader.dequeue()
    assert len(loans(reader).lent) == 0 and np.array_equal(copy, array(1))


def test_a_buffer_whose_last_page_is_not_its_own_is_not_lent(
    queues: tuple[MessageQueue, list[MessageQueue]],
) -> None:
    writer, (reader, _) = queues
    sender = writer._sender
    assert sender is not None
    *parts, padding = _wire.encode(array(1), sender.end)
    assert padding
    sender.end.put(*parts)
    assert np.array_equal(reader.dequeue(), array(1)) and len(loans(reader).lent) == 0


def test_what_is_lent_is_there_until_the_process_has_ended() -> None:
    script = """
        import atexit
        held = []
        atexit.register(lambda: print(bytes(held[0][:3])))
        import numpy as np
        from aiospin.compat.vllm import MessageQueue
        writer = MessageQueue(1, 1)
        reader = MessageQueue.create_from_handle(writer.export_handle(), 0)
        writer.enqueue(np.zeros(5 << 20, np.uint8))
        held.append(reader.dequeue())
        assert len(reader._receiver.loans.lent) == 1
        held[0][:3] = 7
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "b'\\x07\\x07\\x07'\n", "")


def test_who_ends_in_good_order_while_something_is_lent_has_not_died() -> None:
    script = """
        import ctypes, pickle
        from aiospin.compat.vllm import MessageQueue
        reader = MessageQueue.create_from_handle(pickle.loads(bytes.fromhex(arguments)), 0)
        held = reader.dequeue()
        assert len(reader._receiver.loans.lent) == 1
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))  # some libraries let nothing go
    """
    writer = MessageQueue(1, 1, capacity=RING)
    with Program(script, pickle.dumps(writer.export_handle()).hex()) as child:
        writer.enqueue(array(1))
        child.finish()
    assert writer._ranks.absent() == []
    seat = _roles.seat(writer._ranks._segment, 1)
    assert seat.vacated, "it is taken for dead"
    writer.shutdown()


def test_out_of_memory_for_a_copy_is_told_and_nothing_is_lost(
    queues: tuple[MessageQueue, list[MessageQueue]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, (reader, _) = queues
    writer.enqueue(array(1))
    held = reader.dequeue()
    writer.enqueue("next")
    with monkeypatch.context() as patch:

        def fail(address: int, length: int) -> None:
            raise OSError("no memory")

        patch.setattr(_pages, "copy_privately", fail)
        loans(reader).recall()
    assert "no memory" in caplog.text and len(loans(reader).lent) == 1
    assert reader.dequeue() == "next"
    assert np.array_equal(held, array(1))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_held_written_and_dropped_every_array_keeps_its_contents(
    queues: tuple[MessageQueue, list[MessageQueue]], seed: int
) -> None:
    writer, readers = queues
    dice = random.Random(seed)
    held: list[tuple[Array, Array]] = []  # what there is, and what there should be
    for number in range(60):
        message = [array(number * 10 + place, dice.randint(1, 2 * LEAST)) for place in range(dice.randint(1, 2))]
        writer.enqueue(message, timeout=60)
        for reader in readers:
            held += zip(reader.dequeue(timeout=60), (each.copy() for each in message), strict=True)
        for found, expected in dice.sample(held, (len(held) + 1) // 2):
            begin = dice.randrange(len(found))
            found[begin : begin + 5000] = expected[begin : begin + 5000] = dice.randrange(256)
        del found, expected
        while held and dice.random() < 0.6:
            assert np.array_equal(*held.pop(dice.randrange(len(held))))
        if dice.random() < 0.1:
            loans(readers[0]).recall()
    assert all(np.array_equal(*pair) for pair in held)


def test_a_forked_child_has_its_own_copies(queues: tuple[MessageQueue, list[MessageQueue]]) -> None:
    """Its parent gives the bytes back without asking it."""
    writer, (reader, other) = queues
    writer.enqueue(array(1))
    held = [reader.dequeue()]

    def body(channel: Connection) -> bool:
        channel.recv()
        same = np.array_equal(held[0], array(1))
        held[0][:] = 5
        held.clear()
        return same

    with Child(body) as child:
        held[0][:] = 6
        held.clear()
        other.dequeue()
        go_round(writer, [reader, other])
        child.channel.send("go on")
        assert child.result()
