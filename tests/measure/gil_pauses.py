"""Should a short pause hold the GIL or drop it? Measures both, alone and beside a thread that wants the GIL.

    python -m tests.measure.gil_pauses [--seconds 0.5] [--rounds 3]

Each line is one length of pause, with the GIL held and dropped: how long a pause took (median, in microseconds), the
share of pauses in which the other thread got hold of the GIL, how long those took (median), and how much of its speed
the other thread had meanwhile, in percent of its speed alone. Nothing stores to the buffer, so every pause lasts its
whole length, and what it took beyond that is the price. Handing over is counted and not timed, since a busy machine
makes any pause long now and then.

On a machine that does other things the other thread's wake-ups come late, and dropping the GIL looks better than it
is: there `chrt -f 5`, for a second or two, keeps the others away (`--seconds 0.06 --rounds 1`).

`aiospin.lowlevel` holds the answer: how much of a watch keeps the GIL.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from aiospin import _backend

PAUSES_US = (0.5, 1, 2, 5, 10, 20, 50)


class Pauses(NamedTuple):
    """What the pauses of one run took, and what the other thread did meanwhile."""

    took_us: list[float]
    lost_us: list[float]  # of those in which the other thread had the GIL
    steps_per_s: float

    def text(self, alone: float) -> str:
        lost = f"{100 * len(self.lost_us) / len(self.took_us):6.2f} %"
        then = f"{statistics.median(self.lost_us):9.0f}" if self.lost_us else "        -"
        share = f"{100 * self.steps_per_s / alone:5.0f} %" if alone else "      -"
        return f"{statistics.median(self.took_us):8.2f} {lost} {then} {share}"


class Busy:
    """A thread that computes in Python and never lets go of the GIL by itself."""

    def __init__(self) -> None:
        self.steps = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopped:
            self.steps += 1

    def __enter__(self) -> Busy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped = True
        self._thread.join()


def speed(busy: Busy, seconds: float) -> float:
    """Steps per second of the other thread while this one sleeps."""
    before, began = busy.steps, time.perf_counter()
    threading.Event().wait(seconds)
    return (busy.steps - before) / (time.perf_counter() - began)


def pause(watch: Callable[[float, float], bool], us: float, held_us: float, seconds: float, busy: Busy) -> Pauses:
    """Pause over and over for so many seconds."""
    took: list[float] = []
    lost: list[float] = []
    first = busy.steps
    began = now = time.perf_counter()
    while now < began + seconds:
        then, steps = time.perf_counter(), busy.steps
        watch(us, held_us)
        handed_over, now = busy.steps != steps, time.perf_counter()
        took.append((now - then) * 1e6)
        if handed_over:
            lost.append(took[-1])
    return Pauses(took, lost, (busy.steps - first) / (now - began))


def measure(busy: Busy, seconds: float) -> None:
    alone = speed(busy, seconds)
    watch = _backend.core.BytesWatch(bytearray(64))
    heading = f"{'median':>8} {'lost':>8} {'then':>9} {'other':>7}"
    print(f"{'pause':>7} | held: {heading} | dropped: {heading}")
    for us in PAUSES_US:
        held = pause(watch.watch, us, us, seconds, busy)
        dropped = pause(watch.watch, us, 0, seconds, busy)
        print(f"{us:7} |       {held.text(alone)} |          {dropped.text(alone)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each figure")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if _backend.name != "native":
        sys.exit("the fallback does not watch: there is nothing to measure")
    print(f"rung {_backend.rung()}, switch interval {sys.getswitchinterval() * 1e3:g} ms")
    for number in range(arguments.rounds):
        print(f"\nround {number + 1}, alone")
        measure(Busy(), arguments.seconds)  # never started
        print(f"\nround {number + 1}, beside a busy thread")
        with Busy() as busy:
            measure(busy, arguments.seconds)


if __name__ == "__main__":
    main()
