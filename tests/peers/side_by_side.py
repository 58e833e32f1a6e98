"""vLLM's MessageQueue and aiospin's, side by side: the same scenarios and the same benchmarks through both.

    python tests/peers/side_by_side.py                    # everything; Markdown on standard output
    python tests/peers/side_by_side.py --check            # only what happens, not how fast
    python tests/peers/side_by_side.py --ours             # only what happens to ours
    python tests/peers/side_by_side.py --only tensors     # a scenario or a benchmark by its name; may be repeated
    python tests/peers/side_by_side.py --json peers.json  # the same as data

Guarantee: the exit status is 1 if a scenario of ours did not come out "ok"; how theirs came out, and how fast either
was, is reported and changes no status. Every process is bounded in time and gone in the end.
Assumption: Linux, pip and a C++ compiler: the first run makes build/peers (see `environment`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import environment
import peers_run
import peers_table
from peers_sides import OURS, SPINNING, THEIRS, Side
from peers_titles import BENCHMARKS, SCENARIOS
from peers_verdict import OK, verdict

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("vllm", "torch", "pyzmq", "numpy", "aiospin")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line. SystemExit that names what is wrong with it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only the scenarios")
    parser.add_argument("--ours", action="store_true", help="only the scenarios, and of aiospin alone")
    parser.add_argument("--only", action="append", metavar="NAME", help="a scenario or a benchmark; may be repeated")
    parser.add_argument(
        "--rounds", type=int, default=7, help="of each benchmark, the sides alternating; 7 if not given"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="how long each takes, about, in seconds; 1 by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there, too")
    found = parser.parse_args(given)
    found.check |= found.ours
    known = [*SCENARIOS, *([] if found.check else BENCHMARKS)]
    for name in found.only or []:
        if name not in known:
            parser.error(f"there is no {name!r}: choose from {', '.join(dict.fromkeys(known))}")
    if found.rounds < 1:
        parser.error(f"--rounds must be 1 or more, got {found.rounds}")
    if not 0 < found.scale <= 30:
        parser.error(f"--scale must be above 0 and at most 30, got {found.scale:g}")
    return found


def machine(where: environment.Environment) -> dict[str, Any]:
    """Return what the figures depend on."""
    ask = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    packages = [name for name in PACKAGES if name != "vllm"]
    told = subprocess.run([where.python, "-c", ask, *packages], capture_output=True, text=True, check=True).stdout
    model = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "linux": platform.release(),
        "versions": {"vllm": environment.VLLM, **json.loads(told)},
    }


def described(facts: Mapping[str, Any]) -> str:
    """Return the machine in one line."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['processor']}, {facts['cores']} cores (load {facts['load']:.1f} before), Linux {facts['linux']}, "
        f"Python {facts['python']}, {versions}"
    )


def check(where: environment.Environment, names: Sequence[str], sides: Sequence[Side]) -> dict[str, dict[str, str]]:
    """Play these scenarios on these sides. Returns scenario -> side -> verdict."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        found[name] = {}
        for side in sides:
            playing = SPINNING if side is THEIRS and SCENARIOS[name].spinning else side
            found[name][side.name] = verdict(peers_run.play(where, playing, name))
        environment.announce(f"{name}: " + "; ".join(f"{side} {how}" for side, how in found[name].items()))
    return found


def measure(where: environment.Environment, names: Sequence[str], rounds: int, scale: float) -> peers_table.Rounds:
    """Run these benchmarks, the sides taking turns in each."""
    sides: tuple[Side, ...] = (THEIRS, SPINNING, OURS)
    found: dict[str, dict[str, list[float]]] = {side.name: {} for side in sides}
    with peers_run.benchmarks(where, sides) as groups:
        for name in names:
            environment.announce(f"measuring {name}")
            for _ in range(rounds):
                for side in sides:
                    for figure, value in peers_run.measure(groups[side.name], name, scale).items():
                        found[side.name].setdefault(f"{name}/{figure}", []).append(value)
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns the exit status."""
    options = arguments(given)
    sides = (OURS,) if options.ours else (THEIRS, OURS)
    where = environment.prepare(ROOT, theirs_too=not options.ours)
    scenarios = [name for name in SCENARIOS if name in (options.only or SCENARIOS)]
    benchmarks = [name for name in BENCHMARKS if name in (options.only or BENCHMARKS) and not options.check]
    facts = machine(where)
    document: dict[str, Any] = {"machine": facts}
    parts = [described(facts)]
    verdicts: dict[str, dict[str, str]] = {}
    if scenarios:
        verdicts = document["scenarios"] = check(where, scenarios, sides)
        titles = {name: scenario.title for name, scenario in SCENARIOS.items()}
        parts.append(peers_table.happenings(titles, verdicts, {side.name: side.title for side in sides}))
    if benchmarks:
        figures = document["figures"] = measure(where, benchmarks, options.rounds, options.scale)
        parts.append(peers_table.speeds(figures, {side.name: side.title for side in (THEIRS, SPINNING, OURS)}))
    print("\n\n".join(parts))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(of_sides[OURS.name] == OK for of_sides in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
