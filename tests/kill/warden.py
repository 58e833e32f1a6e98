"""The parent of a victim that is to be stopped inside the extension: traces it, and kills or releases it there.

Guarantee: the stop is the victim's own report: `reached` is sent when the kernel has stopped a thread of it on the
breakpoint of a probe, before the next instruction. When the warden ends, so does its victim. It reaps what it killed.
Assumption: runs in a process of its own that has exactly one child, forked by the zygote; x86-64 or arm64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
from multiprocessing.connection import Connection
from typing import Any

import probes

_SEIZE, _CONT, _GETREGSET, _SETREGSET = 0x4206, 7, 0x4204, 0x4205
_LISTEN = 0x4208
_OPTIONS = 0x00000008 | 0x00100000  # TRACECLONE, EXITKILL
_ANY_CHILD = 0x40000000  # __WALL
_EVENT_STOP = 128
_NT_PRSTATUS = 1
_COUNTER = {"x86_64": 16, "aarch64": 32}.get(platform.machine(), 0)  # index of the program counter

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def watch(victim: int, channel: Connection[Any, Any], occurrence: int | None) -> None:
    """Trace the victim until it is gone, and tell on the channel.

    `("seized",)` once it is traced; `("passed", address)` for each breakpoint that it is let through;
    `("reached", address)` for the one it is held at, the `occurrence`-th: the answer is "kill" or "go". Without an
    occurrence it is let through all of them. Last `("gone", status)`, as waitpid has it.
    """
    _ptrace(_SEIZE, victim, None, _OPTIONS)
    channel.send(("seized",))
    hits = 0
    while True:
        task, status = os.waitpid(-1, _ANY_CHILD)
        if not os.WIFSTOPPED(status):
            if task == victim:
                channel.send(("gone", status))
                return
            continue
        number, event = os.WSTOPSIG(status), status >> 16
        if event == _EVENT_STOP and number != signal.SIGTRAP:
            _let_go(task, _LISTEN, 0)  # stopped by SIGSTOP, and to stay so
        elif event or number != signal.SIGTRAP:
            _let_go(task, _CONT, 0 if event else number)
        else:
            hits += 1
            address = _at_breakpoint(task)
            if hits != occurrence:
                channel.send(("passed", address))
            else:
                channel.send(("reached", address))
                if channel.recv() == "kill":
                    os.kill(victim, signal.SIGKILL)
                    continue
            _let_go(task, _CONT, 0)


def _at_breakpoint(task: int) -> int:
    """Where a task stands, its program counter being moved behind the breakpoint."""
    registers = ctypes.create_string_buffer(1024)
    piece = _Piece(ctypes.cast(registers, ctypes.c_void_p), len(registers))
    _ptrace(_GETREGSET, task, _NT_PRSTATUS, ctypes.addressof(piece))
    (counter,) = struct.unpack_from("<Q", registers, 8 * _COUNTER)
    address: int = counter - probes.ADVANCE
    behind = address + len(probes.BREAKPOINT)
    if behind != counter:
        struct.pack_into("<Q", registers, 8 * _COUNTER, behind)
        _ptrace(_SETREGSET, task, _NT_PRSTATUS, ctypes.addressof(piece))
    return address


def _let_go(task: int, request: int, number: int) -> None:
    try:
        _ptrace(request, task, None, number)
    except ProcessLookupError:
        return  # killed while it was stopped; waitpid tells


def _ptrace(request: int, task: int, address: int | None, value: int) -> None:
    if _libc.ptrace(request, task, address, value) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace request {request:#x} on {task}: {os.strerror(number)}")
