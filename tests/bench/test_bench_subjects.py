"""Every subject of the benchmark really carries messages: both ways, in every size, in order, to several readers.

What is not installed here is not a test; the command names it as skipped, which test_bench_command.py sees to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiospin.bench import contract
from aiospin.bench.contract import Plan, Subject
from aiospin.bench.fan import Pairs
from aiospin.bench.rounds import workplace
from aiospin.bench.stage import Control, Ends, Failed, Peer, lead, perform
from aiospin.bench.subjects import load_subjects

SUBJECTS = load_subjects()
HERE = [name for name, subject in SUBJECTS.items() if subject.missing() is None]
BATCHING = [name for name in HERE if SUBJECTS[name].batches]
SIZES = (8, 64, 5000, 300_000)
COUNT = 60
PATIENCE = 60.0


def payload(number: int, nbytes: int) -> bytes:
    """Content that says which message it is, to the last byte."""
    return (number.to_bytes(8, "little") + bytes((number + n) % 251 for n in range(97)) * (nbytes // 97 + 1))[:nbytes]


@pytest.fixture
def folder() -> Iterator[str]:
    with workplace() as place:
        yield place


def play(folder: str, body: Any, *args: Any) -> Any:
    return lead(f"{folder}/stderr", PATIENCE, body, *args)


# ---- there and back


def mirror(ends: Ends, control: Control) -> None:
    for count in control.orders():
        for _ in range(count):
            ends[0].send(ends[0].receive()[::-1])


async def mirror_awaited(ends: Ends, control: Control) -> None:
    async for count in control.orders_awaited():
        for _ in range(count):
            await ends[0].send((await ends[0].receive())[::-1])


def converse(ends: Ends, peer: Peer) -> list[bytes]:
    peer.ready()
    peer.order(COUNT)
    heard = []
    for n in range(COUNT):
        ends[0].send(payload(n, 64))
        heard.append(bytes(ends[0].receive()))
    return heard


async def converse_awaited(ends: Ends, peer: Peer) -> list[bytes]:
    await peer.ready_awaited()
    peer.order(COUNT)
    heard = []
    for n in range(COUNT):
        await ends[0].send(payload(n, 64))
        heard.append(bytes(await ends[0].receive()))
    return heard


def conversation(name: str, folder: str) -> Any:
    subject, plan = SUBJECTS[name], Plan(64, 1, True, folder)
    with subject.line(plan) as line, Peer(perform, subject, [line.readers[0]], plan, mirror, mirror_awaited) as peer:
        return perform(subject, [line.writer], plan, converse, converse_awaited, peer)


@pytest.mark.parametrize("name", HERE)
def test_it_carries_messages_there_and_back(name: str, folder: str) -> None:
    assert play(folder, conversation, name, folder) == [payload(n, 64)[::-1] for n in range(COUNT)]


# ---- one way, in every size


def write(ends: Ends, plan: Plan, control: Control) -> None:
    for count in control.orders():
        for n in range(count):
            ends[0].send(payload(n, plan.nbytes))
        control.answer(None)


async def write_awaited(ends: Ends, plan: Plan, control: Control) -> None:
    async for count in control.orders_awaited():
        for n in range(count):
            await ends[0].send(payload(n, plan.nbytes))
        control.answer(None)


def read(ends: Ends, peer: Peer) -> list[bytes]:
    """The second half is taken without being kept, as throughput does."""
    peer.ready()
    peer.order(COUNT)
    heard = [bytes(ends[0].receive()) for _ in range(COUNT // 2)]
    for _ in range(COUNT // 2 - 1):
        ends[0].take()
    heard.append(bytes(ends[0].receive()))
    peer.answer()
    return heard


async def read_awaited(ends: Ends, peer: Peer) -> list[bytes]:
    await peer.ready_awaited()
    peer.order(COUNT)
    heard = [bytes(await ends[0].receive()) for _ in range(COUNT // 2)]
    for _ in range(COUNT // 2 - 1):
        await ends[0].take()
    heard.append(bytes(await ends[0].receive()))
    await peer.answer_awaited()
    return heard


def delivery(name: str, nbytes: int, folder: str) -> Any:
    subject, plan = SUBJECTS[name], Plan(nbytes, folder=folder)
    with subject.line(plan) as line, Peer(perform, subject, [line.writer], plan, write, write_awaited, plan) as peer:
        return perform(subject, [line.readers[0]], plan, read, read_awaited, peer)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("name", HERE)
def test_it_carries_every_size_in_order(name: str, nbytes: int, folder: str) -> None:
    size = min(nbytes, SUBJECTS[name].largest or nbytes)
    heard = play(folder, delivery, name, size, folder)
    assert heard == [payload(n, size) for n in (*range(COUNT // 2), COUNT - 1)]


# ---- to several readers


def listen(ends: Ends, control: Control) -> None:
    for count in control.orders():
        control.answer([bytes(ends[0].receive()) for _ in range(count)])


async def listen_awaited(ends: Ends, control: Control) -> None:
    async for count in control.orders_awaited():
        control.answer([bytes(await ends[0].receive()) for _ in range(count)])


def announce(ends: Ends, peers: list[Peer]) -> list[list[bytes]]:
    for peer in peers:
        peer.ready()
        peer.order(COUNT)
    for n in range(COUNT):
        ends[0].send(payload(n, 48))
    return [peer.answer() for peer in peers]


async def announce_awaited(ends: Ends, peers: list[Peer]) -> list[list[bytes]]:
    for peer in peers:
        await peer.ready_awaited()
        peer.order(COUNT)
    for n in range(COUNT):
        await ends[0].send(payload(n, 48))
    return [await peer.answer_awaited() for peer in peers]


def broadcast(name: str, folder: str) -> Any:
    subject, plan = SUBJECTS[name], Plan(48, 3, folder=folder)
    with subject.line(plan) as line, contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(Peer(perform, subject, [ticket], plan, listen, listen_awaited))
            for ticket in line.readers
        ]
        return perform(subject, [line.writer], plan, announce, announce_awaited, peers)


@pytest.mark.parametrize("name", HERE)
def test_it_reaches_every_reader(name: str, folder: str) -> None:
    assert play(folder, broadcast, name, folder) == [[payload(n, 48) for n in range(COUNT)]] * 3


# ---- in batches


def write_many(ends: Ends, control: Control) -> None:
    for count in control.orders():
        ends[0].send_many([payload(n, 64) for n in range(count)])


async def write_many_awaited(ends: Ends, control: Control) -> None:
    async for count in control.orders_awaited():
        await ends[0].send_many([payload(n, 64) for n in range(count)])


def read_many(ends: Ends, peer: Peer) -> list[bytes]:
    peer.ready()
    peer.order(COUNT)
    heard: list[bytes] = []
    while len(heard) < COUNT:
        batch = ends[0].receive_many(7)
        assert 1 <= len(batch) <= 7
        heard += batch
    return heard


async def read_many_awaited(ends: Ends, peer: Peer) -> list[bytes]:
    await peer.ready_awaited()
    peer.order(COUNT)
    heard: list[bytes] = []
    while len(heard) < COUNT:
        batch = await ends[0].receive_many(7)
        assert 1 <= len(batch) <= 7
        heard += batch
    return heard


def batches(name: str, folder: str) -> Any:
    subject, plan = SUBJECTS[name], Plan(64, folder=folder)
    with (
        subject.line(plan) as line,
        Peer(perform, subject, [line.writer], plan, write_many, write_many_awaited) as peer,
    ):
        return perform(subject, [line.readers[0]], plan, read_many, read_many_awaited, peer)


@pytest.mark.parametrize("name", BATCHING)
def test_it_carries_batches(name: str, folder: str) -> None:
    assert play(folder, batches, name, folder) == [payload(n, 64) for n in range(COUNT)]


# ---- what is there, and what is not


def test_the_standard_library_and_aiospin_are_always_there() -> None:
    assert {"aiospin sync", "aiospin uvloop", "aiospin asyncio", "Pipe", "mp.Queue", "stream uvloop"} <= set(HERE)
    assert all(subject.kind in contract.KINDS for subject in SUBJECTS.values())


def test_what_is_absent_says_what_to_install() -> None:
    absent = dataclasses.replace(SUBJECTS["faster-fifo"], needs="no_such_module_at_all")
    assert absent.missing() == "faster-fifo is not installed"
    later = dataclasses.replace(absent, python=(sys.version_info[0], sys.version_info[1] + 1))
    assert later.missing() == f"faster-fifo needs Python {sys.version_info[0]}.{sys.version_info[1] + 1}"


def test_an_end_says_when_it_does_not_go_that_way() -> None:
    with pytest.raises(RuntimeError, match="does not go that way"):
        contract.End().send(b"")


def test_pairs_broadcast_by_writing_to_each() -> None:
    pairs: list[Subject] = [subject for subject in SUBJECTS.values() if isinstance(subject, Pairs)]
    assert {"Pipe", "stream asyncio"} <= {subject.name for subject in pairs}


# ---- processes


def fail(control: Control) -> None:
    for _ in control.orders():
        raise LookupError("the peer has lost it")


def wait_for_a_peer_that_fails() -> None:
    with Peer(fail) as peer:
        peer.ready()
        peer.order(1)
        peer.answer()


def test_what_a_peer_raises_ends_the_case(folder: str) -> None:
    with pytest.raises(Failed, match="LookupError: the peer has lost it"):
        play(folder, wait_for_a_peer_that_fails)


def refuse() -> None:
    raise OSError(28, "No space left on device")


def test_what_a_leader_raises_is_told(folder: str) -> None:
    with pytest.raises(Failed, match="No space left"):
        play(folder, refuse)


def die() -> None:
    os._exit(7)


def test_a_leader_that_dies_is_told(folder: str) -> None:
    with pytest.raises(Failed, match="exit code 7"):
        play(folder, die)


def sleep_on() -> None:
    import signal

    signal.pause()


def hold_memory(path: str, control: Control) -> None:
    memory = bytearray(256 << 20)  # which the kernel needs a while to take back
    Path(path).write_text(str(os.getpid()))
    for _ in control.orders():
        memory.clear()


def end_beside_one_with_much_memory(path: str) -> None:
    with Peer(hold_memory, path) as peer:
        peer.ready()
        os._exit(7)


def test_no_peer_outlives_its_case(folder: str) -> None:
    path = f"{folder}/pid"
    with pytest.raises(Failed, match="exit code 7"):
        play(folder, end_beside_one_with_much_memory, path)
    with contextlib.suppress(FileNotFoundError):  # or the process is there, without memory: nobody asked how it ended
        assert "VmRSS" not in Path(f"/proc/{Path(path).read_text()}/status").read_text()


def test_a_case_that_takes_too_long_is_ended(folder: str) -> None:
    with pytest.raises(Failed, match="not done after 0 s"):
        lead(f"{folder}/stderr", 0.2, sleep_on)


def test_nothing_of_a_run_is_left() -> None:
    with workplace() as place:
        beside = Path(f"{place}.left by a peer")
        beside.touch()
        (Path(place) / "inside").touch()
    assert not beside.exists()
    assert not Path(place).exists()
