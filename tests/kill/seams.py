"""The seams that must be among the cells, by name, and where they lie in the sources.

Guarantee: `missing` says which of them no cell comes to, so a seam cannot be lost when a line is rewritten.
Assumption: a step lies *before* the line that it names; "after X" is therefore the line behind X.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from plots import PLOTS, READER
from scene import ASLEEP
from world import WRITER

import aiospin

_ROOT = Path(aiospin.__file__).resolve().parent


@dataclass(frozen=True)
class Seam:
    """Where a seam lies: a probe of the extension, and a line of the pure-Python backend or of what both share."""

    role: int
    probe: str | None  # a regular expression for the whole name of the step, of the native backend
    line: str | None  # one for "file:function text", of the pure-Python backend, or of both if there is no probe
    plot: str | None = None  # only there


_W, _R, _M = "_fallback/writer_core", "_fallback/reader_core", "_fallback/mapping"
_ROOMLESS, _SLEEPY = "put without room", "read asleep"

SEAMS: dict[str, Seam] = {
    # the writer's hot path
    "claim": Seam(WRITER, r"probe:claim#\d+", rf"{_W}:room_for .*"),
    "half of the copy": Seam(WRITER, r"probe:copy#2", rf"{_W}:_write self.ring\[at:stop\] = .*", "put pieces"),
    "half of the copy, in place": Seam(WRITER, r"act:half of the copy#1", r"act:half of the copy", "write in place"),
    "before the journal": Seam(WRITER, r"probe:journal#\d+", rf"{_W}:_publish words\[entry\] = .*"),
    "within the journal": Seam(WRITER, r"probe:journal_voided#\d+", rf"{_W}:_publish words\[entry \+ 1\] = .*"),
    "before the exchange of W": Seam(WRITER, r"probe:publish#\d+", rf"{_W}:_publish words\[self._at.published\] = .*"),
    "after the exchange of W": Seam(WRITER, r"probe:published#\d+", rf"{_W}:_publish rung = .*"),
    "before ringing": Seam(WRITER, r"probe:ring#\d+", rf"{_W}:_ring bell.ring.*"),
    "after ringing": Seam(WRITER, r"probe:rang#\d+", rf"{_W}:_ring self.rings .*"),
    "letting a reader in": Seam(WRITER, r"probe:confirm#\d+", rf"{_W}:_confirm words\[lines.gate\] = .*"),
    "before the epoch of room": Seam(WRITER, r"probe:room_park#\d+", rf"{_W}:announce self._mapping.add.*"),
    "after the epoch of room": Seam(WRITER, r"probe:room_parked#\d+", rf"{_M}:add _pages.barrier\(\)", _ROOMLESS),
    "writer asleep": Seam(WRITER, ASLEEP, ASLEEP),
    "writer awake": Seam(WRITER, r"probe:woke#\d+", r"_fallback/waiting:park if rung:", _ROOMLESS),
    "writer before draining": Seam(WRITER, r"probe:drain#\d+", r"_fallback/bell:drain try:", _ROOMLESS),
    "writer mid-fragment": Seam(WRITER, r"probe:claim#[2-9]", rf"{_W}:push if end != self.cursor:", "put large"),
    # the reader's hot path
    "acquire": Seam(READER, r"probe:take#\d+", rf"{_R}:take_record lent = .*"),
    "acquired": Seam(READER, r"act:acquired#1", r"act:acquired"),
    "before the released cursor": Seam(READER, r"probe:release#\d+", rf"{_R}:_sweep self.released = .*"),
    "after the released cursor": Seam(READER, r"probe:released#\d+", rf"{_R}:_sweep epoch = .*"),
    "before ringing for room": Seam(READER, r"probe:room_ring#\d+", rf"{_R}:_wake_writer bell.ring.*"),
    "after ringing for room": Seam(READER, r"probe:room_rang#\d+", rf"{_R}:_wake_writer self.rings .*"),
    "before F": Seam(READER, r"probe:park#\d+", rf"{_R}:announce mapping.add.*"),
    "after F": Seam(READER, r"probe:parked#\d+", rf"{_M}:add _pages.barrier\(\)", _SLEEPY),
    "before sleep": Seam(READER, r"probe:sleep#\d+", r"_fallback/waiting:_sleep fired = .*"),
    "reader asleep": Seam(READER, ASLEEP, ASLEEP),
    "reader awake": Seam(READER, r"probe:woke#\d+", r"_fallback/waiting:park if rung:", _SLEEPY),
    "reader before draining": Seam(READER, r"probe:drain#\d+", r"_fallback/bell:drain try:", _SLEEPY),
    "reader mid-fragment": Seam(READER, r"probe:fragment#\d+", rf"{_R}:_next record.done = True", "read large"),
    # what both backends share
    "attach: opening the segment": Seam(READER, None, r"_segment:_attach fd = _descriptors.reopen_segment.*"),
    "attach: checking the header": Seam(READER, None, r"_segment:_attach header = _header.read.*"),
    "attach: mapping": Seam(READER, None, r"_segment:_attach segment = cls.*"),
    "attach: registered": Seam(READER, None, r"_segment:_attach undo.pop_all.*"),
    "attach: opening bells": Seam(READER, None, r"_segment:bell self._bells\[role\] = .*"),
    "attach: attached": Seam(READER, None, r"act:attached"),
    "before the lock": Seam(READER, None, r"_roles:claim _lock\(.*"),
    "lock taken": Seam(READER, None, r"_roles:claim segment.claims\[role\] = .*"),
    "half seated": Seam(READER, None, r"_roles:_sit_down mapping.store\(at \+ _layout.SEAT_START.*"),
    "before being seated": Seam(READER, None, r"_roles:_sit_down mapping.store\(at \+ _layout.SEAT_STATE.*"),
    "seated": Seam(READER, None, r"_roles:_sit_down return tenure"),
    "opening the role": Seam(READER, None, r"_reader:_open_role self._open\(.*"),
    "announcing the arrival": Seam(READER, None, r"_reader:_announce_arrival self._segment.ring.*"),
    "reader detaches: before vacating": Seam(
        READER, None, r"_roles:_stand_up segment.mapping.store.*", "reader detaches"
    ),
    "reader detaches: before unlocking": Seam(READER, None, r"_roles:_stand_up fcntl.lockf.*", "reader detaches"),
    "reader detaches: before ringing": Seam(READER, None, r"_tenancy:_ring .*", "reader detaches"),
    "reader closes: before it leaves": Seam(READER, None, r"_tenancy:_say_goodbye mapping.add.*", "reader closes"),
    "reader closes: before unlocking": Seam(READER, None, r"_roles:_stand_up fcntl.lockf.*", "reader closes"),
    "writer detaches: before unlocking": Seam(WRITER, None, r"_roles:_stand_up fcntl.lockf.*", "writer detaches"),
    "writer closes: before it says so": Seam(WRITER, None, r"_tenancy:_say_goodbye mapping.store.*", "writer closes"),
    "writer closes: before ringing": Seam(WRITER, None, r"_tenancy:_ring self._segment.ring.*", "writer closes"),
    "drop: before the gate": Seam(WRITER, r"probe:drop#1", rf"{_W}:drop self._mapping.store.*", "drop dead"),
    "drop: after the gate": Seam(WRITER, r"act:dropped#1", r"act:dropped", "drop alive"),
    "takeover: lock taken": Seam(WRITER, None, r"_roles:claim segment.claims\[role\] = .*", "take over writing"),
    "takeover: stream reopened": Seam(WRITER, None, r"_writer:_open_role self._open\(.*", "take over writing"),
    "takeover: before it rings": Seam(WRITER, None, r"_writer:_announce_arrival self._ring_all.*", "take over writing"),
    "takeover: of a reader": Seam(READER, None, r"_roles:_sit_down return tenure", "take over reading"),
}


def text_of(step: str) -> str:
    """A step with its line's text instead of its number: "file:function text"."""
    place = step.rsplit("#", 1)[0]
    parts = place.split(":")
    if len(parts) != 3:
        return place
    file, function, number = parts
    return f"{file}:{function} {linecache.getline(str(_ROOT / file) + '.py', int(number)).strip()}"


def seams_of(plot: str, backend: str, step: str) -> list[str]:
    """The names of the seams at which a step lies."""
    found = []
    text = text_of(step)
    for name, seam in SEAMS.items():
        if PLOTS[plot].role != seam.role or seam.plot not in (None, plot):
            continue
        probed = backend == "native" and seam.probe is not None
        if re.fullmatch(seam.probe, step) if probed else re.fullmatch(seam.line or "", text):  # type: ignore[arg-type]
            found.append(name)
    return found


def missing(backend: str, steps: Iterable[tuple[str, str]]) -> list[str]:
    """Which seams of a backend none of the (plot, step) pairs comes to."""
    there = {name for plot, step in steps for name in seams_of(plot, backend, step)}
    return [name for name in SEAMS if name not in there]
