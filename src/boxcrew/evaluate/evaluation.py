"""The result that every evaluation has, whatever the task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from boxcrew.core.errors import ModelError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def diverged(problem: str) -> ModelError:
    """Return the error of a network whose outputs are not finite."""
    return ModelError(problem, advice="training has diverged: try a lower optim.rate=, or optim.clip=")


class Evaluation(ABC):
    """The result of evaluating a network on one split."""

    seconds: float  # that the evaluation took
    skipped: tuple[str, ...]  # a sentence for each sample that could not be read

    @property
    @abstractmethod
    def numbers(self) -> Mapping[str, float]:
        """The metrics that the settings can name, and others."""

    @abstractmethod
    def sentence(self) -> str:
        """Return the most important numbers as one line."""

    def by_class(self) -> Mapping[str, float]:
        """Return one number for each class, to be plotted over the run."""
        return {}

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return everything, with `numbers`, `classes` (a list) and `milliseconds` (per sample, by stage)."""

    def show(self, writer: SummaryWriter, step: int) -> None:  # noqa: B027, most have nothing
        """Write to TensorBoard what is neither a number nor an image."""
