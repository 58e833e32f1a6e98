"""Two threads that wait for each other's words, in a Python for arm64. Prints where the extension is, and its rung.

    python arm64_waits.py TURNS

Assumption: run by arm64_executed.py, under an emulator that notes the instructions executed.
"""

from __future__ import annotations

import struct
import sys
import threading

import aiospin
from aiospin._backend import core
from aiospin._word import WHOLE_WORD


def loaded_at() -> int:
    """The address that the extension's own addresses count from."""
    with open("/proc/self/maps") as maps:
        return min(int(line.partition("-")[0], 16) for line in maps if line.rstrip().endswith(core.__file__))


def wait(words: bytearray, offset: int, value: int) -> None:
    """Watch without a sleep, and without the GIL, until the word has that value."""
    word = core.WordWatch(words, offset, ">=", value, WHOLE_WORD)
    while not word.watch(1000.0, 0.0):
        pass


def main(turns: int) -> None:
    print(f"{loaded_at():#x} {aiospin.rung()}", flush=True)
    words = bytearray(256)

    def answer() -> None:
        for turn in range(1, turns):
            wait(words, 0, turn)
            struct.pack_into("<Q", words, 128, turn)

    thread = threading.Thread(target=answer)
    thread.start()
    for turn in range(1, turns):
        struct.pack_into("<Q", words, 0, turn)
        wait(words, 128, turn)
    thread.join()
    assert not core.WordWatch(words, 0, ">=", turns, WHOLE_WORD).watch(5000.0, 0.0), "nobody stored that"


if __name__ == "__main__":
    main(int(sys.argv[1]))
