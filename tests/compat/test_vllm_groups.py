"""Queues made by a process group: who writes, who reads, and that all get a queue, or all of them the reason."""

from __future__ import annotations

import contextlib
import importlib.util
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from compat_rig import only_writer
from programs import Program

import aiospin
from aiospin.compat.vllm import Handle, MessageQueue, NoRelay, _groups

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Meeting:
    """What the threads of one group share. Whoever waits there for longer than a hang has lost the others."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=10)
        self.carried = b""


class Group:
    """A stateless group, as one of its threads has it. Objects are pickled, as they would be between processes."""

    def __init__(self, rank: int, size: int, meeting: Meeting) -> None:
        self.rank, self.world_size = rank, size
        self._meeting = meeting

    def broadcast_obj(self, obj: Any, src: int) -> Any:
        if self.rank == src:
            self._meeting.carried = pickle.dumps(obj)
        self._meeting.barrier.wait()
        found = pickle.loads(self._meeting.carried)
        self._meeting.barrier.wait()
        return found


here = threading.local()


def each(size: int, call: Callable[[Group], Any]) -> list[Any]:
    """What the call came to in each thread of a group: what it returned, or the error that it raised."""
    meeting = Meeting(size)

    def run(rank: int) -> Any:
        here.rank = rank
        try:
            return call(Group(rank, size, meeting))
        except (aiospin.AiospinError, TypeError, ValueError) as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


@contextlib.contextmanager
def closing(queues: list[Any]) -> Any:
    """Shut down all that are queues, and raise the errors among the rest."""
    try:
        for queue in queues:
            if isinstance(queue, Exception):
                raise queue
        yield queues
    finally:
        for queue in queues:
            if isinstance(queue, MessageQueue):
                queue.shutdown()


def made(group: Any, *arguments: Any, **options: Any) -> MessageQueue:
    return MessageQueue.create_from_process_group(group, 1000, 2, *arguments, **options)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("writer_rank", [0, 1, 3])
def test_one_rank_writes_and_all_others_read(writer_rank: int, blocking: bool) -> None:
    with closing(each(4, lambda group: made(group, writer_rank, blocking=blocking))) as queues:
        readers = [queue for rank, queue in enumerate(queues) if rank != writer_rank]
        assert queues[writer_rank].export_handle().local_reader_ranks == [
            rank for rank in range(4) if rank != writer_rank
        ]
        assert queues[writer_rank].local_reader_rank == -1
        assert [reader.local_reader_rank for reader in readers] == [0, 1, 2]
        assert queues[writer_rank].broadcast_object({"to": "all"}) == {"to": "all"}
        assert [reader.broadcast_object() for reader in readers] == [{"to": "all"}] * 3


def test_a_group_of_one_has_a_writer_alone() -> None:
    with closing(each(1, made)) as [queue]:
        queue.enqueue("to nobody", timeout=0)
        assert queue.export_handle().local_reader_ranks == []


def test_blocking_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[MessageQueue] = []
    monkeypatch.setattr(MessageQueue, "wait_until_ready", lambda queue: waited.append(queue))
    with closing(each(3, made)) as queues:
        assert sorted(map(id, waited)) == sorted(map(id, queues))
        waited.clear()
    with closing(each(3, lambda group: made(group, blocking=False))):
        assert not waited


@pytest.mark.parametrize("writer_rank", [0, 2])
def test_with_a_handle_from_elsewhere_the_whole_group_reads(writer_rank: int) -> None:
    with only_writer((0, 1, 2)) as queue:
        handle = queue.export_handle()

        def call(group: Group) -> MessageQueue:
            mine = handle if group.rank == writer_rank else None
            return made(group, writer_rank, external_writer_handle=mine)

        with closing(each(3, call)) as readers:
            queue.wait_until_ready()
            queue.enqueue("from elsewhere")
            assert [reader.dequeue() for reader in readers] == ["from elsewhere"] * 3
            assert [reader.local_reader_rank for reader in readers] == [0, 1, 2]


def test_a_handle_of_another_rank_than_the_writers_is_not_used() -> None:
    with only_writer((0, 1)) as queue:
        handle = queue.export_handle()
        with closing(each(2, lambda group: made(group, 0, handle if group.rank == 1 else None))) as [writer, reader]:
            writer.enqueue("its own")
            assert reader.dequeue() == "its own"


def test_a_handle_that_has_no_place_for_a_rank_is_told_there() -> None:
    with only_writer((0, 2)) as queue:
        handle = queue.export_handle()
        outcomes = each(3, lambda group: made(group, external_writer_handle=handle))
        assert [type(outcome) for outcome in outcomes] == [MessageQueue, NoRelay, MessageQueue]
        for outcome in outcomes[::2]:
            outcome.shutdown()


@pytest.mark.parametrize("far", [(0,), (1,), (1, 2), (3,)])
def test_ranks_on_another_host_need_a_relay_and_nobody_hangs(far: tuple[int, ...], monkeypatch: Any) -> None:
    monkeypatch.setattr(_groups, "_host_here", lambda: (b"boot", 1 if here.rank in far else 2))
    outcomes = each(4, lambda group: made(group, 0))
    assert [type(outcome) for outcome in outcomes] == [NoRelay] * 4
    named = [rank for rank in range(4) if (rank in far) != (0 in far)]
    assert {str(outcome) for outcome in outcomes} == {str(outcomes[0])}
    assert str(outcomes[0]).startswith(f"ranks {', '.join(map(str, named))} are on another host")


@pytest.mark.parametrize(
    ("writer_rank", "error", "named"),
    [
        (-1, ValueError, "-1"),
        (3, ValueError, "3"),
        ("0", TypeError, "'0'"),
        (True, TypeError, "True"),
        (None, TypeError, "None"),
    ],
)
def test_a_writers_rank_that_is_none_is_refused_in_every_process(
    writer_rank: Any, error: type[Exception], named: str
) -> None:
    outcomes = each(3, lambda group: made(group, writer_rank))
    assert [type(outcome) for outcome in outcomes] == [error] * 3
    assert all("writer_rank must be" in str(outcome) and named in str(outcome) for outcome in outcomes)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [((0, 2), ValueError, "max_chunk_bytes"), ((1000, 0), ValueError, "max_chunks"), (("1", 2), TypeError, "'1'")],
)
def test_a_size_that_cannot_be_meant_is_refused_in_every_process(
    arguments: tuple[Any, Any], error: type[Exception], named: str
) -> None:
    outcomes = each(3, lambda group: MessageQueue.create_from_process_group(group, *arguments))
    assert [type(outcome) for outcome in outcomes] == [error] * 3
    assert all(named in str(outcome) for outcome in outcomes)


@pytest.mark.parametrize("handle", ["text", (1, 2), 0])
def test_what_is_no_handle_is_refused_in_every_process(handle: Any) -> None:
    outcomes = each(3, lambda group: made(group, 0, handle if group.rank == 0 else None))
    assert [type(outcome) for outcome in outcomes] == [TypeError] * 3
    assert all(repr(handle) in str(outcome) for outcome in outcomes)


@pytest.mark.parametrize("group", [None, 5, "gloo", object(), threading.Barrier(1)])
def test_what_is_no_group_is_refused_by_name(group: Any) -> None:
    for call in (made, lambda pg: MessageQueue.create_from_process_group_single_reader(pg, 1000, 2)):
        with pytest.raises(TypeError, match=r"ProcessGroup.* is needed, got "):
            call(group)


def test_a_group_that_cannot_gather_has_no_single_reader() -> None:
    with pytest.raises(TypeError, match="torch ProcessGroup is needed, got "):
        MessageQueue.create_from_process_group_single_reader(Group(0, 1, Meeting(1)), 1000, 2)


def test_a_process_of_one_host_and_namespace_is_the_same_place() -> None:
    with Program(
        "from aiospin.compat.vllm import _groups; boot, pids = _groups._host_here(); say([boot.hex(), pids])"
    ) as other:
        boot, namespace = _groups._host_here()
        assert other.hear() == [boot.hex(), namespace]


# groups of processes

MEMBER = """
    import pickle
    from aiospin.compat.vllm import MessageQueue

    class Group:
        rank, world_size = arguments["rank"], arguments["size"]

        def broadcast_obj(self, obj, src):
            say(["broadcast", src, pickle.dumps(obj).hex() if self.rank == src else None])
            return pickle.loads(bytes.fromhex(hear()))

    queue = MessageQueue.create_from_process_group(Group(), 1000, 2, arguments["writer_rank"])
    if Group.rank == arguments["writer_rank"]:
        for number in range(50):
            queue.enqueue((number, "from the writer"))
        say(["done", 50])
    else:
        say(["done", sum(queue.dequeue() == (number, "from the writer") for number in range(50))])
    hear()
    queue.shutdown()
