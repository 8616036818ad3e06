"""The plot of a plan's prediction: the memory of every device, and the timeline of a step."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxcrew.core.units import format_bytes
from boxcrew.plan.prediction import Memory, Prediction, Span
from boxcrew.report.plots.style import INK, MUTED, PALE, SERIES, dress, new_figure, save, shorten

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle
    from matplotlib.text import Text

_Lanes = dict[str, list[list[Span]]]
_Style = dict[str, Any]  # keyword arguments of matplotlib

_COLORS = (*SERIES, MUTED, "#003f5c", "#7a5195")  # of kinds of memory, and of activities in a step
_DARK = frozenset((*SERIES[:3], MUTED, "#003f5c", "#7a5195"))  # colors on which white text is readable
_MARGIN: _Style = {"facecolor": "white", "edgecolor": MUTED, "hatch": "/////", "linewidth": 0.6}
_MARK: _Style = {"color": INK, "linewidth": 2, "solid_capstyle": "butt"}
_UPRIGHT: _Style = {"marker": "|", "markersize": 10, "markeredgewidth": 2}
_END: _Style = {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 2))}
_LEGEND: _Style = {"fontsize": 8, "frameon": False, "borderaxespad": 0.6, "borderpad": 0, "labelcolor": INK}
_LEGEND |= {"handlelength": 1.2, "handleheight": 0.9, "columnspacing": 1.2}
_MOST_OVER = 1.5  # times the capacity up to which a bar is drawn
_THIN = 0.006  # share of the axis below which a white edge would hide the bar
_ROUNDING = 1e-6  # seconds by which consecutive spans may overlap
_PADDING = 8  # pixels, of a label in its bar
_FEWEST_ROWS = 2  # of a timeline
_LEGEND_LETTERS = 80  # per row of a legend beside a title
_LEGEND_PAD = 24  # points between axes and title, with a legend in between


@dataclass(frozen=True, kw_only=True)
class _Label:
    """The label of a bar. Which text is shown is decided when the size of the bar is known."""

    bar: Rectangle
    text: Text
    choices: tuple[str, ...]  # the longest first


def plot_plan(prediction: Prediction, path: Path, *, title: str) -> None:
    """Draw how full every device's memory gets and what uses it, and below the timeline of a step."""
    lanes = _lanes(prediction.timeline)
    rows = 0.46 * len(prediction.memory), 0.4 * max(_FEWEST_ROWS, sum(map(len, lanes.values())))  # inches
    heading = textwrap.fill(title, 100)
    figure = new_figure(12.5, sum(rows) + 2.4 + 0.25 * heading.count("\n"), heading)
    layout = figure.add_gridspec(2, 2, height_ratios=rows, width_ratios=(1, 2))
    _draw_devices(figure.add_subplot(layout[0, 0]), prediction.memory)
    labels = _draw_kinds(figure.add_subplot(layout[0, 1]), prediction.memory)
    labels += _draw_step(figure.add_subplot(layout[1, :]), prediction, lanes)
    figure.draw_without_rendering()  # bars get their size in pixels
    for label in labels:
        _fit(label)
    save(figure, path)


def _draw_devices(axes: Axes, devices: Sequence[Memory]) -> None:
    """Draw every device's memory as a bar that ends at the capacity, and the legend of both panels."""
    dress(axes, title="Memory of each device", x="share of the capacity", pad=_LEGEND_PAD)
    titles = [f"{shorten(memory.device)} · {format_bytes(memory.capacity)}" for memory in devices]
    _name_rows(axes, titles, [1] * len(devices))
    for row, memory in enumerate(devices):
        axes.barh(row, 1, height=0.62, facecolor="white", edgecolor=MUTED, linewidth=0.6)
        _stack(axes, row, memory, whole=memory.capacity, edge=0)
        axes.plot([1, 1], [row - 0.42, row + 0.42], **_MARK)
        _write_headroom(axes, row, memory)
    most = max(memory.needed / memory.capacity for memory in devices)
    axes.set_xlim(0, min(_MOST_OVER, max(1.015, 1.03 * most)))
    axes.set_xticks((0, 0.5, 1), ("0", "50 %", "100 %"))
    _explain_kinds(axes, devices)


