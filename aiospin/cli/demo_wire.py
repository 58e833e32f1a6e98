"""The bytes that the demo's front end and workers exchange, drawn once.

file     u64 index | u32 bytes of the path | path, relative, as the file system spells it | the file's bytes
answer   u32 rank | u64 index | u64 newlines | 32 bytes SHA-256
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_FILE = struct.Struct("<QI")
_ANSWER = struct.Struct("<IQQ32s")


def pack_head(index: int, path: bytes) -> bytes:
    """What goes in front of a file's bytes."""
    return _FILE.pack(index, len(path)) + path


def split_file(message: memoryview) -> tuple[int, memoryview]:
    """(index, the file's bytes in place) of a file message. struct.error when it is too short."""
    index, path_bytes = _FILE.unpack_from(message)
    return index, message[_FILE.size + path_bytes :]


@dataclass(frozen=True)
class Answer:
    rank: int
    index: int
    lines: int
    digest: bytes

    def pack(self) -> bytes:
        return _ANSWER.pack(self.rank, self.index, self.lines, self.digest)

    @classmethod
    def unpack(cls, message: memoryview) -> Answer:
        return cls(*_ANSWER.unpack(message))
