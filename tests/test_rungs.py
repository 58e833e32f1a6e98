"""Which rung waits idle with: what is said of each, the environment's choice, a policy's, and every refusal."""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import subprocess
import sys
import threading
from typing import Any

import pytest

import aiospin
from aiospin import _backend
from aiospin._policy import RUNGS, WaitPolicy

X86 = platform.machine() == "x86_64"
VERDICTS: dict[str, str | None] = dict(_backend.core.rungs()) if _backend.name == "native" else {}
USABLE = [name for name, refusal in VERDICTS.items() if refusal is None] or ["pause"]


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIOSPIN_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "AIOSPIN_REQUIRE_EXTENSIONS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


# ---- the machine's


@pytest.mark.native
def test_every_rung_has_a_verdict_and_the_best_usable_one_is_chosen() -> None:
    assert set(VERDICTS) <= set(RUNGS)
    assert [name for name in RUNGS if name in VERDICTS] == list(VERDICTS)
    done = python("import aiospin; print(aiospin.rung())")
    assert done.stdout.split() == USABLE[:1]
    assert USABLE[-1] == "yield"


@pytest.mark.native
@pytest.mark.skipif(not X86, reason="needs x86-64")
def test_a_cpu_that_reports_nothing_has_no_hardware_wait() -> None:
    done = python(
        "from aiospin import _backend; print(dict(_backend.core.rungs()))",
        AIOSPIN_CPU_FEATURES="-waitpkg,-monitorx",
    )
    refusals = {"umwait": "CPUID reports no WAITPKG", "tpause": "CPUID reports no WAITPKG"}
    assert done.stdout.strip() == str(
        {
            "umwait": refusals["umwait"],
            "mwaitx": "CPUID reports no MONITORX",
            "tpause": refusals["tpause"],
            "pause": None,
            "yield": None,
        }
    )


@pytest.mark.native
@pytest.mark.skipif(not X86, reason="needs x86-64")
def test_a_cpu_that_lies_is_found_out_and_nothing_dies() -> None:
    done = python(
        "from aiospin import _backend; print(dict(_backend.core.rungs())['umwait'])", AIOSPIN_CPU_FEATURES="+waitpkg"
    )
    assert done.returncode == 0
    assert done.stdout.strip() in ("None", "it raised SIGILL")  # the former where it is no lie


@pytest.mark.native
@pytest.mark.skipif(not X86, reason="needs x86-64")
def test_without_an_invariant_counter_no_deadline_is_trusted_to_the_cpu() -> None:
    done = python(
        "from aiospin import _backend; print(dict(_backend.core.rungs()))",
        AIOSPIN_CPU_FEATURES="+waitpkg,+monitorx,-invariant",
    )
    assert done.stdout.count("no invariant TSC") == 3


# ---- the environment's


@pytest.mark.native
@pytest.mark.parametrize("rung", USABLE)
def test_the_environment_chooses(rung: str) -> None:
    done = python("import aiospin; print(aiospin.rung())", AIOSPIN_RUNG=rung)
    assert done.stdout.split() == [rung]


@pytest.mark.native
@pytest.mark.parametrize(
    ("rung", "features", "why"),
    [
        pytest.param(
            "umwait",
            "-waitpkg",
            "'umwait' cannot be used here: CPUID reports no WAITPKG",
            marks=pytest.mark.skipif(not X86, reason="needs x86-64"),
        ),
        pytest.param(
            "wfe",
            "",
            "'wfe' is not a rung of this kind of CPU; there are umwait, mwaitx, tpause, pause, yield",
            marks=pytest.mark.skipif(not X86, reason="needs x86-64"),
        ),
        ("Pause", "", "'Pause' is not a rung; there are "),
    ],
)
def test_an_impossible_choice_says_why(rung: str, features: str, why: str) -> None:
    done = python("import aiospin", AIOSPIN_RUNG=rung, AIOSPIN_CPU_FEATURES=features)
    assert done.returncode == 1
    assert f"ValueError: AIOSPIN_RUNG: {why}" in done.stderr.splitlines()[-1]


# ---- a policy's


@pytest.mark.native
@pytest.mark.parametrize("rung", USABLE)
def test_waits_of_a_queue_idle_with_its_policys_rung(rung: str) -> None:
    policy = WaitPolicy(maximum_us=200.0, minimum_us=200.0, core_share=1.0, rung=rung)
    with aiospin.Queue(capacity="64 KiB", policy=policy) as queue, queue.writer() as writer, queue.reader(0) as reader:
        with pytest.raises(TimeoutError):
            reader.get(timeout=0.001)

        def answer() -> None:
            for number in range(200):
                writer.put(number.to_bytes(2, "little"))

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            assert [int.from_bytes(reader.get(timeout=60), "little") for _ in range(100)] == list(range(100))

            async def rest() -> list[int]:
                return [int.from_bytes(await reader.aget(timeout=60), "little") for _ in range(100)]

            assert asyncio.run(rest()) == list(range(100, 200))
        finally:
            thread.join()


@pytest.mark.native
def test_a_policy_whose_rung_is_not_here_is_refused_where_it_is_used() -> None:
    impossible = next(name for name in RUNGS if name not in USABLE)
    policy = pickle.loads(pickle.dumps(WaitPolicy(rung=impossible)))
    assert policy.rung == impossible  # it may be for another machine
    with pytest.raises(ValueError, match=f"rung '{impossible}' (cannot be used here: |is not one of this kind of CPU)"):
        aiospin.Queue(capacity="64 KiB", policy=policy)
    with pytest.raises(ValueError, match=f"'{impossible}'"):
        policy.horizon()


@pytest.mark.parametrize(
    ("rung", "error", "why"),
    [
        ("turbo", ValueError, "rung 'turbo' is not one of umwait, mwaitx,"),
        ("", ValueError, "rung '' is not one of"),
        (7, TypeError, "rung must be a name or None, got 7"),
    ],
)
def test_what_is_no_rung_is_refused(rung: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        WaitPolicy(rung=rung)
    with pytest.raises(error, match=why):
        WaitPolicy().replace(rung=rung)


def test_the_fallback_takes_no_notice_of_a_rung() -> None:
    done = python(
        "import aiospin\n"
        "with aiospin.Queue(capacity='64 KiB', policy=aiospin.WaitPolicy(rung='umwait')) as queue:\n"
        "    with queue.writer() as writer, queue.reader(0) as reader:\n"
        "        writer.put(b'x')\n"
        "        print(reader.get(), aiospin.rung())",
        AIOSPIN_REQUIRE_EXTENSIONS="0",
        AIOSPIN_NO_EXTENSIONS="1",
    )
    assert done.stdout == "b'x' park\n", done.stderr


# ---- the same words


@pytest.mark.native
@pytest.mark.parametrize("rung", USABLE)
def test_a_word_is_waited_for_with_every_rung(rung: str) -> None:
    code = (
        "import threading\n"
        "from aiospin import lowlevel\n"
        "memory = bytearray(64)\n"
        "for turn in range(1, 200):\n"
        "    thread = threading.Thread(target=lowlevel.store_word, args=(memory, turn))\n"
        "    thread.start()\n"
        "    lowlevel.wait_word(memory, '==', turn, timeout=60)\n"
        "    thread.join()\n"
        "try:\n"
        "    lowlevel.wait_word(memory, '==', 0, timeout=0.001)\n"
        "except TimeoutError:\n"
        "    print('late')\n"
    )
    done = python(code, AIOSPIN_RUNG=rung)
    assert done.stdout == "late\n", done.stderr
