"""The base class of every network that is trained: what weight loading must know about it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from boxcrew.nets.layers import Normalize


class Network(nn.Module, ABC):
    """A network with the names of its classes and the `meaning` of its tokens, if it has any.
    `meaning` is described in `data/examples/alphabet.py`.
    """

    background_rows: ClassVar[int] = 0  # that precede the rows of the classes in each block of a class tensor
    full_backbone: ClassVar[bool] = False  # whether it has all layers of a timm network but the classifier

    def __init__(self, classes: tuple[str, ...] = (), meaning: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.classes = classes
        self.meaning = meaning or {}

    def class_tensors(self) -> Mapping[str, int]:
        """Return the state names of tensors with a row for each class, and how many blocks of rows each has.
        Fine-tuning uses it to keep the rows of classes that two data sets share.
        """
        return {}

    def token_tensors(self) -> tuple[str, ...]:
        """Return the state names of tensors with a row for each token, which are kept by character."""
        return ()

    def backbone_prefix(self) -> str | None:
        """Return the prefix of state names of the feature extractor, for pretrained weights; None if none."""
        return None

    def normalization(self) -> Normalize | None:
        """Return the layer that normalizes pixels; None if there is none."""
        return None

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and deviation of the 0..1 pixels that published weights of the backbone expect."""
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
