"""Which constants a register may hold where an instruction is reached: enough of x86-64 to follow compilers.

Guarantee: a set holds every value that some path through the function leaves in a register; None stands for any value.
Assumption: a function is entered at its start, and jumps within it are direct. What is not understood gives None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from disassembled import Instruction

Values = frozenset[int] | None
State = dict[str, Values]  # what is not in it may hold anything; "cl" is the low byte of "c", where only that is known

_MOST = 8  # values of one register, before it counts as any
_LEGACY = {
    f"{prefix}{family}{suffix}": (family, width)
    for family in "abcd"
    for prefix, suffix, width in (("r", "x", 64), ("e", "x", 32), ("", "x", 16), ("", "l", 8))
}
_POINTERS = {
    f"{prefix}{family}{suffix}": (family, width)
    for family in ("si", "di", "bp", "sp")
    for prefix, suffix, width in (("r", "", 64), ("e", "", 32), ("", "", 16), ("", "l", 8))
}
_NUMBERED = {
    f"r{n}{suffix}": (f"r{n}", w) for n in range(8, 16) for suffix, w in (("", 64), ("d", 32), ("w", 16), ("b", 8))
}
_REGISTERS = _LEGACY | _POINTERS | _NUMBERED
_CALL_CHANGES = ("a", "c", "d", "si", "di", "r8", "r9", "r10", "r11")
# They write registers that they do not name; anything else writes its last operand at most.
_IMPLICIT = re.compile(
    r"(call|i?mul|i?div|cpuid|rdtsc|xgetbv|cmpxchg|cltq|cqto|cltd|cwtl|syscall|stos|movs[bwlq]?$|lods|scas)"
)
_WRITES_NOTHING = re.compile(
    r"(cmp[bwlq]?$|test|j|nop|push|ret|u?comis[sd]$|bt[wlq]?$|endbr64|ud2|umwait|tpause|mwaitx|monitorx)"
)


def values_before(function: Sequence[Instruction], place: int) -> State:
    """Return what registers may hold before the instruction at index `place`: by "a" for rax, "si" for rsi, "r8"."""
    at = {each.address: index for index, each in enumerate(function)}
    before: dict[int, State] = {0: {}}
    waiting = [0]
    while waiting:
        index = waiting.pop()
        each = function[index]
        after = _after(each, before[index])
        for following in _successors(function, index, at):
            known = before.get(following)
            joined = after if known is None else _join(known, after)
            if joined != known:
                before[following] = joined
                waiting.append(following)
    if place not in before:
        raise ValueError(f"nothing leads to {function[place].text} at {function[place].address:#x}")
    return before[place]


def _successors(function: Sequence[Instruction], index: int, at: Mapping[int, int]) -> list[int]:
    name, found = function[index].name, []
    if name.startswith("j"):
        target = re.match(r"(?:0x)?([0-9a-f]+)\b", function[index].operands[0]) if function[index].operands else None
        if target and int(target[1], 16) in at:
            found.append(at[int(target[1], 16)])
    if name not in ("jmp", "ret", "ud2", "hlt") and index + 1 < len(function):
        found.append(index + 1)
    return found


def _join(one: State, other: State) -> State:
    joined: State = {}
    for register in one.keys() & other.keys():
        left, right = one[register], other[register]
        if left is not None and right is not None and len(left | right) <= _MOST:
            joined[register] = left | right
    return joined


def _after(each: Instruction, before: State) -> State:
    name, operands = each.name, each.operands
    after = dict(before)
    if _IMPLICIT.match(name):
        for register in (*_CALL_CHANGES, *(("b",) if not name.startswith("call") else ())):
            _forget(after, register)
    if _WRITES_NOTHING.match(name) or not operands:
        return after
    for operand in operands if name.startswith(("xchg", "xadd", "cmpxchg")) else operands[-1:]:
        if register := _register(operand):
            _forget(after, register[0])
    target = _register(operands[-1])
    if target is not None:
        if name.startswith("set"):
            after[f"{target[0]}l"] = frozenset({0, 1})
        values = _written(name, operands, before, target)
        if values is not None and len(values) <= _MOST:
            after[target[0]] = values
    return after


def _written(name: str, operands: Sequence[str], before: State, target: tuple[str, int]) -> Values:
    """The values that the target register has afterwards."""
    family, width = target
    full = (1 << max(width, 32)) - 1  # a write to 32 bits clears the upper half
    old = before.get(family)
    if name.startswith("set"):
        return None if old is None else frozenset(value & ~0xFF | bit for value in old for bit in (0, 1))
    if width < 32:
        return None
    if name.startswith("movzb"):
        byte = _register(operands[0])
        return before.get(f"{byte[0]}l") if byte is not None else None
    stem = name.removesuffix("l").removesuffix("q")
    if len(operands) == 1:
        changes = {"not": lambda value: ~value, "neg": lambda value: -value}
        change = changes.get(stem)
        return None if change is None or old is None else frozenset(change(value) & full for value in old)
    if len(operands) != 2:
        return None
    same = operands[0] == operands[1]
    if same and stem in ("xor", "sub", "sbb"):
        return frozenset({0, full}) if stem == "sbb" else frozenset({0})
    source = _source(operands[0], before)
    if stem in ("mov", "movabs"):
        return None if source is None else frozenset(value & full for value in source)
    if source is None or old is None:
        return None
    if stem.startswith("cmov"):
        return frozenset(value & full for value in source | old)
    pairs = [(left, right) for left in old for right in source]
    if stem == "and":
        return frozenset(left & right & full for left, right in pairs)
    if stem == "or":
        return frozenset((left | right) & full for left, right in pairs)
    if stem == "add":
        return frozenset((left + right) & full for left, right in pairs)
    return None


def _forget(state: State, register: str) -> None:
    state.pop(register, None)
    state.pop(f"{register}l", None)


def _register(operand: str) -> tuple[str, int] | None:
    return _REGISTERS.get(operand.removeprefix("%")) if operand.startswith("%") else None


def _source(operand: str, before: State) -> Values:
    if operand.startswith("$"):
        return frozenset({int(operand[1:], 16)})
    register = _register(operand)
    return before.get(register[0]) if register is not None and register[1] >= 32 else None
