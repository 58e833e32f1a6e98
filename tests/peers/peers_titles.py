"""The names of the scenarios and of the benchmarks, what each is, and where the function is that plays it.

Guarantee: importing this imports neither torch nor aiospin; the command, and the tests of its pure parts, need no more.
Assumption: functions are found by `peers_link.find`, in the process of the side that plays them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peers_table import ROWS


@dataclass(frozen=True)
class Scenario:
    """Something that users do, and that must come out right."""

    title: str
    play: str  # module:function
    spinning: bool = False  # theirs plays it with its native wait


SCENARIOS: Mapping[str, Scenario] = {
    "objects": Scenario("object graphs and numpy arrays, there and back", "peers_contents:objects"),
    "recursive": Scenario("graphs that hold themselves", "peers_contents:recursive"),
    "tensor-kinds": Scenario("CPU tensors of every dtype, shape and layout", "peers_contents:tensors"),
    "four-readers": Scenario("1 writer, 4 readers: all get all, in order", "peers_contents:four_readers"),
    "producers": Scenario("3 producers' queues into one reader", "peers_contents:several_producers"),
    "overflow": Scenario("payloads beyond the chunk and beyond the ring, in order", "peers_contents:overflow"),
    "kept": Scenario("tensors that the reader keeps and writes to", "peers_contents:kept"),
    "reused": Scenario("a tensor that the sender changes after sending it", "peers_contents:reused"),
    "raw": Scenario("acquire_write and acquire_read, bodies that raise", "peers_manners:raw_chunks"),
    "enqueue-timeout": Scenario("time-out of enqueue on a full queue", "peers_manners:enqueue_times_out"),
    "dequeue-timeout": Scenario("time-out of dequeue on an empty queue", "peers_manners:dequeue_times_out"),
    "shutdown": Scenario("shutdown() of a reader that has just begun to wait", "peers_manners:shutdown_soon"),
    "shutdown-idle": Scenario("shutdown() of a reader that has waited for 2 s", "peers_manners:shutdown_late"),
    "wrong-role": Scenario("writing as a reader, reading as the writer", "peers_manners:wrong_role"),
    "handles": Scenario("a handle through pickle, and to a spawned process", "peers_manners:handles"),
    "torch-group": Scenario("queues of a torch group of 3 processes", "peers_groups:torch_group"),
    "stateless-group": Scenario("a queue of a group that is not torch's", "peers_groups:stateless_group"),
    "reader-killed": Scenario("a reader is killed while the writer waits", "peers_deaths:reader_killed"),
    "reader-dead": Scenario("a reader was killed before the writer waits", "peers_deaths:dead_before"),
    "writer-killed": Scenario("the writer is killed while a reader waits", "peers_deaths:writer_killed"),
    "writer-killed-writing": Scenario("the writer is killed in a message", "peers_deaths:killed_while_writing"),
    "spinloop": Scenario("spinloop(), 20,000 calls", "peers_manners:spinloop", spinning=True),
}

BENCHMARKS = tuple(dict.fromkeys(row.benchmark for row in ROWS))
