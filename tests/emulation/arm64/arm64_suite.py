"""Run the project's own tests on arm64: the disassembly's here, the C++ and Python ones under user-mode emulation.

Guarantee: the Python tests of waiting are run once per rung, told apart by the environment alone. What is left out,
with the reason, is in UNEMULATED and arm64_lacks.py.
Assumption: arm64_cross and arm64_user have made what is run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from arm64_places import HERE, MADE, PYTHON, ROOT, UNIT_TESTS
from arm64_user import RUNGS, environment, user

# C++ tests of what QEMU does otherwise, and what that is.
UNEMULATED: Mapping[str, str] = {
    "the thread blocks every signal that can be*": "QEMU keeps some signals of its threads for itself",
}

SHORT = ("test_lowlevel.py",)
LONG = ("test_lowlevel.py", "test_waitset.py", "test_sync*.py", "test_async*.py", "test_loops.py", "test_slots*.py")


def call(what: str, command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Run a program of tests in MADE; returns its last line, or raises SystemExit with all that it said."""
    done = subprocess.run(
        command, env=variables, cwd=MADE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"arm64: {what} failed:\n{done.stdout}")
    return done.stdout.strip().splitlines()[-1]


def disassembly() -> None:
    """On this machine's Python."""
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"]
    print("arm64: disassembly:", call("disassembly", [*command, str(HERE / "arm64_disassembly.py")]), flush=True)


def unit_tests() -> None:
    """Every rung that there is waits in these."""
    left_out = ",".join(UNEMULATED).replace(" ", "?")  # doctest splits at neither
    command = [*user(), str(UNIT_TESTS), f"--test-case-exclude={left_out}"]
    print("arm64: unit tests:", call("unit tests", command, environment("wfet")), flush=True)


def python_tests(long: bool) -> None:
    """Two rungs at a time: tests wait as much as they compute."""
    files = sorted({str(path) for pattern in (LONG if long else SHORT) for path in (ROOT / "tests").glob(pattern)})
    command = [str(PYTHON), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "arm64_lacks", "-o", "timeout=600"]

    def tests(rung: str) -> str:
        variables = environment(rung, {"PYTHONPYCACHEPREFIX": str(MADE / "pycache")})
        variables["PYTHONPATH"] += f":{HERE}"
        return call(f"the suite on {rung}", [*command, *files], variables)

    with ThreadPoolExecutor(2) as pool:
        for rung, result in zip(RUNGS, pool.map(tests, RUNGS), strict=True):
            print(f"arm64: suite on {rung}: {result}", flush=True)
