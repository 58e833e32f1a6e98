"""The files that the demo sends, read and hashed ahead of the sender in a thread.

Guarantee: what cannot be read is counted and named and stops nothing; directory links are not followed, so a loop of
links ends; whatever is not a regular file (a FIFO would block for ever) is passed over. At most two batches of
BATCH_BYTES, or one file each when files are larger, are in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

BATCH_FILES = 32
BATCH_BYTES = 8 << 20
CHUNK = 1 << 20


class Stopped(Exception):
    """The reading was called off in the middle of a file."""


@dataclass(frozen=True)
class Source:
    """One file as it was read: its bytes in chunks, and what every worker must answer."""

    path: bytes
    """relative to the start, as the file system spells it"""
    chunks: tuple[bytes, ...]
    nbytes: int
    lines: int
    digest: bytes


class Sources:
    """The readable regular files under `root`, in the order of their names; `root` may be one file.

    Folders right under `root` whose name is in `without` are left out.
    """

    def __init__(self, root: str, without: frozenset[str] = frozenset()) -> None:
        self.unreadable: list[tuple[str, str]] = []
        """(path, reason) of what could not be read, so far"""
        self._root = root
        self._without = without
        self._stop = threading.Event()
        self._files = self._read_all()

    async def batches(self) -> AsyncGenerator[list[Source], None]:
        """Lists of sources, the next one being read while the caller is busy with the last.

        Ended early (closed, cancelled), it calls the reading off and returns once the thread has.
        """
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "aiospin-demo-read") as pool:
            try:
                reading = loop.run_in_executor(pool, self._next_batch)
                while batch := await reading:
                    reading = loop.run_in_executor(pool, self._next_batch)
                    yield batch
            finally:
                self._stop.set()

    def _next_batch(self) -> list[Source]:
        batch: list[Source] = []
        room = BATCH_BYTES
        try:
            while len(batch) < BATCH_FILES and room > 0 and (source := next(self._files, None)) is not None:
                batch.append(source)
                room -= source.nbytes
        except Stopped:
            return []
        return batch

    def _read_all(self) -> Iterator[Source]:
        for path, relative in self._walk():
            try:
                source = self._read(path, relative)
            except OSError as error:
                self._note(error, path)
            else:
                if source is not None:
                    yield source

    def _walk(self) -> Iterator[tuple[str, str]]:
        if not os.path.isdir(self._root):
            yield self._root, os.path.basename(self._root)
            return
        for folder, folders, files in os.walk(self._root, onerror=lambda error: self._note(error, self._root)):
            if folder == self._root:
                folders[:] = set(folders) - self._without
            folders.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                yield path, os.path.relpath(path, self._root)

    def _read(self, path: str, relative: str) -> Source | None:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        digest = hashlib.sha256()
        chunks: list[bytes] = []
        lines = 0
        # O_NONBLOCK and a second look: what was a file may be a FIFO by now, and opening that could block for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            while chunk := file.read(CHUNK):
                if self._stop.is_set():
                    raise Stopped
                digest.update(chunk)
                lines += chunk.count(b"\n")
                chunks.append(chunk)
        nbytes = sum(map(len, chunks))
        return Source(os.fsencode(relative), tuple(chunks), nbytes, lines, digest.digest())

    def _note(self, error: OSError, path: str) -> None:
        self.unreadable.append((str(error.filename or path), error.strerror or str(error)))