def _draw_kinds(axes: Axes, devices: Sequence[Memory]) -> list[_Label]:
    """Draw the same bars, each stretched to the full width."""
    dress(axes, title="What uses it", x="share of what the device needs at most", pad=_LEGEND_PAD)
    _name_rows(axes, [""] * len(devices), [1] * len(devices))
    labels = []
    for row, memory in enumerate(devices):
        whole = max(1, memory.needed)
        labels += _stack(axes, row, memory, whole=whole, edge=0.8)
        if not memory.is_enough:
            axes.plot([memory.capacity / whole] * 2, [row - 0.42, row + 0.42], **_MARK)
    axes.set_xlim(0, 1.003)  # edges have a width
    axes.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0", "25 %", "50 %", "75 %", "100 %"))
    return labels


def _stack(axes: Axes, row: int, memory: Memory, *, whole: int, edge: float) -> list[_Label]:
    """Draw bars of all kinds side by side, as shares of `whole` bytes, with edges of `edge` points."""
    labels, begin = [], 0.0
    for kind, color in zip((*Memory.kinds, "margin"), (*_COLORS, "white"), strict=True):
        count: int = getattr(memory, kind)
        share = count / whole
        plain: _Style = {"facecolor": color, "edgecolor": "white", "linewidth": edge * (share >= _THIN)}
        style = _MARGIN if kind == "margin" else plain
        if count:
            bar = axes.barh(row, share, left=begin, height=0.62, **style)[0]
            size = format_bytes(count)
            labels.append(_label(axes, bar, color, (f"{kind} {size}", size)))
        begin += share
    return labels


def _write_headroom(axes: Axes, row: int, memory: Memory) -> None:
    """Write what is left beside the bar."""
    color = INK if memory.is_enough else SERIES[1]
    bold: _Style = {"xytext": (8, 1), "fontsize": 8.5, "color": color, "fontweight": "bold", "va": "bottom"}
    small: _Style = {"xytext": (8, 0), "fontsize": 7.5, "color": MUTED, "va": "top"}
    need = f"needs {format_bytes(memory.peak)}, at most {format_bytes(memory.needed)}"
    beside: _Style = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    for text, style in ((_headroom(memory), bold), (need, small)):
        axes.annotate(text, (1, row), annotation_clip=False, **beside, **style)


def _headroom(memory: Memory) -> str:
    """Return such as `12.3 GiB to spare`, or how much is lacking."""
    if memory.is_enough:
        return f"{format_bytes(memory.capacity - memory.needed)} to spare"
    lacking = format_bytes(memory.needed - memory.capacity)
    return f"may lack {lacking}" if memory.peak <= memory.capacity else f"lacks up to {lacking}"


