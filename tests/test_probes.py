"""The static tracepoints: each one in the source is in the extension and in the recipe, and none else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aiospin

ROOT = Path(__file__).resolve().parent.parent
PROBES = {
    name
    for path in (ROOT / "native").rglob("*.cpp")
    for name in re.findall(r"AIOSPIN_PROBE\((\w+)\);", path.read_text(encoding="utf-8"))
}


def test_the_recipe_lists_every_probe_and_no_other() -> None:
    page = (ROOT / "docs/howto/tracing.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\|[^|]*\|([^|]*`[^|]*)\|", page, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == PROBES


@pytest.mark.skipif(aiospin.backend != "native", reason="needs the native backend")
def test_the_extension_has_every_probe_in_its_notes() -> None:
    from aiospin import _native

    image = Path(_native.__file__).read_bytes()
    assert {name.decode() for name in re.findall(rb"aiospin\0(\w+)\0\0", image)} == PROBES
