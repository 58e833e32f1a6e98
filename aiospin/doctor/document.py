"""The findings as one document of plain values: what `aiospin doctor --json` prints.

{"format": 1, "aiospin": version, "verdict": "ok" or "warn",
 "sections": {name: {"title": ..., "facts": {name: {"text": ..., "value": ..., "verdict": one of fact.Verdict,
   "problem": why or null, "remedy": what to do or null}}}},
 "warnings": [{"section": ..., "fact": ..., "problem": ..., "remedy": ...}],
 "power": null or {"seconds": ..., "load": ..., "meter": name or null, "no_meter": why or null, "chosen": mode,
   "modes": {mode: {one key per field of contest.Result but its mode}}}}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import aiospin
from aiospin.doctor.contest import Outcome
from aiospin.doctor.fact import Fact, Section

FORMAT: Final = 1

Document = dict[str, Any]


def make_document(
    sections: Sequence[Section], outcome: Outcome | None, judged: Sequence[Fact], chosen: str
) -> Document:
    found = [(section.name, fact) for section in sections for fact in section.facts]
    bad = [
        (section, fact) for section, fact in [*found, *(("power", fact) for fact in judged)] if fact.verdict == "warn"
    ]
    return {
        "format": FORMAT,
        "aiospin": aiospin.__version__,
        "verdict": "warn" if bad else "ok",
        "sections": {
            section.name: {"title": section.title, "facts": {fact.name: _fact(fact) for fact in section.facts}}
            for section in sections
        },
        "warnings": [
            {"section": section, "fact": fact.name, "problem": fact.problem, "remedy": fact.remedy}
            for section, fact in bad
        ],
        "power": None if outcome is None else _power(outcome, chosen),
    }


def _fact(fact: Fact) -> dict[str, Any]:
    return {key: value for key, value in asdict(fact).items() if key != "name"}


def _power(outcome: Outcome, chosen: str) -> dict[str, Any]:
    return {
        "seconds": outcome.seconds,
        "load": outcome.load,
        "meter": outcome.meter,
        "no_meter": outcome.no_meter,
        "chosen": chosen,
        "modes": {
            result.mode: {key: value for key, value in asdict(result).items() if key != "mode"}
            for result in outcome.results
        },
    }
