"""What the demo tells: progress lines on stderr, and its result as a table or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from aiospin.bench.samples import percentile
from aiospin.cli.streams import Stderr

TERMINAL_SECONDS = 0.1
PLAIN_SECONDS = 1.0
NAMED = 10
"""how many unreadable files a table names; JSON names all"""


def printable(text: str) -> str:
    """`text` with everything that a terminal could take amiss, or that cannot be encoded, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def size(nbytes: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} GB"


class Progress:
    """Lines on `stream` (default stderr): one per stage; counts in place on a terminal, else a line now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | Stderr = Stderr() if stream is None else stream
        self._terminal = self._stream.isatty()
        self._every = TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS
        self._next = 0.0
        self._open = False
        """the cursor stands behind a count, on the same line"""

    def stage(self, text: str) -> None:
        """Begin a stage with a line of its own."""
        self._write(f"{self._clear()}aiospin demo: {text}\n")

    def count(self, files: int, nbytes: int, verified: int) -> None:
        """Show how far it is, if the last time is long enough ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every
        text = f"aiospin demo: {files:,} files, {size(nbytes)} sent, {verified:,} verified"
        self._write(f"{self._clear()}{text}" if self._terminal else f"{text}\n")
        self._open = self._terminal

    def _clear(self) -> str:
        opened, self._open = self._open, False
        return "\r\x1b[K" if opened else ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def percentiles(latencies_ns: Sequence[int]) -> dict[str, float | None]:
    """p50, p99 and p99.9 in microseconds, by nearest rank; None when there is nothing to rank."""
    ordered = sorted(latencies_ns)
    return {
        name: percentile(ordered, part) / 1e3 if ordered else None
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999))
    }


def as_json(result: Mapping[str, Any]) -> str:
    return json.dumps(result, indent=2)


def as_table(result: Mapping[str, Any]) -> str:
    """The result for people: the figures, then one row per process, then what went wrong."""
    latency = result["latency_us"]
    rows = [
        ("files", f"{result['files']:,} verified {result['verified']:,}, lost {result['lost']:,}"),
        ("bytes", f"{result['bytes']:,} ({size(result['bytes'])})"),
        ("time", f"{result['seconds']:.2f} s, {result['workers']} workers, {result['loop']}"),
        ("rate", f"{result['messages_per_s']:,.0f} messages/s, {result['gb_per_s']:.3f} GB/s"),
        (
            "latency",
            "  ".join(
                f"{name.replace('_', '.')} {'-' if value is None else f'{value:,.0f} us'}"
                for name, value in latency.items()
            ),
        ),
        ("backend", f"{result['backend']}, rung {result['rung']}"),
    ]
    lines = [f"{name:<10}{value}" for name, value in rows]
    lines += ["", f"{'process':<12}{'pid':>8}{'CPU s working':>16}{'idle % of a core':>18}"]
    for each in result["processes"]:
        idle = "-" if each["idle_cpu_percent"] is None else f"{each['idle_cpu_percent']:.3f}"
        lines.append(f"{each['name']:<12}{each['pid']:>8}{each['cpu_seconds']:>16.2f}{idle:>18}")
    unreadable = result["unreadable"]
    if unreadable:
        lines += ["", f"{len(unreadable)} not readable:"]
        lines += [f"  {printable(each['path'])}: {each['reason']}" for each in unreadable[:NAMED]]
        if len(unreadable) > NAMED:
            lines.append(f"  and {len(unreadable) - NAMED} more (--json names all)")
    lines += [f"wrong: {printable(text)}" for text in result["wrong"]]
    return "\n".join(lines)