"""


def carried(members: list[Program]) -> list[Any]:
    """Broadcast what the members ask for, until they are done; what they said then."""
    while True:
        said = [member.hear() for member in members]
        if said[0][0] == "done":
            return said
        sources = {source for _, source, _ in said}
        assert len(sources) == 1, "all make the same call"
        for member in members:
            member.say(said[sources.copy().pop()][2])


@pytest.mark.parametrize("writer_rank", [0, 2])
def test_processes_of_a_group_share_a_queue(writer_rank: int) -> None:
    with contextlib.ExitStack() as stack:
        members = [
            stack.enter_context(Program(MEMBER, {"rank": rank, "size": 3, "writer_rank": writer_rank}))
            for rank in range(3)
        ]
        assert carried(members) == [["done", 50]] * 3
        for member in (*members[:writer_rank], *members[writer_rank + 1 :], members[writer_rank]):
            member.say()
            member.finish()


# groups of torch

TORCH = """
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # gloo talks, too
    import pickle
    import torch
    import torch.distributed as dist
    from aiospin.compat.vllm import Handle, MessageQueue

    rank = arguments["rank"]
    dist.init_process_group("gloo", init_method="file://" + arguments["store"], rank=rank, world_size=3)
"""
BROADCAST = (
    TORCH
    + """
    queue = MessageQueue.create_from_process_group(dist.group.WORLD, 100_000, 2, arguments["writer_rank"])
    sent = {"tensor": torch.arange(10_000, dtype=torch.bfloat16), "rank": arguments["writer_rank"]}
    got = queue.broadcast_object(sent if rank == arguments["writer_rank"] else None)
    say(bool(torch.equal(got["tensor"], sent["tensor"])) and got["rank"] == arguments["writer_rank"])

    pair = dist.new_group([0, 2])
    if rank != 1:  # ranks within the group: 2 is its second
        small = MessageQueue.create_from_process_group(pair, 1000, 2, 1)
        say([small.local_reader_rank, small.broadcast_object("pair" if rank == 2 else None)])
        small.wait_until_ready()
    dist.barrier()
    dist.destroy_process_group()
