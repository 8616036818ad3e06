"""What a product or distractor is made of: an outline, a way to paint it, and how it can be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from boxcrew.data.embedded.shelf.brush import Brush
from boxcrew.data.embedded.shelf.geometry import Outline

Traits = tuple[float, float, float, float]
"""Numbers 0..1 that vary the shape of a design."""

Stance = Literal["stand", "hang", "flat"]
"""On a support, from a hook, or lying, seen from above."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """One way a class can look. The outline alone settles the box, so boxes cost no painting."""

    outline: Callable[[Traits], Outline]
    paint: Callable[[Brush, Outline, Traits], None]
    stances: tuple[Stance, ...]
    size: float = 0.6  # usual length of the longer side, of half an image
    upright: bool = False  # drawn as seen from the front; turned only a little


def span(trait: float, low: float, high: float) -> float:
    """The trait as a number between two."""
    return low + (high - low) * trait
