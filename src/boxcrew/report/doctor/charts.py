"""Charts of the doctor's page: inline SVG drawn by matplotlib, with the exact counts in tooltips."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from boxcrew.report.doctor.markup import Html, element
from boxcrew.report.plots.style import ACCENT, INK, MUTED, dress, load_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOST = "#d55e00"
WIDTH, HEIGHT = 420, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 12, 12, 40  # margins
_TOOLTIP = "tooltip: "  # begins the id of an SVG group whose text is to become its tooltip
_CLEANING = {  # of what matplotlib writes: patterns and what they become
    rf'<g id="{_TOOLTIP}([^"]*)">': r"<g><title>\1</title>",
    '<g id="halo">': '<g class="halo">',
    r"<defs>.*?</defs>|font-family: [^;]*; ": "",
    r' (?:id|clip-path)="[^"]*"| transform="rotate\(-0 [^"]*"': "",
    r"\s*\n\s*": "",
    "<g></g>|<g/>": "",
}
Numbers = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Bins:
    """The bins along one side of a chart, and how that side is labeled."""

    edges: tuple[float, ...]  # ascending, one more than there are bins
    title: str
    log: bool = False
    integers: bool = False

    @classmethod
    def counting(cls, most: int, title: str) -> Bins:
        """Make bins of the integers from zero to `most`, at most 41 of them."""
        step = max(1, -(-(most + 1) // 40))
        return cls(edges=tuple(i - 0.5 for i in range(0, most + 1 + step, step)), title=title, integers=True)

    @classmethod
    def doubling(cls, values: Numbers, title: str, *, per_doubling: int = 4) -> Bins:
        """Make logarithmic bins from the smallest to the largest of `values`, which are all above zero."""
        low = np.floor(np.log2(values.min()) * per_doubling)
        high = np.floor(np.log2(values.max()) * per_doubling) + 1
        edges = tuple((2.0 ** (np.arange(low, high + 1) / per_doubling)).tolist())
        return cls(edges=edges, title=title, log=True)

    @classmethod
    def shares(cls, title: str, *, num: int) -> Bins:
        """Make `num` equal bins from 0 to 1."""
        return cls(edges=tuple(np.linspace(0, 1, num + 1).tolist()), title=title)

    def name(self, i: int) -> str:
        low, high = self.edges[i], self.edges[i + 1]
        if self.integers:
            first, last = round(low + 0.5), round(high - 0.5)
            return f"{first}" if first == last else f"{first} to {last}"
        return f"{low:.3g} to {high:.3g}"

    def scale(self, axes: Axes, side: Literal["x", "y"]) -> None:
        """Give one axis of a chart these limits, their scale and a few round ticks."""
        from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

        axis = axes.xaxis if side == "x" else axes.yaxis
        if self.log:
            axes.set(**{f"{side}scale": "log"})
            powers = [2.0**i for i in range(-8, 16) if self.edges[0] <= 2.0**i <= self.edges[-1]]
            axis.set_major_locator(FixedLocator(powers[:: max(1, -(-len(powers) // 8))]))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(5, integer=self.integers, min_n_ticks=1))
        axis.set_major_formatter("{x:g}")
        axes.set(**{f"{side}lim": (self.edges[0], self.edges[-1])})


def histogram(values: Numbers, bins: Bins, *, noun: str, marked: npt.NDArray[np.bool_] | None = None) -> Html:
    """Draw how many of `values` fall into each bin, with those that are `marked` at the foot of each bar."""
    from matplotlib.ticker import MaxNLocator

    edges = np.array(bins.edges)
    counts, _ = np.histogram(values, edges)
    lost = np.histogram(values[marked], edges)[0] if marked is not None else np.zeros_like(counts)
    axes = _new_axes(WIDTH, bins.title, noun)
    bins.scale(axes, "x")
    axes.set_ylim(0, 1.04 * counts.max(initial=1))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False, axis="x")
    least = axes.get_ylim()[1] * 2 / (HEIGHT - _TOP - _BOTTOM)  # two pixels: a few among many are still seen
    for i in map(int, np.flatnonzero(counts)):
        note = f", {lost[i]:,} of them lost" if lost[i] else ""
        tooltip = f"{_TOOLTIP}{bins.name(i)}: {counts[i]:,} {noun}{note}"
        for count, color in ((counts[i], ACCENT), (lost[i], LOST)):
            if count:
                size = max(count, least), edges[i + 1] - edges[i]
                axes.bar(edges[i], *size, align="edge", color=color, edgecolor="white", gid=tooltip)
    return _svg(axes, f"Histogram of {noun} by {bins.title}")


def heat_map(points: Numbers, bins: tuple[Bins, Bins], *, noun: str, ratios: Sequence[float] = ()) -> Html:
    """Draw how many points (N, 2) fall into each cell; y grows downward unless it is logarithmic.
    `ratios` of y to x are marked by dashed lines; both sides must then be logarithmic.
    """
    across, down = bins
    counts, _ = np.histogramdd(points, bins=(np.array(across.edges), np.array(down.edges)))
    square = _LEFT + HEIGHT - _TOP - _BOTTOM + _RIGHT
    axes = _new_axes(WIDTH if across.log else square, across.title, down.title)
    across.scale(axes, "x")
    down.scale(axes, "y")
    axes.set_facecolor("#f7f9fb")
    axes.grid(visible=False)
    for i, j in np.argwhere(counts):
        (x0, x1), (y0, y1) = across.edges[i : i + 2], down.edges[j : j + 2]
        shade = 0.12 + 0.88 * float(counts[i, j] / counts.max()) ** 0.6
        tooltip = f"{_TOOLTIP}{across.name(i)} by {down.name(j)}: {int(counts[i, j]):,} {noun}"
        axes.bar(x0, y1 - y0, x1 - x0, y0, align="edge", color=(ACCENT, shade), gid=tooltip)
    if not down.log:
        axes.invert_yaxis()
    for ratio in ratios:
        _mark_ratio(axes, ratio)
    return _svg(axes, f"Heat map of {noun}: {across.title} and {down.title}")


def share_bars(shares: Sequence[tuple[str, float]], *, chosen: str) -> Html:
    """Return shares of 0..1 as a table of bars, with the `chosen` one in a stronger color."""
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", bar((share, ACCENT if name == chosen else "#9db8cc")), class_="bar"),
            element("td", percent(share), class_="number"),
            class_="chosen" if name == chosen else None,
        )
        for name, share in shares
    ]
    return element("table", element("tbody", *rows), class_="bars")


def legend(*entries: tuple[str, str]) -> Html:
    """Return a legend of colors with what they stand for."""
    return element("div", *(element("span", key(color), text) for color, text in entries), class_="legend")


def key(color: str) -> Html:
    return element("span", class_="key", style=f"background:{color}")


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal, never rounded up to 100 %."""
    return f"{np.floor(1000 * share + 1e-6) / 10:.1f} %"


