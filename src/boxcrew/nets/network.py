"""What every network that is trained says about itself, so that weights made elsewhere can be put into it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import ClassVar

from torch import nn

from boxcrew.nets.layers import Normalize


class Network(nn.Module, ABC):
    """A network, and the names of what it tells apart, if anything."""

    background_rows: ClassVar[int] = 0  # before the classes' rows in each block of a class tensor

    def __init__(self, classes: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.classes = classes

    def class_tensors(self) -> Mapping[str, int]:
        """State names of the tensors with a row for each class, and how many blocks of rows each has: what
        lets another set's network be carried over.
        """
        return {}

    def backbone_prefix(self) -> str | None:
        """State names beginning so belong to the feature extractor, which pretrained weights fill; None:
        there is none.
        """
        return None

    def normalization(self) -> Normalize | None:
        """What brings pixels into the range that weights were trained on; None: no pixels, or their own."""
        return None

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of 0..1 pixels that published weights for the backbone want."""
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
