"""The extension's static tracepoints as places where a process can be stopped.

Guarantee: `arm` puts a breakpoint on a probe in this process's own copy of the code; other processes are not disturbed.
Nothing else of the instruction stream changes, since a probe is one `nop` and a breakpoint takes its place.
Assumption: the process is traced (warden.py) before it comes to an armed probe, else it dies of SIGTRAP there.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

PROVIDER = b"aiospin"

# What the CPU stops at, and how far the program counter has moved when it has.
_BREAKPOINTS = {"x86_64": (b"\xcc", 1), "aarch64": (b"\x00\x00\x20\xd4", 0)}
SUPPORTED = platform.machine() in _BREAKPOINTS
BREAKPOINT, ADVANCE = _BREAKPOINTS.get(platform.machine(), (b"", 0))

_PROT_READ, _PROT_WRITE, _PROT_EXEC = 1, 2, 4


@functools.cache
def located(image: Path) -> dict[int, str]:
    """The link-time address of every probe in an ELF file, with its name. Read once: it may be built anew meanwhile."""
    data = image.read_bytes()
    sections = dict(_sections(data))
    base = sections[b".stapsdt.base"][0]
    _, offset, size = sections[b".note.stapsdt"]
    found: dict[int, str] = {}
    end = offset + size
    while offset < end:
        owner_size, desc_size, _ = struct.unpack_from("<III", data, offset)
        at = offset + 12 + (owner_size + 3) // 4 * 4
        location, noted_base, _ = struct.unpack_from("<QQQ", data, at)
        provider, name, _ = data[at + 24 : at + desc_size].split(b"\0", 2)
        if provider == PROVIDER:
            found[location + base - noted_base] = name.decode()
        offset = at + (desc_size + 3) // 4 * 4
    return found


def _sections(data: bytes) -> Iterator[tuple[bytes, tuple[int, int, int]]]:
    """Name, and (address, file offset, size), of every section."""
    (table,) = struct.unpack_from("<Q", data, 40)
    entry_size, count, names = struct.unpack_from("<HHH", data, 58)
    entries = [struct.unpack_from("<IIQQQQ", data, table + entry_size * index) for index in range(count)]
    names_at = entries[names][4]
    for name, _, _, address, offset, size in entries:
        start = names_at + name
        yield data[start : data.index(b"\0", start)], (address, offset, size)


def loaded(image: Path) -> dict[int, str]:
    """The address of every probe in this process, with its name."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].removesuffix(" (deleted)") == str(image) and int(fields[2], 16) == 0:
            start = int(fields[0].split("-")[0], 16)
            return {start + address: name for address, name in located(image).items()}
    raise LookupError(f"{image} is not mapped here")


def arm(addresses: Iterable[int]) -> None:
    """Put a breakpoint at each address of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    for address in addresses:
        start = address // mmap.PAGESIZE * mmap.PAGESIZE
        length = address + len(BREAKPOINT) - start
        writable = _PROT_READ | _PROT_WRITE | _PROT_EXEC
        _mprotect(libc, start, length, writable)
        ctypes.memmove(address, BREAKPOINT, len(BREAKPOINT))
        _mprotect(libc, start, length, _PROT_READ | _PROT_EXEC)


def _mprotect(libc: ctypes.CDLL, start: int, length: int, protection: int) -> None:
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(length), protection) != 0:
        raise OSError(ctypes.get_errno(), f"mprotect of {length} bytes at {start:#x}")