def bar(*pieces: tuple[float, str]) -> Html:
    """Return one bar of pieces side by side; each is a share of the full width, and its color."""
    filled = (
        element("i", style=f"width:{100 * share:.2f}%;background:{color}") for share, color in pieces if share
    )
    return element("span", *filled, class_="strip", aria_hidden="true")


def _new_axes(width: int, x: str, y: str) -> Axes:
    """Return empty axes in a figure of `width` x HEIGHT points, which are the units of the SVG."""
    load_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, HEIGHT / 72), dpi=72, facecolor="none")
    size = (width - _LEFT - _RIGHT) / width, (HEIGHT - _TOP - _BOTTOM) / HEIGHT
    axes = figure.add_axes((_LEFT / width, _BOTTOM / HEIGHT, *size))
    dress(axes, x=x, y=y)
    axes.tick_params(labelsize=12, pad=5)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(size=12, color=INK)
    return axes


def _mark_ratio(axes: Axes, ratio: float) -> None:
    """Draw the line of y = ratio * x through a logarithmic chart, as far as it lies inside."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    ends = max(left, bottom / ratio), min(right, top / ratio)
    if ends[0] >= ends[1]:
        return
    axes.plot(ends, [x * ratio for x in ends], color=MUTED, linewidth=1, linestyle=(0, (3, 4)))
    name = "square" if ratio == 1 else f"{ratio:g} : 1 tall" if ratio > 1 else f"{1 / ratio:g} : 1 wide"
    side = "right" if np.log(right / ends[1]) < 0.18 * np.log(right / left) else "left"
    point = ends[1], ends[1] * ratio
    axes.annotate(name, point, (-4, -4), textcoords="offset points", ha=side, va="top", size=12, gid="halo")


def _svg(axes: Axes, name: str) -> Html:
    """Return the figure of `axes` as an `svg` element that leaves ids and fonts to the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    file, figure = io.StringIO(), axes.figure
    assert isinstance(figure, Figure)
    width = figure.get_figwidth() * 72
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "boxcrew"}):
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    drawing = file.getvalue().partition("<svg ")[2].partition(">")[2].rpartition("</svg>")[0]
    for pattern, replacement in _CLEANING.items():
        drawing = re.sub(pattern, replacement, drawing, flags=re.DOTALL)
    view, style = f"0 0 {width:g} {HEIGHT}", f"max-width:{width * 1.2:g}px"
    return element(
        "svg", Html(drawing), class_="chart", viewbox=view, role="img", aria_label=name, style=style
    )
