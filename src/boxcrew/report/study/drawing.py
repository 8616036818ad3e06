"""Scales and marks of the plots of a study: SVG drawn here, each mark with its values in a tooltip."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from boxcrew.report.doctor.markup import Html, element
from boxcrew.report.plots.style import ACCENT, INK, PALE, shorten

BEST = "#d55e00"
COMPLETE = ACCENT
EARLY = "#9fbdd4"
RECIPE = INK
FAILED = "#7b8794"
_TICKS = 5
_TAIL = 2.0  # a scale goes so many times the middle 80 % of the values beyond these


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A scale along a side: numbers from low to high, or names one after the other."""

    low: float
    high: float
    log: bool = False
    whole: bool = False  # whether only integers are marked
    names: tuple[str, ...] = ()

    def share(self, value: float) -> float:
        """Return the place of a value as 0..1; one outside is put at the nearer end."""
        low, high, value = (math.log(each) if self.log else each for each in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Return a few round values and how they are written."""
        if self.names:
            return [(float(i), shorten(name, 18)) for i, name in enumerate(self.names)]
        values = _powers(self.low, self.high) if self.log else _round_values(self.low, self.high)
        return [(value, f"{value:.6g}") for value in values if not self.whole or value == round(value)]


def values_scale(values: Sequence[float], *, higher_is_better: bool) -> Scale:
    """Return a scale for results, with some room. Results that are far worse than most lie at its end."""
    if not values:
        return Scale(low=0.0, high=1.0)
    sorted_ = sorted(values)
    low, high = (sorted_[round(share * (len(sorted_) - 1))] for share in (0.1, 0.9))
    tail = _TAIL * (high - low)
    if higher_is_better:
        low, high = max(sorted_[0], low - tail), sorted_[-1]
    else:
        low, high = sorted_[0], min(sorted_[-1], high + tail)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low=low - room, high=high + room)


def choices_scale(choices: Sequence[Any]) -> Scale:
    """Return a scale with a place for each choice."""
    return Scale(low=-0.5, high=len(choices) - 0.5, names=tuple(map(text, choices)))


def place_of(choice: object, choices: Sequence[Any]) -> float | None:
    """Return the place of a choice on its scale; True and 1 are different choices."""
    words = [json.dumps(each) for each in choices]
    word = json.dumps(choice)
    return float(words.index(word)) if word in words else None


def text(value: object) -> str:
    """Return the value of a setting as it is read."""
    return (
        f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    )


@dataclass(frozen=True, kw_only=True)
class PlotFrame:
    """The inside of a plot, in units of its SVG."""

    width: float
    height: float
    x: Scale
    y: Scale
    left: float = 52
    right: float = 14
    top: float = 12
    bottom: float = 40

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Return where values of both scales meet."""
        across = self.left + self.x.share(x) * (self.width - self.left - self.right)
        up = self.height - self.bottom - self.y.share(y) * (self.height - self.top - self.bottom)
        return across, up

    def axes(self, x: str, y: str) -> list[Html]:
        """Return grid lines, numbers and titles of both sides."""
        bottom, right = self.height - self.bottom, self.width - self.right
        marks = []
        for value, label in self.y.ticks():
            _, place = self.point(self.x.low, value)
            marks.append(_line((self.left, place), (right, place), PALE))
            marks.append(label_at(self.left - 7, place + 4, label, anchor="end"))
        for value, label in self.x.ticks():
            place, _ = self.point(value, self.y.low)
            marks.append(_line((place, self.top), (place, bottom), PALE))
            marks.append(label_at(place, bottom + 16, label, anchor="middle"))
        marks.append(label_at((self.left + right) / 2, self.height - 6, x, anchor="middle", class_="title"))
        middle = (self.top + bottom) / 2
        turned = f"rotate(-90 11 {middle:.1f})"
        marks.append(label_at(11, middle, y, anchor="middle", class_="title", transform=turned))
        return marks

    def svg(self, marks: Sequence[Html], name: str) -> Html:
        return svg(self.width, self.height, marks, name)


def svg(width: float, height: float, marks: Sequence[Html], name: str) -> Html:
    """Return a drawing with a name for those who cannot see it."""
    style = f"max-width:{width * 1.15:.0f}px"
    view = f"0 0 {width:g} {height:g}"
    return element(
        "svg", *marks, class_="chart study", viewbox=view, role="img", aria_label=name, style=style
    )


def dot(place: tuple[float, float], color: str, title: str, *, radius: float = 3.6) -> Html:
    """Return a point with a tooltip."""
    x, y = _rounded(place)
    return element("circle", element("title", title), cx=x, cy=y, r=radius, fill=color, stroke="#fff")


def diamond(place: tuple[float, float], color: str, title: str) -> Html:
    """Return the mark of the recipe's own settings."""
    x, y = place
    corners = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in ((0, -6), (6, 0), (0, 6), (-6, 0)))
    return element("polygon", element("title", title), points=corners, fill=color, stroke="#fff")


def cross(place: tuple[float, float], color: str, title: str) -> Html:
    """Return the mark of a trial that failed."""
    x, y = place
    path = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
    return element("path", element("title", title), d=path, stroke=color, stroke_width=2, fill="none")


def path(places: Sequence[tuple[float, float]], color: str, *, width: float = 1.4, title: str = "") -> Html:
    """Return a line through places, with a tooltip."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    tooltip = [element("title", title)] if title else []
    return element("path", *tooltip, d=f"M{steps}", stroke=color, stroke_width=width, fill="none")


def label_at(
    x: float,
    y: float,
    text_: str,
    *,
    anchor: str = "start",
    class_: str = "tick",
    transform: str | None = None,
) -> Html:
    """Return a label of a plot at a point."""
    x, y = _rounded((x, y))
    return element("text", text_, x=x, y=y, text_anchor=anchor, class_=class_, transform=transform)


def _line(start: tuple[float, float], end: tuple[float, float], color: str) -> Html:
    (x1, y1), (x2, y2) = _rounded(start), _rounded(end)
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color)


def _rounded(place: tuple[float, float]) -> tuple[float, float]:
    return round(place[0], 1), round(place[1], 1)


def _round_values(low: float, high: float) -> list[float]:
    """Return at most six multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= _TICKS)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Return the ticks of a logarithmic axis: powers of ten, and where these are few more between them."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        values = [float(f"{factor}e{each}") for each in exponents for factor in factors]
        inside = [value for value in values if low * 0.999 <= value <= high * 1.001]
        if len(inside) > 2:
            break
    if len(inside) < 2:
        return _round_values(low, high)
    return inside[:: -(-len(inside) // _TICKS)]
