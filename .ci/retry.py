"""Run a command, and run it again when the network, and nothing else, made it fail.

    python3 .ci/retry.py -- apt-get install -y clang

Guarantee: output passes through as it comes; the exit status is the last attempt's. A compile error, a link error or a
failing test is never tried again, even when the network stumbled earlier in the same output.
Assumption: package clients say in English what went wrong.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

PAUSES = (5.0, 20.0, 60.0)  # seconds before the second, third and fourth attempt

HICCUPS = re.compile(
    r"""temporary\ failure\ (in\ name\ resolution|resolving)
    | could\ not\ resolve
    | connection\ (timed\ out|reset|refused|aborted|broken)
    | could\ not\ connect
    | failed\ to\ establish\ a\ new\ connection
    | network\ is\ unreachable
    | read\ timed\ out | ReadTimeoutError | ConnectTimeoutError | NewConnectionError | IncompleteRead | ProtocolError
    | ECONNRESET | ETIMEDOUT | EAI_AGAIN | socket\ hang\ up
    | remote\ end\ closed\ connection
    | hash\ sum\ mismatch
    | \b(50[0234]|429)\s+(internal\ server|bad\ gateway|service\ unavail|gateway\ time|too\ many\ requests)
    | (50[0234]|429)\ (server|client)\ error
    """,
    re.VERBOSE | re.IGNORECASE,
)

VERDICTS = re.compile(
    r"""\.(c|cc|cpp|cxx|h|hpp):\d+(:\d+)?:\ (fatal\ )?error:
    | undefined\ reference\ to
    | ld\ returned\ \d+\ exit\ status
    | linker\ command\ failed
    | \b[1-9]\d*\ (failed|errors?)\b[^\n]*\bin\ \d+(\.\d+)?s
    """,
    re.VERBOSE,
)


def is_hiccup(output: str) -> bool:
    """Return whether `output` of a failed command blames the network and does not hold another cause."""
    return HICCUPS.search(output) is not None and VERDICTS.search(output) is None


def run(command: Sequence[str]) -> tuple[int, str]:
    """Run `command`, passing its output through. Returns its exit status and that output."""
    lines = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return child.returncode, "".join(lines)


def persist(
    command: Sequence[str],
    attempt: Callable[[Sequence[str]], tuple[int, str]] = run,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Attempt `command` up to four times while only the network fails it. Returns the last exit status."""
    for seconds in PAUSES:
        status, output = attempt(command)
        if status == 0 or not is_hiccup(output):
            return status
        print(f"retry: the network failed `{' '.join(command)}`; again in {seconds:.0f} s", flush=True)
        pause(seconds)
    return attempt(command)[0]


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--"]:
        del arguments[0]
    if not arguments:
        sys.exit("usage: retry.py -- command [argument...]")
    sys.exit(persist(arguments))