"""
)
GATHER = (
    TORCH
    + """
    queue, handles = MessageQueue.create_from_process_group_single_reader(dist.group.WORLD, 1000, 2, 1)
    say([len(handles), all(isinstance(handle, Handle) for handle in handles)])
    queue.enqueue(("from", rank))
    if rank == 1:
        readers = [MessageQueue.create_from_handle(handle, 0) for handle in handles]
        say([reader.dequeue() for reader in readers])
    queue.wait_until_ready()
    dist.barrier()
    dist.destroy_process_group()
"""
)
FAR = (
    TORCH
    + """
    from aiospin.compat.vllm import NoRelay, _groups
    if rank == 2:
        _groups._host_here = lambda: (b"another", 1)
    for make in (MessageQueue.create_from_process_group, MessageQueue.create_from_process_group_single_reader):
        try:
            make(dist.group.WORLD, 1000, 2)
        except NoRelay as error:
            say(str(error).partition(" are")[0])
    dist.barrier()
    dist.destroy_process_group()
"""
)


FAILS = (
    TORCH
    + """
    for make in (MessageQueue.create_from_process_group, MessageQueue.create_from_process_group_single_reader):
        try:
            make(dist.group.WORLD, 1000 if rank else 0, 2)
        except ValueError as error:
            say(str(error))
    dist.barrier()
    dist.destroy_process_group()
"""
)


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


@contextlib.contextmanager
def torch_group(text: str, store: Path, **arguments: Any) -> Any:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Program(text, {"rank": rank, "store": str(store), **arguments}, warnings=None))
            for rank in range(3)
        ]


@needs_torch
@pytest.mark.parametrize("writer_rank", [0, 2])
def test_torch_groups_broadcast(tmp_path: Path, writer_rank: int) -> None:
    with torch_group(BROADCAST, tmp_path / "store", writer_rank=writer_rank) as members:
        assert [member.hear() for member in members] == [True] * 3
        assert [member.hear() for member in members[::2]] == [[0, "pair"], [-1, "pair"]]
        assert [member.wait() for member in members] == [0] * 3


@needs_torch
def test_torch_groups_gather_at_a_single_reader(tmp_path: Path) -> None:
    with torch_group(GATHER, tmp_path / "store") as members:
        assert [member.hear() for member in members] == [[0, True], [3, True], [0, True]]
        assert members[1].hear() == [["from", 0], ["from", 1], ["from", 2]]
        assert [member.wait() for member in members] == [0] * 3


@needs_torch
def test_torch_groups_across_hosts_need_a_relay_and_nobody_hangs(tmp_path: Path) -> None:
    with torch_group(FAR, tmp_path / "store") as members:
        for member in members:
            assert [member.hear(), member.hear()] == ["ranks 2"] * 2
        assert [member.wait() for member in members] == [0] * 3


@needs_torch
def test_torch_groups_raise_together_what_one_could_not_make(tmp_path: Path) -> None:
    with torch_group(FAILS, tmp_path / "store") as members:
        for member in members:
            assert [member.hear(), member.hear()] == ["max_chunk_bytes must be 1 or more, got 0"] * 2
        assert [member.wait() for member in members] == [0] * 3


def test_the_handle_that_goes_round_is_this_packages() -> None:
    with closing(each(2, made)) as [writer, reader]:
        assert type(writer.export_handle()) is type(reader.export_handle()) is Handle
        assert issubclass(NoRelay, aiospin.AiospinError)
