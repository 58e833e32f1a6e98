"""Print a command of README.md, so that what CI runs and what newcomers read cannot drift apart.

    python3 .ci/readme.py tests

Guarantee: exactly the one line between `<!-- command: NAME -->` and `<!-- /command -->`, without the code fence.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def command(name: str, text: str) -> str:
    """Return the command called `name` in `text`. Raises ValueError unless it is there once and is one line."""
    found = re.findall(rf"<!-- command: {re.escape(name)} -->\n(.*?)<!-- /command -->", text, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"README has {len(found)} commands called {name!r}, not one")
    lines = [line for line in found[0].splitlines() if line.strip() and not line.startswith("```")]
    if len(lines) != 1:
        raise ValueError(f"README's command {name!r} has {len(lines)} lines, not one")
    return str(lines[0])


if __name__ == "__main__":
    print(command(sys.argv[1], README.read_text(encoding="utf-8")))
