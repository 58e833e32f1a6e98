"""The extension's machine code, as built: the waits are the instructions that they should be, on the right registers.

* Each of UMONITOR, UMWAIT, TPAUSE, MONITORX and MWAITX is there, in one encoding, and in functions of native/cpu alone.
* Where operands are constants they are the manuals': a control of 0 or 1, no hints, a timer and one of two states.
* Nothing needs more than the x86-64 of 2003, but where a function is called only after the CPU was asked.
"""

from __future__ import annotations

import itertools
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from disassembled import Instruction, instructions, instructions_of
from machine_values import values_before

from aiospin import _backend

pytestmark = pytest.mark.native

# Intel SDM vol. 2B and AMD APM vol. 3, with the registers that native/cpu gives them.
ENCODINGS = {
    "umonitor": ("f3 0f ae f0", "%rax"),
    "umwait": ("f2 0f ae f1", "%ecx"),
    "tpause": ("66 0f ae f1", "%ecx"),
    "monitorx": ("0f 01 fa", "%rax,%ecx,%edx"),
    "mwaitx": ("0f 01 fb", "%eax,%ecx,%ebx"),
}
# What registers may hold, where it is a constant: C0.2 and C0.1; no extensions, no hints; the timer, C1 and C0.
CONSTANTS: dict[str, dict[str, set[int]]] = {
    "umonitor": {},
    "umwait": {"c": {0, 1}},
    "tpause": {"c": {0, 1}},
    "monitorx": {"c": {0}, "d": {0}},
    "mwaitx": {"c": {2}, "a": {0x00, 0xF0}},
}
# What stands in a function that only a CPU with it gets to: the faster half of the checksum.
DISPATCHED = {"crc32": "hardware"}
# What came after SSE2. No tzcnt: compilers write it where older CPUs execute the bsf in it, to the same effect.
LATER = re.compile(
    r"v\w+|k(and|andn|mov|not|or|ortest|shift|test|unpck|xn?or)\w*"  # AVX
    r"|addsubp[ds]|h(add|sub)p[ds]|lddqu|mov(d|sh|sl)dup|fisttp\w*"  # SSE3
    r"|p(abs[bwd]|alignr|hadds?[wd]|hsubs?[wd]|maddubsw|mulhrsw|shufb|sign[bwd])"  # SSSE3
    r"|p?blend\w+|dpp[ds]|(ext|ins)r\w*ps|movntdqa|mpsadbw|packusdw|pcmpeqq|p(extr|insr)[bdq]|phminposuw"
    r"|p(max|min)(sb|sd|ud|uw)|pmov[sz]x\w+|pmul(dq|ld)|ptest|round[ps][ds]"  # SSE4.1; pextrw and pinsrw are older
    r"|crc32\w*|pcmp[ei]str[im]|pcmpgtq|popcnt\w*"  # SSE4.2
    r"|andn[lq]?|bextr\w*|bls(i|msk|r)\w*|bzhi\w*|(mul|ror|sar|shl|shr)x\w*|pdep\w*|pext[lq]?|lzcnt\w*|movbe\w*"
    r"|ad[co]x\w*|cmpxchg16b|rdtscp|rdrand\w*|rdseed\w*|aes\w+|pclmul\w+|sha(1|256)\w+|x(begin|end|save|rstor)\w*|serialize"
)


def wrong_waits(code: Sequence[Instruction]) -> Iterator[str]:
    """Say what is wrong with each instruction that waits: its bytes, its registers, what they hold."""
    for _, group in itertools.groupby(code, lambda each: each.function):
        function = list(group)
        for place, each in enumerate(function):
            if each.name not in ENCODINGS:
                continue
            encoding, registers = ENCODINGS[each.name]
            if (each.code.hex(" "), ",".join(each.operands)) != (encoding, registers):
                yield f"{each.text} at {each.address:#x} is {each.code.hex(' ')}"
                continue
            held = values_before(function, place)
            for register, allowed in CONSTANTS[each.name].items():
                values = held.get(register)
                if values is None or not values <= allowed:
                    yield f"{each.text} at {each.address:#x} with {values or 'anything'} in {register}"


