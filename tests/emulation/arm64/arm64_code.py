"""What the extension for arm64 is made of: its instructions, and which of them each rung stands and falls with.

Guarantee: by encoding and not by name, for older disassemblers know neither WFET nor SB.
Assumption: symbols were not stripped.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from arm64_places import EXTENSION, OBJDUMP

# Arm ARM, C6.2.
SEVL, WFE, WFET_X0, SB, ISB = 0xD50320BF, 0xD503205F, 0xD5031000, 0xD50330FF, 0xD5033FDF
YIELD = 0xD503203F

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t([0-9a-f]{8}) *\t(.*)$")


@dataclass(frozen=True)
class Instruction:
    """One of them; `address` counts from where the file is loaded."""

    function: str  # as mangled
    address: int
    word: int
    text: str


def instructions(program: Path = EXTENSION) -> list[Instruction]:
    """Return everything in the program's executable sections, by address."""
    done = subprocess.run([OBJDUMP, "--disassemble", program], capture_output=True, text=True, check=True)
    found, function = [], ""
    for line in done.stdout.splitlines():
        if named := _FUNCTION.match(line):
            function = named[1]
        elif parts := _INSTRUCTION.match(line):
            found.append(Instruction(function, int(parts[1], 16), int(parts[2], 16), parts[3]))
    return found


def is_ldaxr(each: Instruction) -> bool:
    """LDAXR of a 64-bit register: the registers' numbers are the compiler's choice."""
    return each.word & 0xFFFFFC00 == 0xC85FFC00


def idles(code: list[Instruction]) -> dict[str, list[Instruction]]:
    """Return for each rung the instructions by which it idles; for `yield`, which is a system call, the calls."""
    after_sevl = {after.address for before, after in itertools.pairwise(code) if before.word == SEVL}
    breaths = [each for each in code if "breathe" in each.function]
    return {
        "wfet": [each for each in code if each.word == WFET_X0],
        "wfe": [each for each in code if each.word == WFE and each.address not in after_sevl],
        "sb": [each for each in code if each.word == SB],
        "isb": [each for each in breaths if each.word == ISB],
        "yield": [each for each in breaths if re.match(r"bl\t.*<sched_yield@plt>", each.text)],
    }
