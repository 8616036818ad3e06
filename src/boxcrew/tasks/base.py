"""What is trained: a network, its loss, and how it is judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from boxcrew.core.types import Batch, Losses


class Task(nn.Module, ABC):
    """The loss is the forward, so that whatever wraps a module for distributed work sees it."""

    phases: ClassVar[tuple[str, ...]] = ("train",)

    @abstractmethod
    def forward(self, batch: Batch, phase: str = "train") -> Losses: ...
