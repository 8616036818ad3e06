"""The result of an evaluation, whatever the task, and the rates of a class."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from boxcrew.core.errors import ModelError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def diverged(problem: str) -> ModelError:
    """Return the error of a network whose outputs are not finite."""
    return ModelError(problem, advice="training has diverged: try a lower optim.rate=, or optim.clip=")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Findings whose fields are JSON values, with finite numbers only."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class EvaluationReport(Report):
    """All that is measured about a network on one split."""

    numbers: Mapping[str, float]  # the metrics that the settings can name, and others; -1 where undefined
    classes: tuple[Any, ...]  # a dataclass for each class; empty if there are none


@dataclass(frozen=True, kw_only=True)
class ClassRates:
    """Precision, recall and F1 of one class. A rate is 0 if there is nothing to divide by."""

    name: str
    num_examples: int
    precision: float
    recall: float
    F1: float


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


UNDEFINED = -1.0
"""COCO's mark for a metric that nothing could be measured for; in JSON it is null."""


def mean_defined(values: Sequence[float | None]) -> float:
    """Return the mean of the values that are not None; `UNDEFINED` if all are."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else UNDEFINED


def is_measured(value: float) -> bool:
    """Return whether the value of a metric is one: finite, and not the mark for an undefined one."""
    return math.isfinite(value) and value != UNDEFINED


def numbers_to_json(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return the metrics for JSON, with null where nothing was measured."""
    return {name: value if is_measured(value) else None for name, value in numbers.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation(ABC):
    """The result of evaluating a network on one split."""

    report: EvaluationReport
    milliseconds: Mapping[str, float]  # of each stage, per sample
    seconds: float  # that the evaluation took
    skipped: tuple[str, ...]  # a sentence for each sample that could not be read

    @property
    def numbers(self) -> Mapping[str, float]:
        return self.report.numbers

    @abstractmethod
    def sentence(self) -> str:
        """Return the most important numbers as one line."""

    def by_class(self) -> Mapping[str, float]:
        """Return one number for each class, to be plotted over the run."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return everything that a run stores as `evaluation.json`."""
        numbers = numbers_to_json(self.numbers)
        return {"milliseconds": dict(self.milliseconds), **self.report.to_json(), "numbers": numbers}

    def show(self, writer: SummaryWriter, step: int) -> None:  # noqa: B027, most have nothing
        """Write to TensorBoard what is neither a number nor an image."""
