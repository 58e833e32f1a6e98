"""Build the native library with its unit tests or its fuzzer, without Python and pybind11, and run that program.

    python3 tests/native/build.py --cxx clang++ --mode tsan [-- doctest arguments]
    python3 tests/native/build.py --cxx clang++ --mode asan --program fuzz -- --executions 100000

Guarantee: every native/**/*.cpp outside native/bindings/ and every file of tests/native/ (tests/fuzz/ for the fuzzer)
takes part, by glob. A file is compiled again when it, or a header that it included, or the command line has changed.
The exit status is the program's. Mode `guided` is the fuzzer under libFuzzer, and needs clang.
Assumption: doctest's header is installed where the compiler looks; objects live under build/native/<compiler>-<mode>.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

COMMON = ["-std=c++20", "-O1", "-g", "-pthread", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-Inative"]
MODES = {
    "plain": ["-O2"],
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-fsanitize=thread"],
    "guided": ["-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all"],
}
# The folder of each program's own sources, and what the linker needs to know.
PROGRAMS = {
    "tests": ("tests/native", []),
    "fuzz": ("tests/fuzz", ["-Wl,--wrap=mmap,--wrap=munmap,--wrap=malloc"]),
    "measure": ("tests/measure", []),
}
ENGINES = {"tests/fuzz/main.cpp": False, "tests/fuzz/guided.cpp": True}  # the entry points: is it for libFuzzer?
# The tests are short; what a sanitizer finds must fail them, and the first finding is the one to read.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:halt_on_error=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def sources(program: str, guided: bool) -> list[Path]:
    """Return every C++ file of the library and of a program on top of it, relative to the root."""
    library = [path for path in ROOT.glob("native/**/*.cpp") if "bindings" not in path.parts]
    files = (path.relative_to(ROOT) for path in [*library, *ROOT.glob(f"{PROGRAMS[program][0]}/**/*.cpp")])
    return sorted(path for path in files if ENGINES.get(path.as_posix(), guided) is guided)


def depends(listing: Path) -> list[str]:
    """Read the make-style dependencies that the compiler wrote."""
    return shlex.split(listing.read_text().replace("\\\n", " ").partition(":")[2])


def stale(command: list[str], target: Path) -> bool:
    """Return whether `target` must be made again: it, its record or a dependency is missing, newer or different."""
    record, listing = target.with_suffix(".command"), target.with_suffix(".d")
    if not (target.exists() and record.exists() and listing.exists()):
        return True
    if record.read_text() != shlex.join(command):
        return True
    made = target.stat().st_mtime_ns
    return any(not (ROOT / path).exists() or (ROOT / path).stat().st_mtime_ns > made for path in depends(listing))


def compile_one(compiler: list[str], flags: list[str], source: Path, folder: Path) -> tuple[Path, bool]:
    """Compile `source` if need be. Returns its object and whether that is up to date now."""
    target = folder / (str(source.with_suffix("")).replace("/", ".") + ".o")
    command = [*compiler, *flags, "-MMD", "-MF", str(target.with_suffix(".d")), "-c", str(source), "-o", str(target)]
    if not stale(command, target):
        return target, True
    print(f"  {source}", flush=True)
    begun = time.time_ns()  # so that a file saved while it is being compiled counts as newer
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode == 0:
        os.utime(target, ns=(begun, begun))
        target.with_suffix(".command").write_text(shlex.join(command))
    return target, done.returncode == 0


def main(arguments: list[str]) -> int:
    """Build and run; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", default="g++", help="the compiler, with leading arguments if need be")
    parser.add_argument("--mode", default="plain", choices=sorted(MODES))
    parser.add_argument("--program", default="tests", choices=sorted(PROGRAMS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("arguments", nargs="*", help="arguments for the program")
    options = parser.parse_args(arguments)
    guided = options.mode == "guided"

    compiler = shlex.split(options.cxx)
    flags = [*COMMON, *MODES[options.mode]]
    folder = ROOT / "build" / "native" / f"{Path(compiler[-1]).name}-{options.mode}"
    folder.mkdir(parents=True, exist_ok=True)
    files = sources(options.program, guided)
    print(f"native {options.program}: {options.cxx}, {options.mode}, {len(files)} files", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        compiled = list(pool.map(lambda source: compile_one(compiler, flags, source, folder), files))
    if not all(fresh for _, fresh in compiled):
        print(f"native {options.program}: compiling failed ({options.cxx}, {options.mode})", file=sys.stderr)
        return 1
    program = folder / f"native-{options.program}"
    engine = ["-fsanitize=fuzzer"] if guided else []
    link = [*compiler, *flags, *(str(target) for target, _ in compiled), *PROGRAMS[options.program][1], *engine]
    link += ["-o", str(program)]
    if subprocess.run(link, cwd=ROOT, check=False).returncode != 0:
        return 1
    if options.build_only:
        return 0
    return subprocess.run([program, *options.arguments], cwd=ROOT, env=ENVIRONMENT | os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
