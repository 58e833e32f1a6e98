"""What the compiler made of the arm64 rungs. Run by .ci/arm64, which builds that extension; no other run has it.

Guarantee: each rung idles with the instruction that it is called after, and a monitor is armed right before it dozes.
"""

from __future__ import annotations

import pytest
from arm64_code import ISB, SEVL, WFE, WFET_X0, YIELD, Instruction, idles, instructions, is_ldaxr
from arm64_user import RUNGS

CODE = instructions()
IDLES = idles(CODE)


def after(index: int, count: int) -> list[Instruction]:
    """The instructions that follow."""
    return CODE[index + 1 : index + 1 + count]


def waits(rung: str) -> list[Instruction]:
    """What the rung's `wait` is made of: it is a template, of the functions in the rung's own file."""
    kind = "monitor_until" if rung in ("wfet", "wfe") else "breathe_until"
    starts = {each.function for each in IDLES[rung] if kind in each.function}
    # Functions of other files may have the same name: those that this one idles in are near it.
    places = [index for index, each in enumerate(CODE) if each in IDLES[rung] and each.function in starts]
    assert places, f"no wait of {rung} was found"
    first = last = places[0]
    while CODE[first - 1].function == CODE[first].function:
        first -= 1
    while CODE[last + 1].function == CODE[last].function:
        last += 1
    return CODE[first : last + 1]


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_idles_with_its_own_instruction_and_no_other(rung: str) -> None:
    wait = waits(rung)
    assert [each for each in wait if each in IDLES[rung]]
    assert not [each for each in wait for other in RUNGS if other != rung and each in IDLES[other]]


def test_a_reservation_follows_an_emptied_event_register_at_once() -> None:
    """With anything between SEVL and WFE an interrupt's event would be met; WFE before LDAXR sleeps through a store."""
    places = [index for index, each in enumerate(CODE) if each.word == SEVL]
    assert len(places) >= len(("reserve", "wfet's attempt", "wfet's wait", "wfe's attempt", "wfe's wait"))
    for place in places:
        wfe, ldaxr = after(place, 2)
        assert wfe.word == WFE and is_ldaxr(ldaxr), CODE[place]


@pytest.mark.parametrize("rung", ["wfet", "wfe"])
def test_nothing_disturbs_a_reservation_before_the_doze(rung: str) -> None:
    """Armed, looked at again, dozed: no call, no store and no other exclusive access in between."""
    wait = waits(rung)
    (armed,) = (index for index, each in enumerate(wait) if is_ldaxr(each))
    (dozed,) = (index for index, each in enumerate(wait) if each in IDLES[rung])
    assert armed < dozed
    between = wait[armed + 1 : dozed]
    assert wait[armed + 1].text.startswith("ldr"), "the word is looked at again"
    harmful = ("bl", "st", "ldx", "ldax", "clrex", "cas", "swp", "ldadd", "svc", "sev")
    assert not [each for each in between if each.text.split()[0] in {"bl", "blr"} or each.text.startswith(harmful[1:])]


def test_wfet_has_its_deadline_in_the_register_that_it_names() -> None:
    """It is written as a number, of which x0 is a part: nothing else tells the compiler."""
    assert IDLES["wfet"]
    assert not [each for each in CODE if each.word & 0xFFFFFFE0 == WFET_X0 & 0xFFFFFFE0 and each.word != WFET_X0]
    wait = waits("wfet")
    dozed = next(index for index, each in enumerate(wait) if each.word == WFET_X0)
    # `until` is the third argument.
    assert wait[dozed - 1].text.split() == ["mov", "x0,", "x2"]


def test_no_pause_is_the_instruction_that_does_nothing() -> None:
    """YIELD is a no-op on almost every core; ISB is what takes its place."""
    assert not [each for each in CODE if each.word == YIELD]
    assert [each for each in CODE if each.word == ISB]
