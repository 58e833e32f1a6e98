"""What objdump makes of a program: its instructions one by one, with the function and the file offset of each.

Guarantee: an instruction's `code` is what the file holds at its `offset`, so who writes there changes that instruction.
Assumption: binutils, which every gcc comes with; an ELF file whose symbols were not stripped.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SECTION = re.compile(r"^ *\d+ (\S+) +([0-9a-f]+) +([0-9a-f]+) +[0-9a-f]+ +([0-9a-f]+) ", re.MULTILINE)
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t(.*)$")


@dataclass(frozen=True)
class Instruction:
    """One of them, in AT&T's notation: `text` is "mov", "umonitor", "lock xchg" ... and its operands."""

    function: str  # as mangled
    address: int
    offset: int  # in the file
    code: bytes
    text: str

    @property
    def name(self) -> str:
        """The mnemonic without its prefixes."""
        words = [word for word in self.text.split() if word not in _PREFIXES]
        return words[0] if words else ""

    @property
    def operands(self) -> list[str]:
        """As written, in AT&T's order: the destination is the last."""
        rest = self.text.partition("#")[0].partition(self.name)[2].strip()
        return re.split(r",(?![^(]*\))", rest) if rest else []


_PREFIXES = {"lock", "rep", "repz", "repnz", "notrack", "bnd", "data16", "cs", "ds", "es", "fs", "gs", "ss"}


def instructions(program: Path) -> list[Instruction]:
    """Return everything in the program's executable sections, by address."""
    sections = [
        (int(address, 16), int(size, 16), int(offset, 16))
        for _, size, address, offset in _SECTION.findall(_objdump("--section-headers", program))
        if int(address, 16)
    ]

    def offset_of(address: int) -> int:
        start, _, offset = next(each for each in sections if each[0] <= address < each[0] + each[1])
        return address - start + offset

    return _parsed(_objdump("--disassemble", "--insn-width=16", program), offset_of)


def instructions_of(code: bytes, folder: Path) -> list[Instruction]:
    """Return what these bytes are, as a function without a name; `folder` is for a file."""
    file = folder / "code"
    file.write_bytes(code)
    as_raw = ("--disassemble-all", "--insn-width=16", "--target=binary", "--architecture=i386:x86-64")
    return _parsed(_objdump(*as_raw, file), lambda address: address)


def _parsed(listing: str, offset_of: Callable[[int], int]) -> list[Instruction]:
    found, function = [], ""
    for line in listing.splitlines():
        if named := _FUNCTION.match(line):
            function = named[1]
        elif match := _INSTRUCTION.match(line):
            address = int(match[1], 16)
            found.append(Instruction(function, address, offset_of(address), bytes.fromhex(match[2]), match[3]))
    return found


def _objdump(*arguments: str | Path) -> str:
    done = subprocess.run(["objdump", *arguments], capture_output=True, text=True, check=True)
    return done.stdout
