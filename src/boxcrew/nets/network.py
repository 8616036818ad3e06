"""What every network that is trained says about itself, so that weights made elsewhere can be put into it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from boxcrew.nets.layers import Normalize


class Network(nn.Module, ABC):
    """A network, the names of what it tells apart, if anything, and the `meaning` of tokens, if it reads any
    (`data/examples/alphabet.py`).
    """

    background_rows: ClassVar[int] = 0  # before the classes' rows in each block of a class tensor
    whole_backbone: ClassVar[bool] = False  # goes on to what a published network gives its classifier

    def __init__(self, classes: tuple[str, ...] = (), meaning: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.classes = classes
        self.meaning = meaning or {}

    def class_tensors(self) -> Mapping[str, int]:
        """State names of the tensors with a row for each class, and how many blocks of rows each has: what
        lets another set's network be carried over.
        """
        return {}

    def token_tensors(self) -> tuple[str, ...]:
        """State names of the tensors with a row for each token: to be carried over by their characters."""
        return ()

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
