"""Boots each CPU model with the library's tests in it, and judges by what the guests print.

Guarantee: exit status 0 only if every guest's last line is "EMU-END ok". Whatever a guest printed is shown. A guest
that hangs or crashes gets one more chance; one that says that something failed gets none.
Assumption: aiospin, with its extension, is installed for the Python that runs this, or lies on its path.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import bochs_fetch as fetch
import bochs_guest as guest
from bochs_image import Root, press
from bochs_machine import Boot, boot

HERE = Path(__file__).resolve().parent
MEGABYTES = 512
PATIENCE = 180.0  # seconds for one boot: it takes 30 on a quiet host, and hosts are not always quiet
PATIENCE_PER_ROUND = 120.0
CHANCES = 2


def load_build() -> ModuleType:
    """tests/native/build.py, under a name that no package of that name takes."""
    spec = importlib.util.spec_from_file_location("native_build", fetch.ROOT / "tests" / "native" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_programs(cxx: str, folder: Path) -> dict[str, Path]:
    """Build the unit tests, and this folder's programs with the library. Returns where each is."""
    build = load_build()
    if build.main(["--cxx", cxx, "--mode", "plain", "--build-only"]) != 0:
        raise SystemExit("bochs: the unit tests do not compile")
    compiler = shlex.split(cxx)
    flags = [*build.COMMON, *build.MODES["plain"]]
    objects = fetch.ROOT / "build" / "native" / f"{Path(compiler[-1]).name}-plain"
    library = [source for source in build.sources("tests", False) if source.parts[0] == "native"]
    programs = {"native-tests": objects / "native-tests"}
    for name, sources in {"init": [], "probe": library}.items():
        own = (HERE / f"{name}.cpp").relative_to(fetch.ROOT)
        compiled = [build.compile_one(compiler, flags, source, objects) for source in [own, *sources]]
        programs[name] = folder / name
        linked = [*compiler, *flags, *(str(target) for target, _ in compiled), "-o", str(programs[name])]
        if not all(fresh for _, fresh in compiled) or subprocess.run(linked, cwd=fetch.ROOT).returncode != 0:
            raise SystemExit(f"bochs: {name}.cpp does not compile")
    return programs


def prepare(cpu: guest.Cpu, programs: dict[str, Path], kernel: Path, rounds: int, folder: Path) -> Path:
    """Make that CPU's CD."""
    root = Root(folder / "root")
    root.add_program(programs["init"], "/init")
    root.add_program(programs["native-tests"], guest.NATIVE_TESTS)
    root.add_program(programs["probe"], guest.PROBE)
    root.add_python(HERE / "smoke.py", [""])
    (root.folder / "plan").write_text(guest.plan(cpu, rounds))
    cd = folder / "cd.iso"
    press(root, kernel, cd)
    return cd


def show(made: Boot) -> None:
    print(f"\n==== bochs {made.model}, {made.seconds:.0f} s; what its serial port said:")
    print(made.serial.strip())
    if made.verdict is None:
        print("---- there is no last word; the end of Bochs's own log:")
        print("\n".join(made.log.splitlines()[-15:]))
    sys.stdout.flush()


def held(attempt: Callable[[], Boot]) -> bool:
    """Boot, and again if it does not come to an end. Returns whether everything held."""
    for _ in range(CHANCES):
        made = attempt()
        show(made)
        if made.verdict is not None:
            return made.verdict == "ok"
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="five times as many rounds of everything")
    parser.add_argument("--model", choices=[cpu.model for cpu in guest.CPUS], help="this one only")
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"), help="the compiler of the C++ programs")
    options = parser.parse_args(arguments)
    rounds = 5 if options.long else 1
    cpus = [cpu for cpu in guest.CPUS if options.model in (None, cpu.model)]

    fetch.CACHE.mkdir(parents=True, exist_ok=True)
    fetch.tools()
    bochs, kernel = fetch.bochs(), fetch.kernel()
    programs = compile_programs(options.cxx, fetch.CACHE)
    folders = {cpu.model: fetch.CACHE / "guests" / cpu.model for cpu in cpus}
    cds = {cpu.model: prepare(cpu, programs, kernel, rounds, folders[cpu.model]) for cpu in cpus}
    patience = PATIENCE + (rounds - 1) * PATIENCE_PER_ROUND

    def judge(cpu: guest.Cpu) -> bool:
        folder = folders[cpu.model]
        return held(lambda: boot(bochs, cds[cpu.model], cpu.model, folder, MEGABYTES, patience))

    with ThreadPoolExecutor(len(cpus)) as pool:
        good = dict(zip((cpu.model for cpu in cpus), pool.map(judge, cpus), strict=True))
    print(f"\nbochs: {', '.join(f'{model} ok' if ok else f'{model} FAILED' for model, ok in good.items())}")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
