"""Charts of the doctor's page as SVG: small, sharp at any size, and with their numbers in tooltips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.plots.style import ACCENT, INK, MUTED, PALE

LOST = "#d55e00"
WIDTH, HEIGHT = 420, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 12, 12, 40  # margins
Numbers = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What runs along one side of a chart."""

    edges: tuple[float, ...]  # of the bins, ascending
    title: str
    log: bool = False
    counts: bool = False  # whether only whole numbers can be

    @classmethod
    def counting(cls, most: int, title: str) -> Axis:
        """Whole numbers from zero to `most`, in no more than 40 bins."""
        step = max(1, -(-(most + 1) // 40))
        return cls(edges=tuple(i - 0.5 for i in range(0, most + 1 + step, step)), title=title, counts=True)

    @classmethod
    def doubling(cls, values: Numbers, title: str, *, bins: int = 4) -> Axis:
        """As many `bins` for each doubling, from the smallest to the largest of `values`, all above zero."""
        low = np.floor(np.log2(values.min()) * bins)
        high = np.floor(np.log2(values.max()) * bins) + 1
        edges = tuple((2.0 ** (np.arange(low, high + 1) / bins)).tolist())
        return cls(edges=edges, title=title, log=True)

    @classmethod
    def shares(cls, title: str, *, bins: int) -> Axis:
        return cls(edges=tuple(np.linspace(0, 1, bins + 1).tolist()), title=title)

    def place(self, value: float) -> float:
        """Of a value, from 0 at the first edge to 1 at the last."""
        low, high = self.edges[0], self.edges[-1]
        if self.log:
            value, low, high = (float(np.log2(x)) for x in (value, low, high))
        return (value - low) / (high - low)

    def ticks(self) -> list[float]:
        low, high = self.edges[0], self.edges[-1]
        if self.log:
            powers = [2.0**i for i in range(-8, 16) if low <= 2.0**i <= high]
            return powers[:: max(1, -(-len(powers) // 8))]
        step = _round_step((high - low) / 5)
        if self.counts:
            step = max(1.0, float(np.ceil(step)))
        return [i * step for i in range(int(np.ceil(low / step - 1e-9)), int(high / step + 1e-9) + 1)]

    def bin_name(self, i: int) -> str:
        low, high = self.edges[i], self.edges[i + 1]
        if self.counts:
            first, last = round(low + 0.5), round(high - 0.5)
            return f"{first}" if first == last else f"{first} to {last}"
        return f"{low:.3g} to {high:.3g}"


def histogram(values: Numbers, axis: Axis, *, what: str, marked: npt.NDArray[np.bool_] | None = None) -> Html:
    """How many `values` fall into each bin; those that are `marked` stand at the foot in another colour."""
    edges = np.array(axis.edges)
    counts, _ = np.histogram(values, edges)
    of_these = np.histogram(values[marked], edges)[0] if marked is not None else np.zeros_like(counts)
    top = _round_up(int(counts.max(initial=1)))
    parts = [*_x_axis(axis), *_count_axis(top, what)]
    wide, high = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    for i in map(int, np.flatnonzero(counts)):
        x0, x1 = (_LEFT + axis.place(edge) * wide for edge in axis.edges[i : i + 2])
        gap = 1.0 if x1 - x0 > 3 else 0.2
        name = f"{axis.bin_name(i)}: {counts[i]:,} {what}"
        if of_these[i]:
            name += f", {of_these[i]:,} of them lost"
        lost = max(2.0, of_these[i] / top * high) if of_these[i] else 0.0
        whole = max(lost, counts[i] / top * high)
        foot = HEIGHT - _BOTTOM
        bar = [_rect(x0 + gap / 2, foot - whole, x1 - x0 - gap, whole - lost, ACCENT)]
        if lost:
            bar.append(_rect(x0 + gap / 2, foot - lost, x1 - x0 - gap, lost, LOST))
        parts.append(element("g", element("title", name), *bar))
    return _svg(parts, f"Histogram of {what} by {axis.title}")


def heat_map(
    x: Numbers, y: Numbers, axes: tuple[Axis, Axis], *, what: str, lines: Sequence[float] = ()
) -> Html:
    """How many of the points fall into each cell; the second axis runs downwards unless it is logarithmic.
    `lines` are ratios of y to x at which both being equal is drawn, for logarithmic axes.
    """
    counts, _, _ = np.histogram2d(x, y, bins=(np.array(axes[0].edges), np.array(axes[1].edges)))
    side = HEIGHT - _TOP - _BOTTOM
    wide = WIDTH - _LEFT - _RIGHT if axes[0].log else side
    parts = [_rect(_LEFT, _TOP, wide, side, "#f7f9fb"), *_x_axis(axes[0], wide), *_y_axis(axes[1])]
    most = max(1.0, counts.max(initial=0))
    for i, j in np.argwhere(counts):
        x0, x1 = (_LEFT + axes[0].place(edge) * wide for edge in axes[0].edges[i : i + 2])
        y0, y1 = sorted(_height(axes[1], edge) for edge in axes[1].edges[j : j + 2])
        name = f"{axes[0].bin_name(i)} by {axes[1].bin_name(j)}: {int(counts[i, j]):,} {what}"
        shade = 0.12 + 0.88 * float(counts[i, j] / most) ** 0.6
        parts.append(
            element(
                "rect",
                element("title", name),
                x=round(x0, 1),
                y=round(y0, 1),
                width=round(x1 - x0, 1),
                height=round(y1 - y0, 1),
                fill=ACCENT,
                fill_opacity=round(shade, 2),
            )
        )
    parts += [line for ratio in lines for line in _ratio_line(axes, ratio, wide)]
    return _svg(
        parts, f"Heat map of {what}: {axes[0].title} and {axes[1].title}", width=_LEFT + wide + _RIGHT
    )


def share_bars(shares: Sequence[tuple[str, float]], *, chosen: str) -> Html:
    """Shares of 0..1 as lines of a table, one of them set off."""
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


def percent(share: float) -> str:
    """To a tenth, never rounded up to all."""
    return f"{np.floor(1000 * share + 1e-6) / 10:.1f} %"


def bar(*parts: tuple[float, str]) -> Html:
    """Shares of the whole width, each with its colour, side by side."""
    pieces = (
        element("i", style=f"width:{100 * share:.2f}%;background:{colour}")
        for share, colour in parts
        if share
    )
    return element("span", *pieces, class_="strip", aria_hidden="true")


def _ratio_line(axes: tuple[Axis, Axis], ratio: float, wide: float) -> Iterator[Html]:
    low = max(axes[0].edges[0], axes[1].edges[0] / ratio)
    high = min(axes[0].edges[-1], axes[1].edges[-1] / ratio)
    if low >= high:
        return
    ends = [(_LEFT + axes[0].place(x) * wide, _height(axes[1], x * ratio)) for x in (low, high)]
    path = f"M{ends[0][0]:.1f} {ends[0][1]:.1f}L{ends[1][0]:.1f} {ends[1][1]:.1f}"
    yield element("path", d=path, stroke=MUTED, stroke_dasharray="3 4", fill="none")
    name = "square" if ratio == 1 else f"{ratio:g} : 1 tall" if ratio > 1 else f"{1 / ratio:g} : 1 wide"
    at_right = ends[1][0] > _LEFT + wide - 60
    yield element(
        "text",
        name,
        x=round(ends[1][0] - 4, 1),
        y=round(ends[1][1] + 14, 1),
        text_anchor="end" if at_right else "start",
        class_="halo",
    )


def _x_axis(axis: Axis, wide: float = WIDTH - _LEFT - _RIGHT) -> Iterator[Html]:
    foot = HEIGHT - _BOTTOM
    yield element("path", d=f"M{_LEFT} {foot}h{wide}", stroke=PALE, fill="none")
    for value in axis.ticks():
        yield _text(_LEFT + axis.place(value) * wide, foot + 15, f"{value:g}")
    yield _text(_LEFT + wide / 2, HEIGHT - 6, axis.title, colour=INK)


def _y_axis(axis: Axis) -> Iterator[Html]:
    for value in axis.ticks():
        yield _text(_LEFT - 6, _height(axis, value) + 4, f"{value:g}", anchor="end")
    yield _sideways(axis.title)


def _count_axis(top: int, what: str) -> Iterator[Html]:
    high = HEIGHT - _TOP - _BOTTOM
    for value in sorted({0, top // 2, top}):
        y = HEIGHT - _BOTTOM - value / top * high
        yield element("path", d=f"M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}", stroke=PALE, fill="none")
        yield _text(_LEFT - 6, y + 4, f"{value:,}", anchor="end")
    yield _sideways(what)


def _height(axis: Axis, value: float) -> float:
    """Logarithmic axes grow upwards; places in an image downwards."""
    share = axis.place(value)
    return _TOP + (1 - share if axis.log else share) * (HEIGHT - _TOP - _BOTTOM)


def _sideways(title: str) -> Html:
    middle = _TOP + (HEIGHT - _TOP - _BOTTOM) / 2
    return element(
        "text",
        title,
        x=10,
        y=middle,
        fill=INK,
        text_anchor="middle",
        transform=f"rotate(-90 10 {middle:g})",
    )


def _text(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = MUTED) -> Html:
    return element("text", text, x=round(x, 1), y=round(y, 1), fill=colour, text_anchor=anchor)


def _rect(x: float, y: float, width: float, height: float, fill: str) -> Html:
    x, y, width, height = (round(value, 1) for value in (x, y, width, height))
    return element("rect", x=x, y=y, width=width, height=height, fill=fill)


def _svg(parts: Sequence[Html], name: str, *, width: float = WIDTH) -> Html:
    return element(
        "svg",
        join(*parts),
        class_="chart",
        viewbox=f"0 0 {width:g} {HEIGHT}",
        role="img",
        aria_label=name,
        style=f"max-width:{width * 1.2:g}px",
    )


def _round_step(value: float) -> float:
    """1, 2, 2.5 or 5 times a power of ten, not below `value`."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= value * (1 - 1e-9)))


def _round_up(value: int) -> int:
    """An even number at or above `value` that reads well at the top of an axis."""
    step = max(2, round(_round_step(value / 10)))
    return -(-value // step) * step
