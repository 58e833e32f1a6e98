"""A hosted class that says what reached it and where that lies, and the same question for this side.

Guarantee: `in_ring` tells whether bytes lie in a queue's shared memory, by the kernel's account of this process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy


def bytes_of(value: Any) -> bytes:
    """Its content, whatever holds it."""
    return value.tobytes() if isinstance(value, numpy.ndarray) else bytes(value)


def digest(content: bytes) -> str:
    """Short, and different for different content."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def address(value: Any) -> int:
    """Where its first byte lies."""
    array = value if isinstance(value, numpy.ndarray) else numpy.frombuffer(value, numpy.uint8)
    found: int = array.__array_interface__["data"][0]
    return found


def in_ring(value: Any) -> bool:
    """Whether it lies in a queue's shared memory."""
    at = address(value)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            low, high = (int(bound, 16) for bound in line.split(maxsplit=1)[0].split("-"))
            if low <= at < high:
                return "memfd:aiospin" in line
    raise AssertionError("it lies nowhere")


def describe(value: Any) -> dict[str, Any]:
    """What it is, what it holds, and where it lies."""
    is_array = isinstance(value, numpy.ndarray)
    return {
        "type": type(value).__name__,
        "kind": str(value.dtype.descr) if is_array else None,
        "shape": list(value.shape) if is_array else [len(value)],
        "digest": digest(bytes_of(value)),
    }


def place(value: Any) -> dict[str, Any]:
    """Where it lies."""
    read_only = not value.flags.writeable if isinstance(value, numpy.ndarray) else memoryview(value).readonly
    return {"in ring": in_ring(value), "read-only": read_only, "off": address(value) % 64}


class Weigher:
    """Without a loop."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def pid(self) -> int:
        """For `settle`."""
        return 0

    def echo(self, value: Any) -> Any:
        """What it was given."""
        return value

    def echo_each(self, values: list[Any]) -> Iterator[Any]:
        """Part by part."""
        yield from values

    def describe(self, value: Any) -> dict[str, Any]:
        """What reached the worker."""
        return describe(value)

    def place(self, value: Any) -> dict[str, Any]:
        """Where it lies there."""
        return place(value)

    def places(self, *values: Any, **named: Any) -> list[dict[str, Any]]:
        """Of several."""
        return [place(value) for value in (*values, *named.values())]

    def fresh(self, size: int, seed: int) -> Any:
        """An array that only the worker has."""
        return numpy.random.default_rng(seed).integers(0, 256, size, numpy.uint8)

    def spoil(self, value: Any) -> None:
        """Write into it."""
        value[0] = 1

    def keep(self, value: Any) -> None:
        """Beyond the call."""
        self.kept.append(value)

    def give_back(self) -> list[str]:
        """What was kept still holds what it held."""
        digests = [digest(bytes_of(value)) for value in self.kept]
        self.kept.clear()
        return digests


class WeigherLooped(Weigher):
    """In a loop."""

    async def echo(self, value: Any) -> Any:
        """What it was given."""
        return value
