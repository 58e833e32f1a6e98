"""Shared memory as ctypes arrays: mapping, the doubled ring, and the process-wide barrier.

Guarantee: an address range is unmapped when its last view dies, and never before; mapping duplicates no descriptor.
Assumption: Linux, 64 bits. The `mmap` module will not do: it duplicates the descriptor it maps, and closing that
duplicate would drop every POSIX lock that this process holds on the segment.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Any, Final

PROT_NONE: Final = 0
PROT_READ: Final = 1
PROT_WRITE: Final = 2
_MAP_SHARED: Final = 0x01
_MAP_PRIVATE: Final = 0x02
_MAP_FIXED: Final = 0x10
_MAP_ANONYMOUS: Final = 0x20
_MAP_FAILED: Final = (1 << 64) - 1

_SYS_MEMBARRIER: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283}.get(platform.machine())
_CMD_GLOBAL_EXPEDITED: Final = 2
_CMD_REGISTER_GLOBAL_EXPEDITED: Final = 4

# PyDLL keeps the GIL: each of these calls is shorter than giving the GIL up and winning it back.
_mmap: Any = None
_munmap: Any = None
_mprotect: Any = None
_syscall: Any = None
if sys.platform == "linux":  # elsewhere this file imports, and nothing ever maps
    _libc = ctypes.PyDLL(None, use_errno=True)
    _mmap = _libc.mmap
    _mmap.restype = ctypes.c_void_p
    _mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    _munmap = _libc.munmap
    _munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _mprotect = _libc.mprotect
    _mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _syscall = _libc.syscall
    _syscall.restype = ctypes.c_long
    _syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long]


def _failed(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def byte_array(length: int, body: dict[str, Any]) -> Any:
    """A new ctypes array type of `length` bytes with the given class body. One per size: making a type is slow."""
    return type("Bytes", (ctypes.c_ubyte * length,), {"__slots__": (), **body})


class Pages:
    """One address range. `view` reaches all of it; the range is unmapped when the last such view has died."""

    def __init__(self, address: int, length: int) -> None:
        def unmap(_pages: object, release: Any = _munmap) -> None:
            release(address, length)

        self.address = address
        self.length = length
        self._array = byte_array(length, {"__del__": unmap}).from_address(address)

    @property
    def view(self) -> memoryview:
        """A writable view of every byte; keeps the range mapped. Reading a PROT_NONE range ends the process."""
        return memoryview(self._array).cast("B")

    @property
    def anchor(self) -> object:
        """An object that keeps the range mapped for as long as it is referenced."""
        return self._array

    def protect(self, protection: int) -> None:
        """Change what the whole range allows."""
        if _mprotect(self.address, self.length, protection) != 0:
            raise _failed(f"mprotect of {self.length} bytes")


def _map(address: int | None, length: int, protection: int, flags: int, fd: int, offset: int) -> int:
    mapped = _mmap(address, length, protection, flags, fd, offset)
    if mapped is None or mapped == _MAP_FAILED:
        raise _failed(f"mmap of {length} bytes at offset {offset}")
    return int(mapped)


def map_once(fd: int, offset: int, length: int, protection: int) -> Pages:
    """Map `length` bytes of the file from `offset` on, shared."""
    return Pages(_map(None, length, protection, _MAP_SHARED, fd, offset), length)


def map_twice(fd: int, offset: int, length: int, protection: int) -> Pages:
    """Map the same bytes twice, back to back, so that a run that crosses the end goes on at the beginning."""
    base = _map(None, 2 * length, PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS, -1, 0)
    pages = Pages(base, 2 * length)
    for half in (base, base + length):
        _map(half, length, protection, _MAP_SHARED | _MAP_FIXED, fd, offset)
    return pages


def register_barrier() -> bool:
    """Ask the kernel to include this process in `barrier` of any other one. False when it refuses."""
    return _SYS_MEMBARRIER is not None and _syscall(_SYS_MEMBARRIER, _CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0


def barrier() -> bool:
    """A full memory barrier on every running thread of every registered process, the caller's included.

    False when the kernel refuses it: then no order between two processes' stores and loads has been established.
    """
    return _SYS_MEMBARRIER is not None and _syscall(_SYS_MEMBARRIER, _CMD_GLOBAL_EXPEDITED, 0, 0) == 0


STORES_ARE_ORDERED: Final = platform.machine() in ("x86_64", "AMD64") and sys.byteorder == "little"
