"""`python -m aiospin.compat.vllm check`: what `install()` would patch, without importing or changing any of it.

Guarantee: exit code 0 if install() would work, 1 if it would refuse or the result could not be written, 2 for bad
arguments; 130 when ended by Ctrl-C. Needs neither torch nor vLLM.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from aiospin.compat.vllm._install import SWITCH
from aiospin.compat.vllm._survey import ENTRY_POINT, MODULE, PLUGINS, Survey, survey

_PROGRAM: Final = "python -m aiospin.compat.vllm"
_WIDTH: Final = 100
_COLUMN: Final = 10


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description="aiospin in the place of vLLM's broadcast queue.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("check", help="say what install() would patch, and whether it would work")
    parser.parse_args(argv)
    try:
        return check()
    except KeyboardInterrupt:
        _write(sys.stderr, f"{_PROGRAM}: interrupted")
        return 130


def check() -> int:
    """Print the survey; the exit code."""
    found = survey()
    if why := _write(sys.stdout, "\n".join(_report(found))):
        _write(sys.stderr, f"{_PROGRAM}: the result could not be written: {why}")
        return 1
    return 1 if found.reasons else 0


def _report(found: Survey) -> Iterator[str]:
    if found.place is not None:
        yield from _entry("vLLM", f"{found.version or 'of unknown version'}, in {found.place}")
        yield from _entry("module", MODULE)
        yield from _entry("replaced", ", ".join((*found.names, "and spinloop where vllm.spinloop is loaded")))
        for label, one in zip(("used by", *[""] * len(found.importers)), found.importers, strict=False):
            yield from _entry(label, f"{one.module}: {', '.join(one.names)}")
        if not found.left_behind:
            yield from _entry("workers", f"take part by {SWITCH}=1 and the entry point {ENTRY_POINT} of {PLUGINS}")
    yield from _entry(
        "verdict", "install() would refuse" if found.reasons else "install() would work, if vLLM can be imported"
    )
    for reason in found.reasons:
        yield from _entry("", f"- {reason}")


def _entry(label: str, text: str) -> list[str]:
    """Lines of at most _WIDTH columns, but for words that are longer; nothing that a terminal could take amiss."""
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return textwrap.wrap(
        printable,
        _WIDTH,
        initial_indent=f"{label:<{_COLUMN}}",
        subsequent_indent=" " * (_COLUMN + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _write(stream: TextIO | None, text: str) -> str | None:
    """Print it; None, or why it could not be printed. A stream that was closed when Python began takes everything."""
    if stream is None:
        return None
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # or Python tries once more at its end, and fails
        os.close(nowhere)
        return error.strerror
    return None


if __name__ == "__main__":
    sys.exit(main())
