"""What every examination says, whatever was examined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Evaluation(ABC):
    """What an examination found."""

    seconds: float  # the whole took
    skipped: tuple[str, ...]  # samples that could not be read, in words

    @property
    @abstractmethod
    def numbers(self) -> Mapping[str, float]:
        """Those that the settings name among the metrics, and others."""

    @abstractmethod
    def sentence(self) -> str:
        """The most important of them."""

    def by_class(self) -> Mapping[str, float]:
        """Others, for curves over the run."""
        return {}

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All, with `numbers`, `classes` (a list) and `milliseconds` (of a sample, by stage) among it."""

    def show(self, writer: SummaryWriter, step: int) -> None:  # noqa: B027, most have nothing
        """What TensorBoard can draw besides numbers and pictures."""
