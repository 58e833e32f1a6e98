"""A sample of every kind of fuzzing, in watched children; `.ci/fuzz` runs more of the same, and the native fuzzer."""

from __future__ import annotations

import collections
from pathlib import Path

import campaign
import pytest
from attach import BITS, flip
from strangers import RING, forgotten

from aiospin import _layout
from aiospin._errors import AttachError
from aiospin._segment import Segment, registry

pytestmark = pytest.mark.usefixtures("leaves_nothing")

# What may come back from damaged memory: results, and documented errors.
LEGAL = {
    "works",
    *("AttachError", "LayoutMismatch", "CorruptSlot", "FragmentLost", "ReaderDropped", "RoleTaken", "PeerDied"),
    *("QueueClosed", "Full", "Empty", "TimeoutError", "MemoryError", "ValueError"),
}


def answered(kind: str, executions: int, first: int = 0) -> collections.Counter[str]:
    tally = campaign.run(kind, executions, first=first)
    assert set(tally) <= LEGAL
    return tally


def test_calls_on_damaged_memory() -> None:
    tally = answered("calls", 60)
    assert tally["works"] > 300 and tally["CorruptSlot"] > 20


def test_waits_on_damaged_memory_end() -> None:
    tally = answered("waits", 30)
    assert all(tally[ending] for ending in ("TimeoutError", "QueueClosed", "PeerDied"))


def test_each_bit_of_what_attaching_reads() -> None:
    """One segment for all of them; the campaign makes a new one for each and goes on to use it."""
    verdicts = collections.Counter[str]()
    segment = Segment.create(readers=1, capacity=RING)
    with forgotten(segment):
        for bit in range(BITS):
            flip(segment, bit)
            try:
                Segment.adopt(segment.ref).bells_for(_layout.WRITER)
            except AttachError as error:
                verdicts[type(error).__name__] += 1
            else:
                verdicts["works"] += 1
            for adopted in list(registry.segments.values()):
                adopted.drop()
            flip(segment, bit)
    segment.drop()
    # Of the creator's pid, start time and namespace nothing is computed; bit 0 of the flags chooses checksums.
    assert verdicts == {"AttachError": BITS - 32 - 3 * 64 - 1, "LayoutMismatch": 32, "works": 3 * 64 + 1}


def test_headers_files_and_modes_that_are_not_as_they_were() -> None:
    assert answered("attach", 60, first=BITS)["AttachError"] > 30


def test_handles_that_nobody_made() -> None:
    assert answered("handles", 500)["AttachError"] > 250


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with status -11"),
        ("raise IndexError('undocumented')", "ended with status 1"),
    ],
)
def test_a_child_that_breaks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, ending: str) -> None:
    module = f"def execute(number, chance, tally):\n    if number == 3:\n        {body}\n"
    (tmp_path / "breaks.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(campaign.Broken, match=f"breaks: execution 3 of seed 1 {ending}; .* --seed 1 --replay 3"):
        campaign.run("breaks", 10)
