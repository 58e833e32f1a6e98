"""Busy polling of flags in shared memory, with sched_yield between two looks: what broadcast queues in Python do.

A slot has one flag that says it is written, and one for each reader that says it has read. The writer takes a slot when
all have read it; a reader takes one that is written and that it has not read. Nobody ever sleeps.

Assumption: stores of one process are seen in order by the others, as on x86-64; elsewhere it measures nothing sound.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from aiospin.bench.contract import End, Line, Plan, Subject

SLOTS = 64
FLAGS = 128
"""bytes between a slot's first flag and its payload"""


@dataclass(frozen=True)
class FlagLoop(Subject):
    def missing(self) -> str | None:
        ordered = platform.machine() in ("x86_64", "AMD64")
        return None if ordered else f"{platform.machine()} does not keep the order of stores that it relies on"

    @contextlib.contextmanager
    def line(self, plan: Plan) -> Generator[Line, None, None]:
        with contextlib.ExitStack() as stack:
            there = stack.enter_context(_memory(plan, plan.readers))
            back = stack.enter_context(_memory(plan, 1)) if plan.answers else None
            yield Line((there, back, 0), [(back, there, rank) for rank in range(plan.readers)])

    @contextlib.contextmanager
    def open(self, ticket: Any, plan: Plan) -> Generator[End, None, None]:
        outgoing, incoming, rank = ticket
        with contextlib.ExitStack() as stack:
            calls: dict[str, Callable[..., Any]] = {}
            if outgoing is not None:
                calls["send"] = _writer(stack.enter_context(_mapped(outgoing)), plan.readers, plan.nbytes)
            if incoming is not None:
                memory = stack.enter_context(_mapped(incoming))
                calls["receive"] = _reader(memory, rank, plan.nbytes)
            yield End(**calls)


def _slots(plan: Plan) -> int:
    return max(2, min(SLOTS, plan.room // plan.nbytes))


@contextlib.contextmanager
def _memory(plan: Plan, readers: int) -> Generator[str, None, None]:
    with tempfile.NamedTemporaryFile(dir=plan.folder) as file:
        os.posix_fallocate(file.fileno(), 0, _slots(plan) * _stride(plan.nbytes))
        yield file.name


def _stride(nbytes: int) -> int:
    return FLAGS + (nbytes + 63) // 64 * 64


@contextlib.contextmanager
def _mapped(path: str) -> Generator[mmap.mmap, None, None]:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) as memory:
        yield memory


def _writer(memory: mmap.mmap, readers: int, nbytes: int) -> Callable[[bytes], None]:
    stride, pause = _stride(nbytes), os.sched_yield
    end = len(memory) // stride * stride
    base = 0
    all_read, none_read = b"\1" * readers, bytes(readers)

    def send(payload: bytes) -> None:
        nonlocal base
        while memory[base] and memory[base + 1 : base + 1 + readers] != all_read:
            pause()
        memory[base] = 0
        memory[base + 1 : base + 1 + readers] = none_read
        memory[base + FLAGS : base + FLAGS + nbytes] = payload
        memory[base] = 1
        base = (base + stride) % end

    return send


def _reader(memory: mmap.mmap, rank: int, nbytes: int) -> Callable[[], bytes]:
    stride, pause = _stride(nbytes), os.sched_yield
    end = len(memory) // stride * stride
    base = 0
    mine = 1 + rank

    def receive() -> bytes:
        nonlocal base
        while not memory[base] or memory[base + mine]:
            pause()
        payload = memory[base + FLAGS : base + FLAGS + nbytes]
        memory[base + mine] = 1
        base = (base + stride) % end
        return payload

    return receive


SUBJECTS = (FlagLoop("flag loop", "sync"),)
