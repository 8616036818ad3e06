"""Telling classes apart: of pictures, of rows of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from boxcrew.core.config import chosen_by
from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Losses
from boxcrew.data.examples.example_set import Examples, Kind
from boxcrew.data.loading.example_loader import Changes, in_turn
from boxcrew.evaluate.advice import (
    ADD_EXAMPLES,
    Advice,
    contradicted_labels,
    generalization_gap,
    noisy_labels,
    rare_class_missed,
)
from boxcrew.evaluate.classification import ClassificationEvaluation, evaluate_classes
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.evaluate.label_noise import label_noise
from boxcrew.nets.class_losses import Summed, cross_entropy, focal_loss, mixed_loss
from boxcrew.nets.classifier import Classifier
from boxcrew.nets.regularise import l1, limit_norms_
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.base import TASKS, Task, TaskConfig
from boxcrew.tasks.data import DataFacts, EvalOptions, ImageSheets, OpenOptions, ScoreTable
from boxcrew.tasks.example_data import ExampleConfig, ExampleData
from boxcrew.tasks.example_drawing import draw_examples
from boxcrew.tasks.net_configs import CnnConfig, NetConfig, net_config_class
from boxcrew.tasks.quick_training import BATCH, out_of_fold

FOLDS, FOLD_EPOCHS = 3, 4  # of the search for wrong labels
SHOWN = 32  # examples of an examination that are kept to be looked at


class ClassesConfig(ExampleConfig):
    """How classes are learnt, and networks kept from learning their examples by heart."""

    hoisted = ("net", "augment")
    metrics: ClassVar[Mapping[str, bool]] = {
        "accuracy": True,
        "accuracy5": True,
        "val_loss": False,
        "F1": True,
        "ECE": False,
    }

    smoothing: float = Field(default=0.0, ge=0, lt=1)  # of labels
    focal: float = Field(default=0.0, ge=0)  # gamma: how little samples count that are sure already
    class_weights: bool = False  # whether rare classes count as much as frequent ones
    balanced: bool = False  # whether rare classes are seen as often as frequent ones
    l1: float = Field(default=0.0, ge=0)
    max_norm: float | None = Field(default=None, gt=0)  # of the weights that come into a unit
    check_labels: bool = False  # whether wrong labels are looked for before training: a minute or two
    net: Annotated[SerializeAsAny[NetConfig], chosen_by("name", default="cnn", lookup=net_config_class)]
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _balances_once(self) -> Self:
        if self.class_weights and self.balanced:
            raise UsageError(
                "task.class_weights=true with task.balanced=true: rare classes would count twice over",
                advice="either of them alone",
            )
        return self

    @model_validator(mode="after")
    def _has_one_loss(self) -> Self:
        if self.focal and self.smoothing:
            raise UsageError(
                f"task.smoothing={self.smoothing:g} with task.focal={self.focal:g}: "
                "labels are not smoothed for the focal loss",
                advice="task.smoothing=0 or task.focal=0",
            )
        return self

    @property
    def title(self) -> str:
        return f"{self.name} by {self.net.name}"

    @property
    def balance(self) -> str:
        """What is not set already, in words that can be given as they are."""
        offered: list[str] = []
        if not self.class_weights and not self.balanced:  # either does what the other would
            offered += ["task.class_weights=true", "task.balanced=true"]
        if not self.focal:
            offered.append("task.focal=2 task.smoothing=0" if self.smoothing else "task.focal=2")
        if not offered:
            return ADD_EXAMPLES
        *others, last = offered
        return f"{', '.join(others)} or {last}" if others else last

    def penalty(self, net: nn.Module, weight: Tensor) -> dict[str, Tensor]:
        """Terms of a loss that keep weights small, for samples of that weight."""
        if not self.l1:
            return {}
        # Once a step, however many parts it has: each adds its part of the weight.
        weights = [parameter for parameter in net.parameters() if parameter.ndim > 1]
        return {"l1": self.l1 * l1(weights) * weight.detach()}


class ClassificationConfig(ClassesConfig):
    default_data = "products"
    folder = "classify"
    kinds = frozenset[Kind]({"pictures", "numbers"})

    name: Literal["classification"] = "classification"
    net: Annotated[SerializeAsAny[NetConfig], chosen_by("name", default="cnn", lookup=net_config_class)] = (
        CnnConfig()
    )


class ClassificationTask(Task):
    network_name = "net"

    def __init__(self, net: Classifier, config: ClassesConfig, counts: Tensor) -> None:
        """`counts` (C,): training examples of each class."""
        super().__init__()
        self.net = net
        self._config = config
        weights = counts.sum() / counts.clamp(min=1) / len(counts) if config.class_weights else None
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase in self.phases
        scores = self.net(batch.inputs)
        if "share" in batch.targets:
            total, weight = mixed_loss(lambda labels, share: self._loss(scores, labels, share), batch.targets)
        else:
            total, weight = self._loss(scores, batch.targets["labels"])
        terms = {"class": total, **self._config.penalty(self.net.body, weight)}
        return Losses(terms=terms, weight=weight.detach())

    def _loss(self, scores: Tensor, labels: Tensor, shares: Tensor | None = None) -> Summed:
        weights = self.get_buffer("class_weights") if self._config.class_weights else None
        if self._config.focal:
            return focal_loss(scores, labels, shares, gamma=self._config.focal, class_weights=weights)
        return cross_entropy(scores, labels, shares, smoothing=self._config.smoothing, class_weights=weights)

    def constrain(self) -> None:
        if self._config.max_norm is not None:
            limit_norms_(self.net.body, self._config.max_norm)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassData(ExampleData):
    """Of examples that belong to classes."""

    least_classes = 2

    config: ClassesConfig

    @classmethod
    def open(cls, config: TaskConfig, opening: OpenOptions) -> Self:
        found = super().open(config, opening)
        if opening.facts is None:  # else nothing is to be learnt
            found.config.augment.require_for(found.examples.kind)
        return found

    @classmethod
    def build(cls, config: TaskConfig, facts: DataFacts) -> Task:
        assert isinstance(config, ClassesConfig)
        counts = torch.tensor(facts["counts"], dtype=torch.float32)
        return ClassificationTask(config.net.build(facts), config, counts)

    @property
    def facts(self) -> DataFacts:
        found = super().facts
        return (
            found
            if "counts" in found
            else {**found, "counts": list(self.examples.counts(self.train).values())}
        )

    @property
    def metrics(self) -> Mapping[str, bool]:
        measured = dict(self.config.metrics)
        if len(self.examples.classes) <= 5:  # among the five likeliest it always is
            del measured["accuracy5"]
        return measured

    @property
    def is_balanced(self) -> bool:
        return self.config.balanced

    def changes(self) -> Changes:
        return self.config.augment.changes(self.examples.kind, self.examples.meaning.get("unknown", 0))

    def evaluate(self, task: Task, move: Callable[[Tensor], Tensor], options: EvalOptions) -> Evaluation:
        return self._evaluated(self.val, task, move, options)

    def _evaluated(
        self, examples: Examples, task: Task, move: Callable[[Tensor], Tensor], options: EvalOptions
    ) -> ClassificationEvaluation:
        begun, network_seconds = time.monotonic(), 0.0
        said: list[Tensor] = []
        labels: list[Tensor] = []
        skipped: tuple[str, ...] = ()
        first: Tensor | None = None
        for batch in in_turn(examples, batch=options.batch, workers=options.workers):
            asked = time.perf_counter()
            with torch.inference_mode():
                said.append(task.network(move(batch.inputs)).float().softmax(dim=1).cpu())
            network_seconds += time.perf_counter() - asked
            labels.append(batch.labels)
            skipped += batch.skipped
            first = batch.inputs[:SHOWN] if first is None else first
            if options.progress:
                options.progress(sum(map(len, labels)))
        assert first is not None
        probabilities, true = torch.cat(said).numpy(), torch.cat(labels).numpy()
        return ClassificationEvaluation(
            report=evaluate_classes(probabilities, true, self.examples.classes),
            probabilities=probabilities,
            labels=true,
            first=first,
            milliseconds=1000 * network_seconds / len(true),
            seconds=time.monotonic() - begun,
            skipped=skipped,
        )

    def advice(self, task: Task, *, from_scratch: bool) -> tuple[Advice, ...]:
        found = super().advice(task, from_scratch=from_scratch)
        if not self.config.check_labels:
            return found
        steps = max(100, min(600, FOLD_EPOCHS * len(self.train) // BATCH))
        build = partial(self.config.net.build, self.facts)
        said, was_read = out_of_fold(self.train, build, folds=FOLDS, steps=steps)
        places = np.flatnonzero(was_read)
        suspected = noisy_labels(
            label_noise(said[places], self.train.labels[places]), lambda place: self.train.key(places[place])
        )
        return (*found, *suspected)

    def advice_after(
        self, task: Task, move: Callable[[Tensor], Tensor], options: EvalOptions, last: Evaluation
    ) -> tuple[Advice, ...]:
        """Whether it knows what it learnt from better than what is new, by as many examples of both; which
        class it has not learnt, for it is rare; and whether labels contradict what it knows.
        """
        assert isinstance(last, ClassificationEvaluation)
        learnt = self._evaluated(self.train.some(len(self.val)), task, move, options).report.numbers
        new = last.report.numbers
        too_well = generalization_gap(
            train_loss=learnt["loss"],
            val_loss=new["loss"],
            train_accuracy=learnt["accuracy"],
            val_accuracy=new["accuracy"],
        )
        rare = rare_class_missed(
            list(self.class_counts().values()), last.report.classes, remedy=self.config.balance
        )
        doubted_objects = contradicted_labels(
            last.probabilities,
            last.labels,
            key=None if last.skipped else self.val.key,  # whose places are not those of the answers
            remedy="" if self.config.check_labels else "for training: task.check_labels=true",
        )
        return (*too_well, *rare, *doubted_objects)

    def draw_batch(self, batch: Batch, num: int) -> ImageSheets:
        if self.examples.kind != "pictures":
            return {}
        shown = draw_examples(
            batch.inputs[:num], batch.targets["labels"][:num].numpy(), self.examples.classes
        )
        return {"train/after_augmentation": shown}

    def draw_detections(self, evaluation: Evaluation, num: int) -> ImageSheets:
        if self.examples.kind != "pictures":
            return {}
        assert isinstance(evaluation, ClassificationEvaluation)
        classes, first = self.examples.classes, evaluation.first[:num]
        said, labels = evaluation.probabilities[: len(first)], evaluation.labels[: len(first)]
        return {
            "val/labels": draw_examples(first, labels, classes),
            "val/predictions": draw_examples(first, said.argmax(axis=1), classes, said.max(axis=1)),
        }

    @classmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        rows = [_row("all", report["numbers"], sum(one["num_examples"] for one in report["classes"]))]
        rows += [_row(one["name"], one, one["num_examples"]) for one in report["classes"]]
        return ScoreTable(columns=("class", "examples", "precision", "recall", "F1"), rows=tuple(rows))


def _row(name: str, numbers: Mapping[str, Any], count: int) -> tuple[str, ...]:
    return (name, str(count), *(f"{numbers[key]:.3f}" for key in ("precision", "recall", "F1")))


@TASKS.register("classification")
class ClassificationData(ClassData):
    config_class = ClassificationConfig
