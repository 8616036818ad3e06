"""What a plan is expected to take, in one picture: the memory of every device, and a step on the clock."""

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
_Look = dict[str, Any]  # what matplotlib takes by name

_COLOURS = (*SERIES, MUTED, "#003f5c", "#7a5195")  # of kinds of memory, and of what is done during a step
_BAD = SERIES[1]
_DARK = frozenset((*SERIES[:3], MUTED, "#003f5c", "#7a5195"))  # colours on which white is read best
_MARGIN: _Look = {"facecolor": "white", "edgecolor": MUTED, "hatch": "/////", "linewidth": 0.6}
_MARK: _Look = {"color": INK, "linewidth": 2, "solid_capstyle": "butt"}
_UPRIGHT: _Look = {"marker": "|", "markersize": 10, "markeredgewidth": 2}
_END: _Look = {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 2))}
_MOST_OVER = 1.5  # times its capacity up to which a bar is drawn; words tell the rest
_THIN = 0.006  # share of the axis below which a white edge would hide what it surrounds
_AT_ONCE = 1e-6  # seconds by which spans may overlap and still follow each other: numbers are rounded
_PADDING = 8  # pixels, of a label in its bar
_FEWEST_ROWS = 2  # that a timeline has room for
_LEGEND_ROOM = 80  # letters in a row, so that the title beside it keeps its place


@dataclass(frozen=True, kw_only=True)
class _Label:
    """Of a bar; which of its texts is shown turns out when the room for it is known."""

    bar: Rectangle
    text: Text
    choices: tuple[str, ...]  # the longest first


def plot_plan(prediction: Prediction, path: Path, *, title: str) -> None:
    """How full every device gets and with what, as shares with bytes written in; below, a step's timeline."""
    lanes = _lanes(prediction.timeline)
    rows = 0.46 * len(prediction.memory), 0.4 * max(_FEWEST_ROWS, sum(map(len, lanes.values())))  # inches
    heading = textwrap.fill(title, 100)
    figure = new_figure(12.5, sum(rows) + 2.4 + 0.25 * heading.count("\n"), heading)
    layout = figure.add_gridspec(2, 2, height_ratios=rows, width_ratios=(1, 2))
    full, parts = figure.add_subplot(layout[0, 0]), figure.add_subplot(layout[0, 1])
    _draw_full(full, prediction.memory)
    labels = _draw_parts(parts, prediction.memory)
    labels += _draw_step(figure.add_subplot(layout[1, :]), prediction, lanes)
    figure.draw_without_rendering()  # only now bars have their size in pixels
    for label in labels:
        _fit(label)
    save(figure, path)


def _draw_full(axes: Axes, memory: Sequence[Memory]) -> None:
    """Every device's memory as a bar that ends at the capacity."""
    dress(axes, title="How full memory gets", x="share of the capacity")
    names = shorten([one.device for one in memory])
    sizes = [format_bytes(one.capacity) for one in memory]
    named = [f"{name} · {size}" for name, size in zip(names, sizes, strict=True)]
    _name_rows(axes, named, [1] * len(memory))
    for row, one in enumerate(memory):
        axes.barh(row, 1, height=0.62, facecolor="white", edgecolor=MUTED, linewidth=0.6)
        _stack(axes, row, one, whole=one.capacity, edge=0)
        axes.plot([1, 1], [row - 0.42, row + 0.42], **_MARK)
        _tell(axes, row, one)
    most = max(one.needed / one.capacity for one in memory)
    axes.set_xlim(0, min(_MOST_OVER, max(1.015, 1.03 * most)))
    axes.set_xticks((0, 0.5, 1), ("0", "50 %", "100 %"))


