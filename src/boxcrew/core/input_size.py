"""The size of a detector's input as a value: a square, a short side with a limit, or several of these.

320              a square of 320 pixels
600:1000         the short side of an image becomes 600 pixels, but its long side at most 1000
256,320,384      one of several for each training step; evaluation and prediction use the largest
480,600:1000     several short sides
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

Extent = tuple[int, int]
"""(width, height) in pixels."""

LEAST, MOST = 64, 2048  # pixels of a side
MULTIPLE = 32  # sides of an input that is not square are rounded up to this, the stride of most backbones


@dataclass(frozen=True)
class InputSize:
    """The size of the network's input for images of any size."""

    sides: tuple[int, ...]  # ascending, without repetition; of a square, or the short side of an image
    limit: int | None = None  # of the long side, pixels; None: the input is a square

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read what users write; `ValueError` if it is no size."""
        if isinstance(value, cls):
            return value
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        text = re.sub(r"\s", "", text)
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,6}(,\d{1,6})*(:\d{1,6})?", text):
            raise ValueError("must be a size such as 320, several such as 256,320, or short:long as 600:1000")
        sides, _, limit = text.partition(":")
        size = cls(tuple(sorted({int(side) for side in sides.split(",")})), int(limit) if limit else None)
        if not all(LEAST <= side <= MOST for side in (*size.sides, size.limit or MOST)):
            raise ValueError(f"sides must be from {LEAST} to {MOST} pixels")
        if size.limit is not None and size.limit < size.sides[-1]:
            raise ValueError("the long side must not be smaller than the short side")
        return size

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(cls.plain)
        )

    @property
    def square(self) -> int:
        """The side of the one square that the input always is; an error if it can have other sizes."""
        assert self.limit is None, self
        (side,) = self.sides
        return side

    @property
    def largest(self) -> InputSize:
        """The size of evaluation and prediction, and the one that memory is planned for."""
        return self.at(-1)

    def at(self, index: int) -> InputSize:
        """Return the size number `index` alone."""
        return replace(self, sides=(self.sides[index],))

    def scaled(self, image: Extent) -> Extent:
        """Return how large an image becomes at the largest size before it is padded; its proportions are kept
        to the whole pixel unless the input is a square, which this returns.
        """
        side = self.sides[-1]
        if self.limit is None:
            return side, side
        short, long = sorted(image)
        ratio = min(side / short, self.limit / long)
        width, height = (max(1, round(length * ratio)) for length in image)
        return width, height

    def canvas(self, images: Iterable[Extent]) -> Extent:
        """Return the smallest input, at the largest size, that has room for each of these images."""
        if self.limit is None:
            return self.scaled((1, 1))
        widths, heights = zip(*map(self.scaled, images), strict=True)
        return _round_up(max(widths)), _round_up(max(heights))

    def plain(self) -> int | str:
        """Return the size as a plain value for YAML and JSON, which `parse` reads."""
        return self.square if self.limit is None and len(self.sides) == 1 else str(self)

    def describe(self) -> str:
        """Return the size in words, such as `256 px`."""
        sides = " or ".join(map(str, self.sides))
        return f"{sides} px" if self.limit is None else f"{sides} px on the short side, {self.limit} at most"

    def __str__(self) -> str:
        return ",".join(map(str, self.sides)) + ("" if self.limit is None else f":{self.limit}")


def _round_up(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE
