"""Shared memory as ctypes arrays: mapping, the doubled ring, private views of it, and the process-wide barrier.

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
_MADV_DONTNEED: Final = 4
_MADV_POPULATE_WRITE: Final = 23  # from Linux 5.14 on

BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_SYS_MEMBARRIER: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283}.get(platform.machine())
_CMD_GLOBAL_EXPEDITED: Final = 2
_CMD_REGISTER_GLOBAL_EXPEDITED: Final = 4

# PyDLL keeps the GIL: each of these calls is shorter than giving the GIL up and winning it back.
_mmap: Any = None
_munmap: Any = None
_mprotect: Any = None
_madvise: Any = None
_populate: Any = None
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
    _madvise = _libc.madvise
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _populate = ctypes.CDLL(None, use_errno=True).madvise  # milliseconds for large ranges: without the GIL
    _populate.argtypes = _madvise.argtypes
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


def map_twice(fd: int, offset: int, length: int, protection: int, *, private: bool = False) -> Pages:
    """Map the same bytes twice, back to back, so that a run that crosses the end goes on at the beginning.

    `private`: what is written there changes a copy of the page (copy on write, mmap(2)), that nobody else sees. Until
    then a page shows what the others write. A descriptor that can only read is enough.
    """
    base = _map(None, 2 * length, PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS, -1, 0)
    pages = Pages(base, 2 * length)
    for half in (base, base + length):
        _map(half, length, protection, (_MAP_PRIVATE if private else _MAP_SHARED) | _MAP_FIXED, fd, offset)
    return pages


def copy_privately(address: int, length: int) -> None:
    """Give every page of a private range its own copy now, as a write to it would. OSError if that cannot be.

    MADV_POPULATE_WRITE of madvise(2): what other threads write meanwhile is kept. Other Python threads run.
    """
    if _populate(address, length, _MADV_POPULATE_WRITE) != 0:
        raise _failed(f"madvise of {length} bytes")


def forget_copies(address: int, length: int) -> None:
    """Let the pages of a private range show the file again; what was written to them is gone."""
    if _madvise(address, length, _MADV_DONTNEED) != 0:
        raise _failed(f"madvise of {length} bytes")


def has_copies(address: int, length: int) -> bool:
    """Whether a page of a private file mapping was written to, and is no longer the file's. OSError without /proc.

    Bit 61 of a page's word in /proc/self/pagemap tells pages of files from private ones (the kernel's
    Documentation/admin-guide/mm/pagemap.rst); in those that are neither in memory nor in swap nothing was written.
    """
    fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        words = os.pread(fd, length // BYTES * 8, address // BYTES * 8)
    finally:
        os.close(fd)
    if len(words) != length // BYTES * 8:
        raise OSError(f"/proc/self/pagemap has {len(words)} bytes for {length // BYTES} pages")
    return bool(words[7::8].translate(None, _CLEAN))


# The top bytes of pages without a private copy: of the file (bit 61), or neither present (63) nor swapped (62).
_CLEAN: Final = bytes(top for top in range(256) if top & 0x20 or not top & 0xC0)


def register_barrier() -> bool:
    """Ask the kernel to include this process in `barrier` of any other one. False when it refuses."""
    return _SYS_MEMBARRIER is not None and _syscall(_SYS_MEMBARRIER, _CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0


def barrier() -> bool:
    """A full memory barrier on every running thread of every registered process, the caller's included.

    False when the kernel refuses it: then no order between two processes' stores and loads has been established.
    """
    return _SYS_MEMBARRIER is not None and _syscall(_SYS_MEMBARRIER, _CMD_GLOBAL_EXPEDITED, 0, 0) == 0


STORES_ARE_ORDERED: Final = platform.machine() in ("x86_64", "AMD64") and sys.byteorder == "little"
