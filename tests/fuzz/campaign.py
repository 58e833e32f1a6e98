"""Campaigns of one kind: executions by number, in a child process that is watched.

    python tests/fuzz/campaign.py calls --executions 2000 --seed 1
    python tests/fuzz/campaign.py calls --seed 1 --replay 4711

Guarantee: execution `number` of a seed does the same wherever and whenever it runs, alone or after others. `run` says
what was answered, and raises Broken, naming the execution and how to see it again, when the child dies, finds something
undocumented, or finishes no execution for a minute.
Assumption: the child chooses its backend by the environment, as every program does.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import random
import select
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # ends.py and the like

KINDS = ("attach", "calls", "handles", "waits")
PATIENCE = 60.0  # seconds without a finished execution


class Broken(AssertionError):
    """An execution that must not be so."""


def work(kind: str, seed: int, first: int, executions: int) -> None:
    """In the child: each number is said before its execution, and the answers at the end."""
    execute = importlib.import_module(kind).execute
    tally: collections.Counter[str] = collections.Counter()
    for number in range(first, first + executions):
        os.write(1, b"%d\n" % number)
        execute(number, random.Random(f"{kind} {seed} {number}"), tally)
    os.write(1, json.dumps(tally).encode() + b"\n")


def run(kind: str, executions: int, seed: int = 1, first: int = 0) -> collections.Counter[str]:
    """Run executions `first`, `first + 1`, ... in a child; how often each answer came."""
    command = [sys.executable, "-X", "faulthandler", str(HERE / "campaign.py"), kind, "--seed", str(seed)]
    child = subprocess.Popen(
        [*command, "--first", str(first), "--executions", str(executions), "--in-child"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    said, over = b"", False
    try:
        while not over and select.select([child.stdout], [], [], PATIENCE)[0]:
            heard = os.read(child.stdout.fileno(), 1 << 16)
            over = not heard
            said = (said + heard)[-(1 << 16) :]
    finally:
        if not over:
            child.kill()
        status = child.wait()
        child.stdout.close()
    lines = said.decode().split("\n")
    if over and status == 0:
        return collections.Counter(json.loads(lines[-2]))
    ending = f"ended with status {status}" if over else f"has not ended after {PATIENCE:g} s"
    again = f"{Path(__file__).name} {kind} --seed {seed} --replay {lines[-2]}"
    raise Broken(f"{kind}: execution {lines[-2]} of seed {seed} {ending}; again with: {again}")


def main(arguments: list[str]) -> int:
    """Run what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", help=f"a module with `execute`: {', '.join(KINDS)}")
    parser.add_argument("--executions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replay", type=int, help="this execution alone, in this process")
    parser.add_argument("--in-child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.replay is not None:
        work(options.kind, options.seed, options.replay, 1)
    elif options.in_child:
        work(options.kind, options.seed, options.first, options.executions)
    else:
        try:
            tally = run(options.kind, options.executions, options.seed, options.first)
        except Broken as broken:
            print(f"fuzz: {broken}", file=sys.stderr)
            return 1
        answers = ", ".join(f"{count} {answer}" for answer, count in tally.most_common())
        print(f"fuzz: {options.executions} executions ({options.kind}), seed {options.seed}: {answers}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
