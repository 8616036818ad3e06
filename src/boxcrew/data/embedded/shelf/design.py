"""The design of a product or distractor: its outline, how it is painted, and how it can be displayed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from boxcrew.data.embedded.shelf.brush import Brush
from boxcrew.data.embedded.shelf.geometry import Outline

Traits = Sequence[float]
"""Four numbers 0..1 that vary the shape of a design."""

Stance = Literal["stand", "hang", "flat"]
"""Standing on a support, hanging from a hook, or lying flat, seen from above."""

Drawing = Generator[Outline, Brush, None]
"""A drawing in two steps, like a pytest fixture: it yields its outline, gets a brush for it, and paints."""


@dataclass(frozen=True)
class Design:
    """One appearance of a class. The outline alone determines the box, so boxes need no painting."""

    draw: Callable[[Traits], Drawing]
    stances: tuple[Stance, ...]
    size: float  # usual length of the longer side, as a share of half an image
    upright: bool  # drawn as seen from the front; rotated only a little

    def outline(self, traits: Traits) -> Outline:
        return next(self.draw(traits))

    def paint(self, brush: Brush, traits: Traits) -> None:
        drawing = self.draw(traits)
        next(drawing)
        with suppress(StopIteration):
            drawing.send(brush)


def design(
    *stances: Stance, size: float, upright: bool = False
) -> Callable[[Callable[[Traits], Drawing]], Design]:
    """Make a `Design` of the drawing that is decorated."""
    return lambda draw: Design(draw, stances, size, upright)


def span(trait: float, low: float, high: float) -> float:
    """Map a trait 0..1 to a number between `low` and `high`."""
    return low + (high - low) * trait
