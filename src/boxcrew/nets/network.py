"""The base class of every network that is trained: what weight loading must know about it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from boxcrew.nets.layers import Normalize
from boxcrew.nets.weights import State


@dataclass(frozen=True, kw_only=True)
class ClassRows:
    """The layout of a tensor with rows for C classes: it can be reshaped to (blocks, shared + C, each, …)."""

    blocks: int = 1
    shared: int = 0  # rows of each block before those of the classes, such as one for the background
    each: int = 1  # rows for each class, such as 4 offsets

    def count(self, num_classes: int) -> int:
        """Return the number of rows of the tensor."""
        return self.blocks * (self.shared + num_classes) * self.each


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassBackbone:
    """A second feature extractor of a network, which helps to tell classes apart."""

    prefix: str  # of its state names
    normalize: Normalize  # the layer that normalizes pixels for it


class Network(nn.Module, ABC):
    """A network with the names of its classes and the `encoding` of its tokens, if it has any.
    `encoding` is described in `data/examples/alphabet.py`.
    """

    full_backbone: ClassVar[bool] = False  # whether it has all layers of a timm network but the classifier
    not_transferred: ClassVar[tuple[str, ...]] = ()  # state names that fine-tuning does not take over

    def __init__(self, classes: tuple[str, ...] = (), encoding: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.classes = classes
        self.encoding = encoding or {}

    def class_tensors(self) -> Mapping[str, ClassRows]:
        """Return the state names of tensors with rows for each class, and where these rows are.
        Fine-tuning uses it to keep the rows of classes that two data sets share.
        """
        return {}

    def convert_foreign(self, state: State) -> State:
        """Return the state of another project's network under the names here, if it is a known one."""
        return state

    def token_tensors(self) -> tuple[str, ...]:
        """Return the state names of tensors with a row for each token, which are kept by character."""
        return ()

    def backbone_prefix(self) -> str | None:
        """Return the prefix of state names of the feature extractor, for pretrained weights; None if none."""
        return None

    def class_backbone(self) -> ClassBackbone | None:
        """Return the second feature extractor, for pretrained weights of its own; None if there is none."""
        return None

    def normalization(self) -> Normalize | None:
        """Return the layer that normalizes pixels; None if there is none."""
        return None

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and deviation of the 0..1 pixels that published weights of the backbone expect."""
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