def _draw_parts(axes: Axes, memory: Sequence[Memory]) -> list[_Label]:
    """The same bars, each stretched to the whole width."""
    dress(axes, title="What takes it", x="share of what the device needs at most")
    _name_rows(axes, [""] * len(memory), [1] * len(memory))
    labels = []
    for row, one in enumerate(memory):
        whole = max(1, one.needed)
        labels += _stack(axes, row, one, whole=whole, edge=0.8)
        if not one.fits:
            axes.plot([one.capacity / whole] * 2, [row - 0.42, row + 0.42], **_MARK)
    axes.set_xlim(0, 1.003)  # edges are wider than nothing
    axes.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0", "25 %", "50 %", "75 %", "100 %"))
    _explain_parts(axes, memory)
    return labels


def _stack(axes: Axes, row: int, memory: Memory, *, whole: int, edge: float) -> list[_Label]:
    """Bars of all that is needed, one after the other, as shares of `whole` bytes; `edge` in points."""
    labels, begin = [], 0.0
    for kind, colour in zip((*Memory.kinds, "margin"), (*_COLOURS, "white"), strict=True):
        count: int = getattr(memory, kind)
        share = count / whole
        plain: _Look = {"facecolor": colour, "edgecolor": "white", "linewidth": edge * (share >= _THIN)}
        look = _MARGIN if kind == "margin" else plain
        if count:
            bar = axes.barh(row, share, left=begin, height=0.62, **look)[0]
            size = format_bytes(count)
            labels.append(_label(axes, bar, colour, (f"{kind} {size}", size)))
        begin += share
    return labels


def _tell(axes: Axes, row: int, memory: Memory) -> None:
    """What is left, in words beside the bar."""
    peak, needed = format_bytes(memory.peak), format_bytes(memory.needed)
    colour = INK if memory.fits else _BAD
    bold: _Look = {"fontsize": 8.5, "color": colour, "fontweight": "bold", "va": "bottom"}
    small: _Look = {"fontsize": 7.5, "color": MUTED, "va": "top"}
    place: _Look = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(_headroom(memory), (1, row), xytext=(8, 1), annotation_clip=False, **place, **bold)
    needs = f"needs {peak}, at most {needed}"
    axes.annotate(needs, (1, row), xytext=(8, 0), annotation_clip=False, **place, **small)


def _headroom(memory: Memory) -> str:
    """`12.3 GiB to spare`, or what is lacking."""
    if memory.fits:
        return f"{format_bytes(memory.capacity - memory.needed)} to spare"
    lacking = format_bytes(memory.needed - memory.capacity)
    return f"may lack {lacking}" if memory.peak <= memory.capacity else f"lacks up to {lacking}"


def _explain_parts(axes: Axes, memory: Sequence[Memory]) -> None:
    """A legend of the kinds that some device holds."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colours = dict(zip(Memory.kinds, _COLOURS, strict=True))
    shown = {kind: colours[kind] for kind in Memory.kinds if any(getattr(one, kind) for one in memory)}
    handles: list[Artist] = [Patch(color=colour, label=kind) for kind, colour in shown.items()]
    if any(one.margin for one in memory):
        handles.append(Patch(label="margin", **_MARGIN))
    handles.append(Line2D([], [], label="capacity", color=INK, linestyle="", **_UPRIGHT))
    _legend(axes, handles)


def _lanes(timeline: Sequence[Span]) -> _Lanes:
    """The spans of every lane, in as many rows as it takes that none hides another."""
    lanes: _Lanes = {span.lane: [] for span in timeline}
    for span in sorted(timeline, key=lambda one: one.begin):
        rows = lanes[span.lane]
        free = next((row for row in rows if row[-1].end <= span.begin + _AT_ONCE), None)
        if free is None:
            rows.append([span])
        else:
            free.append(span)
    return lanes


def _draw_step(axes: Axes, prediction: Prediction, lanes: _Lanes) -> list[_Label]:
    """Who does what when, and the step's end."""
    step, spans = prediction.step, prediction.timeline
    last = max((step.likely, *(span.end for span in spans)))
    scale, unit, word = (1000, "ms", "milliseconds") if last < 2 else (1, "s", "seconds")
    likely, low, high = (_number(seconds * scale) for seconds in (step.likely, step.low, step.high))
    heading = f"One step: {likely} {unit} ({low} to {high}), bound by {prediction.bound}"
    basis = shorten([prediction.basis], limit=100)[0]
    dress(axes, title=heading, x=f"{word} since it began · known from {basis}")
    axes.set_xlim(0, (last or 1) * scale * 1.005)
    axes.axvline(step.likely * scale, zorder=3, **_END)
    colours = _colours(spans)
    _explain_step(axes, colours)
    _name_rows(axes, shorten(list(lanes)) or [""], [len(rows) for rows in lanes.values()] or [_FEWEST_ROWS])
    if not spans:
        axes.grid(visible=False)
        axes.text(0.5, 0.5, "no timeline", ha="center", va="center", color=MUTED, transform=axes.transAxes)
    rows = [row for lane in lanes.values() for row in lane]
    return [
        _draw_span(axes, place, span, colour=colours[span.name], scale=scale, unit=unit)
        for place, row in enumerate(rows)
        for span in row
    ]


