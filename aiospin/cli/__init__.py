"""The command `aiospin`: parses arguments, calls one subcommand, returns its exit code.

Exit codes: 0 done; 1 the subcommand failed and said why on stderr; 2 bad arguments; 130 ended by Ctrl-C.
A subcommand is a module with `register(subparsers)`, which sets the default `run`: Namespace -> exit code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from aiospin.cli.streams import keep_places, tell


def main(argv: Sequence[str] | None = None) -> int:
    """Run `aiospin` and return the exit code; argparse itself exits with 2. `argv` is the command line's by default."""
    keep_places()
    try:
        parser = argparse.ArgumentParser(prog="aiospin", description="Await shared-memory slot readiness.")
        subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
        given = sys.argv[1:] if argv is None else argv
        for register in _registrations(alone=next(iter(given), "")):
            register(subparsers)
        args = parser.parse_args(given)
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except KeyboardInterrupt:
        tell("aiospin: interrupted")
        return 130


def _registrations(alone: str) -> list[Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], None]]:
    """What registers each subcommand. `doctor` comes alone: it tells what is missing that others cannot do without."""
    from aiospin.cli import doctor

    if alone == "doctor":
        return [doctor.register]
    from aiospin.cli import bench, demo, segments

    return [demo.register, segments.register, bench.register, doctor.register]
