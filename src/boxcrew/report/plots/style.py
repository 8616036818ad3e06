"""The common style of all plots. Figures are made without pyplot: no global state, and no window opens."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from boxcrew.data.images.drawing import class_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
INK = "#1f2933"
MUTED = "#7b8794"
PALE = "#e4e7eb"
ACCENT = "#0072b2"
PALE_ACCENT = "#c6dbef"
SHADES = "Blues"  # of counts and shares: one hue, white is zero
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def load_matplotlib() -> None:
    """Import matplotlib without its complaints about a home that cannot be written to: it then keeps its list
    of fonts in a temporary folder, where MPLCONFIGDIR points from then on.
    """
    if "matplotlib.font_manager" in sys.modules:
        return
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        importlib.import_module("matplotlib.font_manager")
    finally:
        log.setLevel(level)


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return an empty figure, sized in inches, whose layout leaves room for all texts."""
    load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    if title:
        figure.suptitle(title, fontsize=13, fontweight="bold", color=INK)
    return figure


def dress(axes: Axes, *, title: str = "", x: str = "", y: str = "", pad: float = 8) -> None:
    """Set title and labels, pale grid lines, and no frame. `pad`: points between axes and title."""
    axes.set_title(title, fontsize=10.5, fontweight="bold", color=INK, loc="left", pad=pad)
    axes.set_xlabel(x, fontsize=9, color=MUTED)
    axes.set_ylabel(y, fontsize=9, color=MUTED)
    axes.tick_params(colors=MUTED, labelsize=8.5, length=0)
    axes.grid(visible=True, color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(PALE)


def class_hex(label: int) -> str:
    """Return the color that the class also has in drawn images."""
    return "#{:02x}{:02x}{:02x}".format(*class_color(label))


def shorten(name: str, limit: int = 22) -> str:
    """Return the name, cut to `limit` letters."""
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, and create its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # A class name in a script that the font lacks is drawn as boxes; the plot is still useful.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, format="png", dpi=DPI)
