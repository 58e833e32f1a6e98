"""Put an opcode that every CPU refuses into each instruction that waits: what waitemu.cpp carries out.

Of `f3 0f ae f0` (UMONITOR), `f2|66 0f ae f1` (UMWAIT, TPAUSE) and `0f 01 fa|fb` (MONITORX, MWAITX) only the last byte
of the opcode changes, to UD2's 0b. Then they trap on a CPU that has them, too, and where a hypervisor ignores them.

Guarantee: only what the disassembler calls by one of these names is changed, and afterwards none of them is left.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from disassembled import instructions

# The whole instruction but its operand's register; and where in it the byte lies that becomes 0b.
PATTERNS = {
    "umonitor": re.compile(rb"\xf3([\x40-\x4f]?\x0f)\xae[\xf0-\xf7]", re.DOTALL),
    "umwait": re.compile(rb"\xf2([\x40-\x4f]?\x0f)\xae[\xf0-\xf7]", re.DOTALL),
    "tpause": re.compile(rb"\x66([\x40-\x4f]?\x0f)\xae[\xf0-\xf7]", re.DOTALL),
    "monitorx": re.compile(rb"(\x0f)\x01\xfa", re.DOTALL),
    "mwaitx": re.compile(rb"(\x0f)\x01\xfb", re.DOTALL),
}
UD2 = 0x0B


def patched(program: Path, copy: Path) -> Counter[str]:
    """Write the patched `copy` of `program`, and return how many of each instruction were changed.

    Raises ValueError where the bytes are not those of the instruction's name, or where UD2 has such neighbours already.
    """
    content = bytearray(program.read_bytes())
    changed: Counter[str] = Counter()
    places = set()
    for each in instructions(program):
        if each.name == "ud2" and content[each.offset + 2] in (0xFA, 0xFB):
            raise ValueError(f"{program}: the trap at {each.address:#x} would be taken for a wait")
        if each.name not in PATTERNS:
            continue
        match = PATTERNS[each.name].fullmatch(each.code)
        if match is None:
            raise ValueError(f"{program}: {each.name} at {each.address:#x} is {each.code.hex(' ')}")
        places.add(each.offset + match.end(1))
        changed[each.name] += 1
    for place in places:
        content[place] = UD2
    copy.write_bytes(content)
    copy.chmod(program.stat().st_mode)
    _verify(program, copy, places)
    return changed


def _verify(program: Path, copy: Path, places: set[int]) -> None:
    before, after = program.read_bytes(), copy.read_bytes()
    differing = {place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    if differing != places:
        raise ValueError(f"{copy} differs from {program} elsewhere than in its waits")
    left = [each for each in instructions(copy) if each.name in PATTERNS]
    if left:
        raise ValueError(f"{copy} still has {left[0].name} at {left[0].address:#x}")
