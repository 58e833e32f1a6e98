"""The stand of a contest: one child that waits in one way, and this process, which stores to its word now and then.

Guarantee: the child is gone when the `with` ends, whatever ended it. Trouble is Failed, which says what.
Assumption: what is measured besides is looked at by `pulse`, which is called between two stores.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final

from aiospin import _backend, lowlevel
from aiospin._children import how_it_ended, sigint_blocked
from aiospin.doctor.waiter import ACK, LAST, SIZE, STAMP, UNUSED, WORD

GAP: Final = 1e-3
"""seconds between two stores, at least"""
LEAST: Final = 16
"""stores, on a machine that is so busy that fewer are answered in time"""
PATIENCE: Final = 30.0
"""seconds for a child to start, to answer a store, and to end"""
CHILD: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from aiospin.doctor.waiter import main; "
CALL: Final = "main(sys.argv[2], *map(int, sys.argv[3:]))"
BARE: Final = "nobody"
"""the mode in which nobody waits: what the machine and this process use by themselves"""


class Failed(Exception):
    """A mode that could not be measured; the text says why."""


class Stand:
    """`with Stand(mode) as stand:` has the child of that mode waiting."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._child: subprocess.Popen[str] | None = None
        with ExitStack() as held:
            self._memory = os.memfd_create("aiospin-doctor", os.MFD_CLOEXEC)
            held.callback(os.close, self._memory)
            os.ftruncate(self._memory, SIZE)
            self._page = held.enter_context(mmap.mmap(self._memory, SIZE))
            self._words = memoryview(self._page).cast("Q")
            held.callback(self._words.release)
            self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            for fd in self._bell:
                held.callback(os.close, fd)
            self._errors = held.enter_context(tempfile.TemporaryFile("w+"))
            self._held = held.pop_all()

    def __enter__(self) -> Stand:
        if self._mode == BARE:
            return self
        try:
            self._start()
            deadline = time.monotonic() + PATIENCE
            while self._word(ACK) == 0:
                self._rest(deadline, "did not start")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def store(self, seconds: float, pulse: Callable[[], None]) -> float:
        """Store for so long, or until LEAST stores were answered; the time that it really took."""
        begun = time.monotonic()
        number = 1
        stored = begun
        while time.monotonic() < begun + seconds or (self._child is not None and number < LEAST):
            pulse()
            if self._child is None or self._word(ACK) == number:
                number += 1
                stored = time.monotonic()
                self._store(number)
            self._rest(stored + PATIENCE, "did not answer")
        return time.monotonic() - begun

    def finish(self) -> dict[str, Any]:
        """End the child, and return what it says of its waits."""
        assert self._child is not None
        self._store(LAST)
        try:
            said, _ = self._child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"its process did not end within {PATIENCE:.0f} s") from None
        if self._child.returncode != 0 or not said:
            raise Failed(self._complaint())
        answer: dict[str, Any] = json.loads(said)
        return answer

    def close(self) -> None:
        """Idempotent."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None
        self._held.close()

    def _start(self) -> None:
        chosen = {} if self._mode in ("park", "busy poll") else {_backend.RUNG: self._mode}
        environment = {name: value for name, value in os.environ.items() if name != _backend.RUNG} | chosen
        passed = (self._memory, self._bell[0])
        command = [sys.executable, "-c", CHILD + CALL, json.dumps(sys.path), self._mode]
        with sigint_blocked():  # a child of which nobody knows could not be ended; it never hears Ctrl-C
            self._child = subprocess.Popen(
                [*command, *map(str, passed), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                pass_fds=passed,
                text=True,
            )

    def _store(self, number: int) -> None:
        lowlevel.store_word(self._page, time.monotonic_ns(), offset=UNUSED)  # or the first time is that of cold caches
        self._words[STAMP // 8] = time.monotonic_ns()
        lowlevel.store_word(self._page, number, offset=WORD)
        if self._mode == "park":
            os.write(self._bell[1], b"\0")

    def _word(self, offset: int) -> int:
        return self._words[offset // 8]

    def _rest(self, deadline: float, trouble: str) -> None:
        """Sleep until the next store. Failed once the child is gone, or the time is over."""
        if self._child is not None and self._child.poll() is not None:
            raise Failed(self._complaint())
        if time.monotonic() > deadline:
            raise Failed(f"its process {trouble} within {PATIENCE:.0f} s")
        time.sleep(GAP)

    def _complaint(self) -> str:
        assert self._child is not None
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return f"its process {how_it_ended(self._child.returncode)}{f': {lines[-1]}' if lines else ''}"
