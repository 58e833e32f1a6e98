"""Print what an extra of the installed aiospin asks for on this Python, a requirement to a line.

python .ci/extra.py bench
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import requires

from packaging.requirements import Requirement


def asked_for(extra: str, lines: Iterable[str]) -> list[str]:
    """Of the lines of a distribution's metadata, what the extra adds to it here, without markers and blanks."""

    def adds(each: Requirement) -> bool:
        marker = each.marker
        return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})

    return [f"{each.name}{each.specifier}" for each in map(Requirement, lines) if adds(each)]


if __name__ == "__main__":
    print("\n".join(asked_for(sys.argv[1], requires("aiospin") or ())))
