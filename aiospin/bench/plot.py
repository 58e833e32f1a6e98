"""The document as pictures, SVG and PNG: distributions, and latency, CPU and throughput against what is varied.

Each picture has two panels with one scale: subjects that block, and subjects that are awaited, so that none holds more
lines than can be told apart. A line has a colour, a marker and a place in the legend, ordered as the lines are, so that
none of them is needed alone; the colours are those of Okabe and Ito, which colour-blind people can tell apart.

Assumption: matplotlib is installed (`need_matplotlib`); nothing is shown on a screen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiospin.bench.contract import Absent, imported
from aiospin.bench.document import Document
from aiospin.bench.samples import middle

PANELS: Final = (("blocking calls", ("sync",)), ("awaited in an event loop", ("uvloop", "asyncio")))

OURS: Final = "#0072B2"
LIMIT: Final = "#000000"
COLOURS: Final = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#882255", "#B2A100")
MARKERS: Final = ("s", "^", "D", "v", "P", "X", "<", ">")
STYLE: Final = {
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "aiospin",
}


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str
    dash: str = "-"
    width: float = 1.4
    hollow: bool = False


@dataclass(frozen=True)
class Curve:
    """One subject's line in one panel."""

    name: str
    kind: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    ticks: Mapping[float, str] | None = None
    """where the horizontal axis has labels of its own"""
    upper: float | None = None
    """the end of a linear vertical axis; a logarithmic one without"""
    every: int = 1
    """how many values lie between two markers"""


def need_matplotlib() -> None:
    """Raises Absent where there is none."""
    try:
        imported("matplotlib")
    except ImportError as error:
        raise Absent(
            f"--plot needs matplotlib, which is not installed: pip install 'aiospin[bench]' ({error})"
        ) from error


def pictures(document: Document) -> Iterator[Picture]:
    """Those for which the document has the scenarios."""
    scenarios = document["scenarios"]
    if "latency" in scenarios:
        for point in scenarios["latency"]["points"]:
            yield _distribution(point, document["ranks"])
        yield _against(scenarios["latency"], "p50_us", "latency-gap", "One way latency, median", "us", GAP)
    if "cpu" in scenarios:
        yield _against(scenarios["cpu"], "cpu_percent", "cpu-gap", "CPU of the answering process", "% of a core", GAP)
    if "throughput" in scenarios:
        title = "Throughput, one call per message"
        yield _against(scenarios["throughput"], "gb_per_s", "throughput-size", title, "GB/s", "size of a message")


GAP: Final = "pause before each message"


def _distribution(point: Mapping[str, Any], ranks: Sequence[float]) -> Picture:
    curves = [
        Curve(name, subject["kind"], subject["curve"], ranks)
        for name, subject in point["subjects"].items()
        if subject["curve"]
    ]
    label = point["label"]
    title = f"One way latency, {label if point['value'] == 0 else f'{label} before each message'}"
    return Picture(
        f"latency-{label.replace(' ', '-')}", title, "us, one way", "share of messages", curves, None, 1.0, 30
    )


def _against(scenario: Mapping[str, Any], figure: str, name: str, title: str, up: str, across: str) -> Picture:
    points = scenario["points"]
    # A logarithmic axis has no zero: no gap stands one step to the left of the smallest one.
    positive = [point["value"] for point in points if point["value"] > 0]
    places = [point["value"] or min(positive, default=1.0) / 8 for point in points]
    names = {each: subject["kind"] for point in points for each, subject in point["subjects"].items()}
    curves: list[Curve] = []
    for each, kind in names.items():
        found = [
            (place, value)
            for place, point in zip(places, points, strict=True)
            if each in point["subjects"]
            and (value := middle([r for r in point["subjects"][each]["rounds"] if r is not None], figure))
        ]
        if found:
            curves.append(Curve(each, kind, [x for x, _ in found], [y for _, y in found]))
    ticks = {place: point["label"] for place, point in zip(places, points, strict=True)}
    return Picture(name, title, across, up, curves, ticks)