def _draw_span(axes: Axes, row: int, span: Span, *, colour: str, scale: int, unit: str) -> _Label:
    length = (span.end - span.begin) * scale
    # A hair of its own colour keeps what is shorter than a pixel in sight.
    edge, width = ("white", 0.8) if length >= _THIN * axes.get_xlim()[1] else (colour, 0.6)
    look: _Look = {"facecolor": colour, "edgecolor": edge, "linewidth": width}
    bar = axes.barh(row, length, left=span.begin * scale, height=0.62, **look)[0]
    return _label(axes, bar, colour, (f"{span.name} {_number(length)} {unit}", span.name))


def _colours(spans: Sequence[Span]) -> dict[str, str]:
    """Of every name, in the order in which they come; again from the first where there are too many."""
    return dict(zip(dict.fromkeys(span.name for span in spans), itertools.cycle(_COLOURS), strict=False))


def _number(value: float) -> str:
    """With three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _name_rows(axes: Axes, names: Sequence[str], heights: Sequence[int]) -> None:
    """From top to bottom, with pale lines between them; a name may stand for several rows."""
    ends = list(itertools.accumulate(heights))
    middles = [end - (height + 1) / 2 for end, height in zip(ends, heights, strict=True)]
    axes.set_yticks(middles, names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(ends[-1] - 0.5, -0.5)
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color=PALE, linewidth=0.8, zorder=0.5)


def _explain_step(axes: Axes, colours: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = shorten(list(colours))
    handles = [Patch(color=colour, label=name) for name, colour in zip(names, colours.values(), strict=True)]
    _legend(axes, [*handles, Line2D([], [], label="end of the step", **_END)])


def _legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """Above the plot, right of its title."""
    letters = sum(len(str(handle.get_label())) + 5 for handle in handles)  # with room for the patch
    num_rows = math.ceil(letters / _LEGEND_ROOM)
    axes.legend(
        handles=handles,
        ncols=math.ceil(len(handles) / num_rows),
        fontsize=8,
        frameon=False,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.6,
        borderpad=0,
        labelcolor=INK,
        handlelength=1.2,
        handleheight=0.9,
        columnspacing=1.2,
    )


def _label(axes: Axes, bar: Rectangle, colour: str, choices: tuple[str, ...]) -> _Label:
    place = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
    ink = "white" if colour in _DARK else INK
    ground = {"facecolor": colour, "linewidth": 0, "pad": 1.5}  # hatching and marks make way for letters
    text = axes.text(*place, "", ha="center", va="center_baseline", fontsize=8, color=ink, bbox=ground)
    return _Label(bar=bar, text=text, choices=choices)


def _fit(label: _Label) -> None:
    """Shows the longest text that the bar has room for, or none."""
    room = label.bar.get_window_extent().width - _PADDING
    for choice in label.choices:
        label.text.set_text(choice)
        if label.text.get_window_extent().width <= room:
            return
    label.text.set_visible(False)
