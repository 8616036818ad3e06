"""The design of a product or distractor: its outline, how it is painted, and how it can be displayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from boxcrew.data.embedded.shelf.brush import Brush
from boxcrew.data.embedded.shelf.geometry import Outline

Traits = tuple[float, float, float, float]
"""Four numbers 0..1 that vary the shape of a design."""

Stance = Literal["stand", "hang", "flat"]
"""Standing on a support, hanging from a hook, or lying flat, seen from above."""


@dataclass(frozen=True)
class Design:
    """One appearance of a class. The outline alone determines the box, so boxes need no painting."""

    outline: Callable[[Traits], Outline]
    paint: Callable[[Brush, Outline, Traits], None]
    stances: tuple[Stance, ...]
    size: float  # usual length of the longer side, as a share of half an image
    _: KW_ONLY
    upright: bool = False  # drawn as seen from the front; rotated only a little


def span(trait: float, low: float, high: float) -> float:
    """Map a trait 0..1 to a number between `low` and `high`."""
    return low + (high - low) * trait