def caption(document: Document) -> str:
    machine = document["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {machine['python']}, "
        f"aiospin {machine['aiospin']} ({machine['backend']}, {machine['rung']}); "
        f"{document['rounds']} round{'s' * (document['rounds'] != 1)}, medians"
    )


def draw(document: Document, folder: str) -> list[str]:
    """Draws every picture there; the paths of the files."""
    need_matplotlib()
    imported("matplotlib").use("Agg")
    pyplot = imported("matplotlib.pyplot")
    made: list[str] = []
    with pyplot.rc_context(STYLE):
        for picture in pictures(document):
            figure = _draw(pyplot, picture, caption(document))
            for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                path = os.path.join(folder, f"{picture.name}.{suffix}")
                figure.savefig(path, dpi=120, metadata=metadata)
                made.append(path)
            pyplot.close(figure)
    return made


def looks(curves: Sequence[Curve]) -> dict[str, Look]:
    """aiospin is blue and broad, the machine's own limit black and dashed; the others take what is left in order."""
    left = iter(zip(COLOURS, MARKERS, strict=True))
    found: dict[str, Look] = {}
    for curve in curves:
        if curve.kind == "floor":
            first = not any(look.colour == LIMIT for look in found.values())
            found[curve.name] = Look(LIMIT, *(("*", "--") if first else ("1", ":")))
        elif curve.name.startswith("aiospin "):
            hollow = curve.kind == "asyncio"
            found[curve.name] = Look(OURS, "o", "--" if hollow else "-", 2.6, hollow)
        else:
            found[curve.name] = Look(*next(left))
    return found


def _draw(pyplot: Any, picture: Picture, text: str) -> Any:
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(10, 5.9), sharey=True, sharex=True)
    for axis, (title, kinds) in zip(axes, PANELS, strict=True):
        shown = [curve for curve in picture.curves if curve.kind in kinds or curve.kind == "floor"]
        _draw_panel(axis, picture, shown)
        axis.set_title(title, fontsize=10, loc="left", color="#444444")
    axes[0].set_ylabel(picture.up)
    figure.suptitle(picture.title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.text(0.01, 0.012, text, fontsize=7.5, color="#555555")
    figure.subplots_adjust(left=0.08, right=0.99, top=0.87, bottom=0.31, wspace=0.06)
    return figure


def _draw_panel(axis: Any, picture: Picture, curves: Sequence[Curve]) -> None:
    look = looks(curves)
    lines = {}
    for n, curve in enumerate(curves):
        as_ = look[curve.name]
        (lines[curve.name],) = axis.plot(
            curve.xs,
            curve.ys,
            color=as_.colour,
            linestyle=as_.dash,
            linewidth=as_.width,
            marker=as_.marker,
            markerfacecolor="white" if as_.hollow else as_.colour,
            markevery=(n * 3 % picture.every, picture.every),
            markersize=8 if as_.colour == LIMIT else 5.5,
            zorder=3 if curve.name.startswith("aiospin ") else 2,
        )
    axis.set_xscale("log")
    axis.set_xlabel(picture.across)
    if picture.ticks is not None:
        axis.set_xticks(list(picture.ticks), list(picture.ticks.values()), fontsize=8)
        axis.minorticks_off()
    else:
        axis.xaxis.set_major_formatter(_plain)
    if picture.upper is None:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(_plain)
    else:
        axis.set_ylim(0, picture.upper * 1.01)
    order = sorted(curves, key=_last)
    axis.legend(
        [lines[curve.name] for curve in order],
        [curve.name for curve in order],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.15),
        ncols=3,
        fontsize=8.5,
        handlelength=2.6,
    )


def _plain(value: float, position: int) -> str:
    """1000, 10, 0.01: no powers of ten to decipher."""
    return f"{value:,.0f}" if value >= 1 else f"{value:.6f}".rstrip("0")


def _last(curve: Curve) -> float:
    """Where a line ends, to order the legend: the middle of a distribution, or the last value."""
    return curve.xs[len(curve.xs) // 2] if len(curve.xs) > 50 else curve.ys[-1]
