"""Try mutants of the native sources: does what is named for each notice it?

The sources are not touched: a mutated file lies in a folder that is searched before them, and only what includes it is
compiled again, into a folder of its own.

Guarantee: the named cases pass on the sources as they are, or nothing is judged. A case that fails, crashes or does not
end has noticed; one that passes has not.
Assumption: g++ or clang++, doctest's header; objects live under build/mutants; tests/model and tests/native are on the
path.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import agreement
from mutant import ORDERS, Case, Mutant

import build

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "mutants"
FLAGS = ["-std=c++20", "-O1", "-pthread", "-w"]
LEAST_LIMIT = 15.0  # seconds that any case may take
SLACK = 20  # ... and how many times as long as it does on the sources as they are


class Unfit(Exception):
    """A mutant, or the sources themselves, cannot be tried."""


@dataclass(frozen=True)
class Verdict:
    """What one killer made of one mutant."""

    killer: Case | str
    noticed: bool
    how: str


class Bench:
    """Compiled sources, and what the cases cost on them."""

    def __init__(self, files: Iterable[str]) -> None:
        self._compiler = ["g++" if shutil.which("g++") else "clang++"]
        library = [p.relative_to(ROOT) for p in ROOT.glob("native/**/*.cpp") if "bindings" not in p.parts]
        tests = [Path("tests/native/main.cpp"), *(Path("tests/native") / file for file in files)]
        self._library, self._tests = sorted(library), sorted(set(tests))
        self._limits: dict[Case, float] = {}
        self._compiling = threading.Lock()

    def prepare(self, cases: Sequence[Case], jobs: int) -> None:
        """Compile the sources as they are, and run each case on them. Raises Unfit when one fails."""
        base = FOLDER / "base"
        base.mkdir(parents=True, exist_ok=True)
        flags = [*FLAGS, "-Inative"]
        with ThreadPoolExecutor(jobs) as pool:
            compiled = list(
                pool.map(lambda s: build.compile_one(self._compiler, flags, s, base), [*self._library, *self._tests])
            )
        if not all(fresh for _, fresh in compiled):
            raise Unfit("the sources do not compile")
        self._objects = dict(zip([*self._library, *self._tests], (target for target, _ in compiled), strict=True))
        programs = {case.file: self._link(FOLDER / f"base-{Path(case.file).stem}", case.file, {}) for case in cases}
        for case in cases:
            begun = time.monotonic()
            noticed, how = self._run(programs[case.file], case, 900)
            if noticed:
                raise Unfit(f"{case}: {how} on the sources as they are")
            self._limits[case] = max(LEAST_LIMIT, SLACK * (time.monotonic() - begun))

    def try_out(self, mutant: Mutant) -> list[Verdict]:
        """What each killer makes of a mutant. Raises Unfit when it cannot be made or compiled."""
        original = ROOT / mutant.file
        try:
            text = mutant.apply(original.read_text(encoding="utf-8"))
        except ValueError as error:
            raise Unfit(str(error)) from error
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            place = Path(folder)
            changed = place / mutant.file
            changed.parent.mkdir(parents=True)
            changed.write_text(text, encoding="utf-8")
            verdicts = []
            objects: dict[Path, Path] | None = None
            for killer in mutant.killers:
                if isinstance(killer, Case):
                    if objects is None:
                        objects = {}
                    program = self._program(place, mutant, killer, objects)
                    noticed, how = self._run(program, killer, self._limits[killer])
                    for _ in range(killer.repeats - 1):
                        if not noticed:
                            noticed, how = self._run(program, killer, self._limits[killer])
                    verdicts.append(Verdict(killer, noticed, how))
                else:
                    assert killer == ORDERS
                    said = agreement.complaints({mutant.file: text})
                    verdicts.append(Verdict(killer, bool(said), said[0] if said else "sources and litmus tests agree"))
            return verdicts

    def _program(self, place: Path, mutant: Mutant, case: Case, objects: dict[Path, Path]) -> Path:
        """Link the case's file with the mutant, compiling again what depends on it."""
        flags = [*FLAGS, f"-I{place}/native", "-Inative"]
        for source in [*self._library, Path("tests/native/main.cpp"), Path("tests/native") / case.file]:
            if source in objects or not self._depends(source, mutant.file):
                continue
            target = place / (str(source.with_suffix("")).replace("/", ".") + ".o")
            file = place / mutant.file if source == Path(mutant.file) else source
            done = subprocess.run(
                [*self._compiler, *flags, "-c", str(file), "-o", str(target)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise Unfit(f"{mutant.name}: does not compile\n{done.stderr[:2000]}")
            objects[source] = target
        return self._link(place / f"program-{Path(case.file).stem}", case.file, objects)

    def _depends(self, source: Path, file: str) -> bool:
        listing = self._objects[source].with_suffix(".d")
        return any((ROOT / path).resolve() == ROOT / file for path in build.depends(listing))

    def _link(self, program: Path, file: str, changed: dict[Path, Path]) -> Path:
        sources = [*self._library, Path("tests/native/main.cpp"), Path("tests/native") / file]
        objects = [str(changed.get(source, self._objects[source])) for source in sources]
        done = subprocess.run([*self._compiler, "-pthread", *objects, "-o", str(program)], cwd=ROOT, check=False)
        if done.returncode != 0:
            raise Unfit(f"{program.name} does not link")
        return program

    @staticmethod
    def _run(program: Path, case: Case, limit: float) -> tuple[bool, str]:
        """Whether the case noticed something, and how. Raises Unfit when there is no such case."""
        command = [
            str(program),
            f"--test-case={case.pattern.replace(',', '?')}",
            "--no-skipped-summary",
            "--abort-after=1",
        ]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return True, f"did not end within {limit:.0f} s"
        if "test cases: 0 " in " ".join(done.stdout.split()):
            raise Unfit(f"{case}: there is no such case")
        if done.returncode == 0:
            return False, "passed"
        said = [line.strip() for line in done.stdout.splitlines() if "ERROR" in line]
        return True, said[0] if said else f"ended with status {done.returncode}"
