"""The pictures: what they show of a document, where matplotlib is installed; and what is said where it is not."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from aiospin.bench import plot
from aiospin.bench.contract import Absent
from aiospin.bench.samples import RANKS

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
SUBJECTS = {
    "C pipe + epoll": "floor",
    "aiospin sync": "sync",
    "Pipe": "sync",
    "mp.Queue": "sync",
    "aiospin uvloop": "uvloop",
    "aiospin asyncio": "asyncio",
    "stream uvloop": "uvloop",
}


def point(label: str, value: float, figure: str, scale: float) -> dict[str, Any]:
    subjects = {
        name: {
            "kind": kind,
            "failure": None,
            "rounds": [{figure: scale * (n + 1)}, {figure: scale * (n + 2)}],
            "curve": [scale * (n + 1) * (1 + rank) for rank in RANKS],
        }
        for n, (name, kind) in enumerate(SUBJECTS.items())
    }
    return {"label": label, "value": value, "floor": "C pipe + epoll", "unfit": {}, "subjects": subjects}


def document() -> dict[str, Any]:
    gaps = [("no gap", 0.0), ("5 ms", 5e-3)]
    sizes = [("64 B", 64.0), ("10 MiB", float(10 << 20))]
    return {
        "rounds": 2,
        "ranks": list(RANKS),
        "machine": {
            **{"cpu": "A CPU", "cores": 2, "kernel": "6.1", "python": "CPython 3.11.7", "aiospin": "0.1.0"},
            **{"backend": "native", "rung": "pause"},
        },
        "scenarios": {
            "latency": {"points": [point(*gap, "p50_us", 3.0 * (n + 1)) for n, gap in enumerate(gaps)]},
            "cpu": {"points": [point(*gap, "cpu_percent", 2.0) for gap in gaps]},
            "throughput": {"points": [point(*size, "gb_per_s", 0.1 * (n + 1)) for n, size in enumerate(sizes)]},
        },
    }


def test_there_is_a_picture_for_each_question() -> None:
    found = {picture.name: picture for picture in plot.pictures(document())}
    assert list(found) == ["latency-no-gap", "latency-5-ms", "latency-gap", "cpu-gap", "throughput-size"]
    gap = found["latency-gap"]
    assert gap.ticks == {5e-3 / 8: "no gap", 5e-3: "5 ms"}
    assert gap.curves[0].ys == [4.5, 9.0]  # medians of the rounds
    distribution = found["latency-5-ms"]
    assert list(distribution.curves[1].ys) == list(RANKS)
    assert not list(plot.pictures({**document(), "scenarios": {}}))


def test_no_two_lines_of_a_panel_look_alike() -> None:
    for picture in plot.pictures(document()):
        for _, kinds in plot.PANELS:
            looks = plot.looks([curve for curve in picture.curves if curve.kind in kinds or curve.kind == "floor"])
            assert len(set(looks.values())) == len(looks)


def test_no_panel_has_more_subjects_than_there_are_looks() -> None:
    from aiospin.bench.subjects import load_subjects

    for _, kinds in plot.PANELS:
        others = [s for s in load_subjects().values() if s.kind in kinds and not s.name.startswith("aiospin ")]
        assert len(others) <= len(plot.COLOURS) == len(plot.MARKERS)


def test_the_caption_names_the_machine() -> None:
    assert plot.caption(document()) == (
        "A CPU, 2 cores, Linux 6.1, CPython 3.11.7, aiospin 0.1.0 (native, pause); 2 rounds, medians"
    )


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(module: str) -> Any:
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr(plot, "imported", none)
    with pytest.raises(Absent, match=r"pip install 'aiospin\[bench\]'"):
        plot.need_matplotlib()


if HAS_MATPLOTLIB:

    @pytest.mark.filterwarnings("default")  # matplotlib's, and those of what it needs, are not ours
    def test_drawing_makes_svg_and_png(tmp_path: Path) -> None:
        made = [Path(path) for path in plot.draw(document(), str(tmp_path))]
        assert len(made) == 10
        for path in made:
            start = path.read_bytes()[:200]
            assert start.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        text = (tmp_path / "latency-gap.svg").read_text()
        assert not re.search(r"<dc:date>", text), "the same figures give the same file"


def test_numbers_on_an_axis_are_plain() -> None:
    plain = plot._plain  # pyright: ignore[reportPrivateUsage]
    assert [plain(value, 0) for value in (1000.0, 1.0, 0.1, 0.001)] == ["1,000", "1", "0.1", "0.001"]
