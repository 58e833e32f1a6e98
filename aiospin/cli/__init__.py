"""The command `aiospin`: parses arguments, calls one subcommand, returns its exit code.

Exit codes: 0 done; 1 the subcommand failed and said why on stderr; 2 bad arguments; 130 ended by Ctrl-C.
A subcommand is a module with `register(subparsers)`, which sets the default `run`: Namespace -> exit code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `aiospin` and return the exit code; argparse itself exits with 2. `argv` is the command line's by default."""
    try:
        from aiospin.cli import bench, demo, segments

        parser = argparse.ArgumentParser(prog="aiospin", description="Await shared-memory slot readiness.")
        subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
        demo.register(subparsers)
        segments.register(subparsers)
        bench.register(subparsers)
        args = parser.parse_args(argv)
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except KeyboardInterrupt:
        print("aiospin: interrupted", file=sys.stderr)
        return 130