def _explain_kinds(axes: Axes, devices: Sequence[Memory]) -> None:
    """Draw a legend of the kinds that some device holds: one row above both panels, below their titles."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Patch(color=color, label=kind)
        for kind, color in zip(Memory.kinds, _COLORS, strict=True)
        if any(getattr(memory, kind) for memory in devices)
    ]
    if any(memory.margin for memory in devices):
        handles.append(Patch(label="margin", **_MARGIN))
    handles.append(Line2D([], [], label="capacity", color=INK, linestyle="", **_UPRIGHT))
    legend = axes.legend(
        handles=handles, ncols=len(handles), loc="lower left", bbox_to_anchor=(0.0, 1.0), **_LEGEND
    )
    legend.set_in_layout(False)  # it may be wider than its panel


def _lanes(timeline: Sequence[Span]) -> _Lanes:
    """Return the spans of every lane, in as many rows as are needed so that none hides another."""
    lanes: _Lanes = {span.lane: [] for span in timeline}
    for span in sorted(timeline, key=lambda span: span.begin):
        rows = lanes[span.lane]
        free = next((row for row in rows if row[-1].end <= span.begin + _ROUNDING), None)
        if free is None:
            rows.append([span])
        else:
            free.append(span)
    return lanes


def _draw_step(axes: Axes, prediction: Prediction, lanes: _Lanes) -> list[_Label]:
    """Draw the timeline of a step, and its end."""
    step, spans = prediction.step, prediction.timeline
    last = max((step.likely, *(span.end for span in spans)))
    scale, unit, word = (1000, "ms", "milliseconds") if last < 2 else (1, "s", "seconds")
    likely, low, high = (_number(seconds * scale) for seconds in (step.likely, step.low, step.high))
    heading = f"One step: {likely} {unit} ({low} to {high}), limited by {prediction.bound}"
    basis = shorten(prediction.basis, limit=100)
    dress(axes, title=heading, x=f"{word} · based on {basis}")
    axes.set_xlim(0, (last or 1) * scale * 1.005)
    axes.axvline(step.likely * scale, zorder=3, **_END)
    names = dict.fromkeys(span.name for span in spans)
    colors = dict(zip(names, itertools.cycle(_COLORS), strict=False))
    _explain_step(axes, colors)
    _name_rows(axes, [*map(shorten, lanes)] or [""], [len(rows) for rows in lanes.values()] or [_FEWEST_ROWS])
    if not spans:
        axes.grid(visible=False)
        axes.text(0.5, 0.5, "no timeline", ha="center", va="center", color=MUTED, transform=axes.transAxes)
    rows = [row for lane in lanes.values() for row in lane]
    return [
        _draw_span(axes, index, span, color=colors[span.name], scale=scale, unit=unit)
        for index, row in enumerate(rows)
        for span in row
    ]


def _draw_span(axes: Axes, row: int, span: Span, *, color: str, scale: int, unit: str) -> _Label:
    length = (span.end - span.begin) * scale
    # An edge of its own color keeps a bar visible that is shorter than a pixel.
    edge, width = ("white", 0.8) if length >= _THIN * axes.get_xlim()[1] else (color, 0.6)
    style: _Style = {"facecolor": color, "edgecolor": edge, "linewidth": width}
    bar = axes.barh(row, length, left=span.begin * scale, height=0.62, **style)[0]
    return _label(axes, bar, color, (f"{span.name} {_number(length)} {unit}", span.name))


def _number(value: float) -> str:
    """Format a number with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _name_rows(axes: Axes, names: Sequence[str], heights: Sequence[int]) -> None:
    """Name rows from top to bottom, with pale lines between them; a name may be for several rows."""
    ends = list(itertools.accumulate(heights))
    middles = [end - (height + 1) / 2 for end, height in zip(ends, heights, strict=True)]
    axes.set_yticks(middles, names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(ends[-1] - 0.5, -0.5)
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color=PALE, linewidth=0.8, zorder=0.5)


def _explain_step(axes: Axes, colors: Mapping[str, str]) -> None:
    """Draw a legend above the plot, right of its title."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [Patch(color=color, label=shorten(name)) for name, color in colors.items()]
    handles.append(Line2D([], [], label="end of the step", **_END))
    letters = sum(len(str(handle.get_label())) + 5 for handle in handles)  # with room for the patches
    columns = math.ceil(len(handles) / math.ceil(letters / _LEGEND_LETTERS))
    axes.legend(handles=handles, ncols=columns, loc="lower right", bbox_to_anchor=(1.0, 1.0), **_LEGEND)


def _label(axes: Axes, bar: Rectangle, color: str, choices: tuple[str, ...]) -> _Label:
    center = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
    ink = "white" if color in _DARK else INK
    ground = {"facecolor": color, "linewidth": 0, "pad": 1.5}  # covers hatching and marks
    text = axes.text(*center, "", ha="center", va="center_baseline", fontsize=8, color=ink, bbox=ground)
    return _Label(bar=bar, text=text, choices=choices)


def _fit(label: _Label) -> None:
    """Show the longest text that fits into the bar, or none."""
    room = label.bar.get_window_extent().width - _PADDING
    for choice in label.choices:
        label.text.set_text(choice)
        if label.text.get_window_extent().width <= room:
            return
    label.text.set_visible(False)
