"""A classifier's examination on one split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from boxcrew.core.types import Ints
from boxcrew.evaluate.classification import ClassificationReport, Probabilities
from boxcrew.evaluate.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassificationEvaluation(Evaluation):
    report: ClassificationReport
    probabilities: Probabilities
    labels: Ints  # (N,) of the same examples
    first: Tensor  # inputs of the first of them, to be looked at
    milliseconds: float  # of the network, for an example
    seconds: float
    skipped: tuple[str, ...]

    @property
    def numbers(self) -> Mapping[str, float]:
        """`loss` is called `val_loss`: beside it in the run's numbers stands that of training."""
        return {"val_loss" if name == "loss" else name: value for name, value in self.report.numbers.items()}

    def sentence(self) -> str:
        count = sum(one.num_examples for one in self.report.classes)
        numbers = self.report.numbers
        return f"accuracy {numbers['accuracy']:.4f}  loss {numbers['loss']:.3f}, {count} examples"

    def by_class(self) -> Mapping[str, float]:
        return {f"F1/{one.name}": one.F1 for one in self.report.classes if one.num_examples}

    def to_json(self) -> dict[str, Any]:
        return {
            "milliseconds": {"network": self.milliseconds},
            **self.report.to_json(),
            "numbers": dict(self.numbers),
        }
