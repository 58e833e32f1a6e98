"""Are a rung's instructions executed by a Python that waits, and how often? QEMU notes it.

Guarantee: the counts are of the blocks entered that hold an instruction at an address that the disassembly names. Tests
that pass would not show it: where WFE and WFET return at once the rung is soon demoted, and other rungs wait as well.
Assumption: arm64_cross.package() has run. The extension is loaded at the same address in each run of a program.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arm64_code import idles, instructions
from arm64_places import HERE, MADE, TARGET
from arm64_user import RUNGS, environment, user

# So many empty waits in a row demote a monitor (native/cpu/rung.cpp); a trial alone would execute one.
PATIENCE = 16
TURNS = 20
PAGE = 4096
ENTERED = re.compile(r"^Trace .*?\[[0-9a-f]+/([0-9a-f]+)/", re.MULTILINE)
# A block as it was translated, each time it was: its instructions' addresses.
BLOCK = re.compile(r"^IN: *[^\n]*\n((?:0x[0-9a-f]+:.*\n)+)", re.MULTILINE)
ADDRESS = re.compile(r"^0x([0-9a-f]+):", re.MULTILINE)


def waits(rung: str, *options: str) -> int:
    """Run arm64_waits.py with that rung; returns where the extension was loaded."""
    extra = {"PYTHONHOME": str(TARGET / "usr"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*user(*options), str(TARGET / "usr/bin/python3.11"), str(HERE / "arm64_waits.py"), str(TURNS)]
    done = subprocess.run(command, env=environment(rung, extra), cwd=MADE, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"arm64: waits with {rung} failed:\n{done.stdout}{done.stderr}")
    address, chosen = done.stdout.split()
    if chosen != rung:
        raise SystemExit(f"arm64: {rung} was asked for, and {chosen} waited")
    return int(address, 16)


def executed(rung: str, base: int) -> Counter[str]:
    """Return how often a Python that waits with `rung` executed the instructions of each rung."""
    rung_at = {base + each.address: name for name, found in idles(instructions()).items() for each in found}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "executed"
        # What begins within the functions of all rungs, which the linker puts side by side.
        places = f"{min(rung_at) & -PAGE:#x}..{max(rung_at) | PAGE - 1:#x}"
        if waits(rung, "-d", "in_asm,exec,nochain", "-D", str(log), "-dfilter", places) != base:
            raise SystemExit("arm64: the extension was loaded elsewhere in the second run")
        text = log.read_text(errors="replace")
    blocks = [[int(address, 16) for address in ADDRESS.findall(block)] for block in BLOCK.findall(text)]
    holds = {block[0]: {rung_at[address] for address in block if address in rung_at} for block in blocks}
    return Counter(name for entered in ENTERED.findall(text) for name in holds.get(int(entered, 16), ()))


def check() -> None:
    """Raise SystemExit for a rung whose instruction was not executed in its waits."""
    base = waits(RUNGS[0])
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda rung: executed(rung, base), RUNGS))
    for rung, counts in zip(RUNGS, found, strict=True):
        print(f"arm64: waiting with {rung} executed", dict(counts.most_common()), flush=True)
        if counts[rung] < PATIENCE:
            raise SystemExit(f"arm64: {rung} was chosen, and executed {counts[rung]} times")
        # A monitor that is not chosen is executed by its trial only.
        if others := [name for name in ("wfet", "wfe") if name != rung and counts[name] > 1]:
            raise SystemExit(f"arm64: {rung} was chosen, and {others} waited")