def later_instructions(code: Sequence[Instruction]) -> Iterator[str]:
    """Name every instruction that a CPU of 2003 does not have, and that is not dispatched."""
    for each in code:
        dispatched = any(each.name.startswith(n) and f in each.function for n, f in DISPATCHED.items())
        if not dispatched and (LATER.fullmatch(each.name) or re.search(r"%[yz]mm|%k[0-7]", each.text)):
            yield f"{each.text} in {each.function}"


# Without it the parametrised cases below would be skipped elsewhere; there is nothing of x86 to look at on an Arm.
if platform.machine() == "x86_64":

    @pytest.fixture(scope="module")
    def extension() -> list[Instruction]:
        """Everything in the extension that this run has imported."""
        return instructions(Path(str(_backend.core.__file__)))

    def test_every_wait_is_there_and_in_no_other_place(extension: list[Instruction]) -> None:
        places = {(each.name, each.function) for each in extension if each.name in ENCODINGS}
        assert {name for name, _ in places} == set(ENCODINGS)
        assert not [place for place in places if not re.match(r"_ZNK?7aiospin3cpu", place[1])]

    def test_every_wait_has_its_encoding_and_its_operands(extension: list[Instruction]) -> None:
        assert not list(wrong_waits(extension))

    def test_nothing_needs_a_newer_cpu(extension: list[Instruction]) -> None:
        assert not sorted(set(later_instructions(extension)))
        assert any(each.name.startswith("crc32") for each in extension), "the disassembly is incomplete"

    ZERO_C, ZERO_D = "31 c9", "31 d2"
    RIGHT = {
        "monitorx": f"{ZERO_C} {ZERO_D} 0f 01 fa",
        "monitorx by a copy": f"{ZERO_D} 89 d1 0f 01 fa",
        "mwaitx": "b9 02 00 00 00 b8 f0 00 00 00 0f 01 fb",
        "mwaitx by a borrow": "b9 02 00 00 00 19 c0 f7 d0 25 f0 00 00 00 0f 01 fb",
        "umwait by a comparison": f"{ZERO_C} 48 39 d8 0f 93 c1 f2 0f ae f1",
        "umwait by a byte of a comparison": "48 39 d8 0f 93 c1 0f b6 c9 f2 0f ae f1",
        "tpause after a jump": "b9 01 00 00 00 74 02 31 c9 66 0f ae f1",
    }
    WRONG = {
        "another address than rax": "f3 0f ae f3",
        "the address in 32 bits": "67 f3 0f ae f0",
        "an extension of monitorx": f"b9 01 00 00 00 {ZERO_D} 0f 01 fa",
        "a hint that nobody set": f"{ZERO_C} 0f 01 fa",
        "mwaitx without a timer": f"{ZERO_C} b8 f0 00 00 00 0f 01 fb",
        "a state between": "b9 02 00 00 00 b8 10 00 00 00 0f 01 fb",
        "a state that a call left": "31 c0 e8 00 00 00 00 b9 02 00 00 00 0f 01 fb",
        "a reserved bit of umwait": "b9 02 00 00 00 f2 0f ae f1",
        "another control of tpause": "66 0f ae f2",
        "a path with another control": "b9 03 00 00 00 74 02 31 c9 66 0f ae f1",
    }

    @pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
    def test_a_right_wait_passes(code: str, tmp_path: Path) -> None:
        assert not list(wrong_waits(instructions_of(bytes.fromhex(code), tmp_path)))

    @pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
    def test_a_wrong_wait_is_told(code: str, tmp_path: Path) -> None:
        assert len(list(wrong_waits(instructions_of(bytes.fromhex(code), tmp_path)))) == 1

    @pytest.mark.parametrize(
        "code",
        [
            "c5 fc 28 c1",
            "c5 f8 77",
            "62 f1 7c 48 28 c1",
            "f3 0f b8 c1",
            "f2 0f 38 f1 c1",
            "c4 e2 f3 f7 c0",
            "66 0f 38 00 c1",
        ],
    )
    def test_a_newer_instruction_is_told(code: str, tmp_path: Path) -> None:
        assert len(list(later_instructions(instructions_of(bytes.fromhex(code), tmp_path)))) == 1

    @pytest.mark.parametrize("code", ["0f 28 c1", "f3 90", "f3 0f bc c1", "66 0f c5 c1 00", "0f a2"])
    def test_an_old_instruction_passes(code: str, tmp_path: Path) -> None:
        assert not list(later_instructions(instructions_of(bytes.fromhex(code), tmp_path)))
