"""Process groups: who is in them, who shares a host, and how a handle gets to everybody.

Two kinds: torch's ProcessGroup, and any object with `rank`, `world_size` and `broadcast_obj(obj, src)`.

Guarantee: where some process could not be reached, every process of the group raises NoRelay; where a queue could not
be made, every process raises what its maker did. None hangs.
Assumption: every process of the group makes the same calls in the same order.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from aiospin import _host
from aiospin.compat.vllm._handle import Handle, NoRelay, require_handle


class Group(Protocol):
    """A group as one of its processes has it. Ranks are those within the group."""

    rank: int
    size: int

    def broadcast(self, obj: Any, source: int) -> Any:
        """What `source` passed, in every process."""
        ...

    def all_gather(self, obj: Any) -> list[Any]:
        """What each process passed, by rank."""
        ...


class _Torch:
    """torch.distributed's, of a backend that moves objects, such as gloo."""

    def __init__(self, pg: Any) -> None:
        self._pg = pg
        self._dist: Any = sys.modules["torch.distributed"]
        self.rank: int = self._dist.get_rank(pg)
        self.size: int = self._dist.get_world_size(pg)

    def broadcast(self, obj: Any, source: int) -> Any:
        carried = [obj]
        self._dist.broadcast_object_list(carried, src=self._dist.get_global_rank(self._pg, source), group=self._pg)
        return carried[0]

    def all_gather(self, obj: Any) -> list[Any]:
        gathered: list[Any] = [None] * self.size
        self._dist.all_gather_object(gathered, obj, group=self._pg)
        return gathered


class _Stateless:
    """One that can broadcast, and no more is needed."""

    def __init__(self, pg: Any) -> None:
        self._pg = pg
        self.rank: int = pg.rank
        self.size: int = pg.world_size

    def broadcast(self, obj: Any, source: int) -> Any:
        return self._pg.broadcast_obj(obj if self.rank == source else None, source)

    def all_gather(self, obj: Any) -> list[Any]:
        return [self.broadcast(obj, rank) for rank in range(self.size)]


def group_of(pg: Any) -> Group:
    """The group that `pg` stands for. TypeError for anything else."""
    if all(hasattr(pg, name) for name in ("rank", "world_size", "broadcast_obj")):
        return _Stateless(pg)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and isinstance(pg, distributed.ProcessGroup):
        return _Torch(pg)
    raise TypeError(f"a torch ProcessGroup or a group with rank, world_size and broadcast_obj is needed, got {pg!r}")


def hand_out(group: Group, writer_rank: int, made_elsewhere: Handle | None) -> Handle | list[int]:
    """Say who reads, in every process the same: a handle, if the writer's rank has one; else the ranks of the readers.

    Raises ValueError for a rank that is none, NoRelay if somebody is on another host.
    """
    _require_rank("writer_rank", writer_rank, group)
    everybody = group.all_gather((_host_here(), made_elsewhere))
    handle: Handle | None = everybody[writer_rank][1]
    if handle is not None:
        return require_handle(handle)  # which says who can read
    _require_one_host([host for host, _ in everybody], writer_rank)
    return [rank for rank in range(group.size) if rank != writer_rank]


@contextlib.contextmanager
def failing_together(group: Group, rank: int) -> Generator[None]:
    """An error of that rank, which is this process, is raised by `receive` in all others."""
    try:
        yield
    except Exception as error:
        group.broadcast(error, rank)
        raise


def receive(group: Group, source: int) -> Handle:
    """The handle that `source` broadcasts, or the error that it has met instead."""
    found = group.broadcast(None, source)
    if isinstance(found, Exception):
        raise found
    return require_handle(found)


class _Made(Protocol):
    def export_handle(self) -> Handle: ...


_Q = TypeVar("_Q", bound=_Made)


def gather(pg: Any, make: Callable[[], _Q], reader_rank: int) -> tuple[_Q, list[Handle]]:
    """What `make` made here, and everybody's handles, by rank in the group, in the process of that global rank.

    Nothing elsewhere. What some `make` has raised is raised everywhere.
    """
    group = group_of(pg)
    if not isinstance(group, _Torch):
        raise TypeError(f"a torch ProcessGroup is needed, got {pg!r}")
    place = sys.modules["torch.distributed"].get_group_rank(pg, reader_rank)
    try:
        made = make()
    except Exception as error:
        group.all_gather((_host_here(), error))
        raise
    everybody = group.all_gather((_host_here(), made.export_handle()))
    for _, outcome in everybody:
        if isinstance(outcome, Exception):
            raise outcome
    _require_one_host([host for host, _ in everybody], place)
    return made, [handle for _, handle in everybody] if group.rank == place else []


def _host_here() -> tuple[bytes, int]:
    """Equal for processes that can share a queue: one boot of one machine, one PID namespace."""
    return _host.boot_id(), _host.pid_namespace()


def _require_one_host(hosts: Sequence[Any], center: int) -> None:
    far = [rank for rank, host in enumerate(hosts) if host != hosts[center]]
    if far:
        raise NoRelay(
            f"ranks {', '.join(map(str, far))} are on another host, or in another PID namespace, than rank {center}, "
            f"and there is no relay to them"
        )


def _require_rank(name: str, rank: Any, group: Group) -> None:
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise TypeError(f"{name} must be a whole number, got {rank!r}")
    if not 0 <= rank < group.size:
        raise ValueError(f"{name} must be from 0 to {group.size - 1}, got {rank}")
