"""The classification task, for images and rows of a table; its parts serve sequences too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, Literal, Self

import numpy as np
import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn
from typing_extensions import TypeVar

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Losses
from boxcrew.data.examples.example_set import InputKind
from boxcrew.data.loading.example_samples import Augmentation, eval_example_batches
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
from boxcrew.nets.classifier import ClassifierNet
from boxcrew.nets.network import Network
from boxcrew.nets.regularization import l1, limit_norms_
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.base import TASKS, Task
from boxcrew.tasks.data import EvalOptions, ImageSheets, OpenOptions, ScoreTable, ToDevice
from boxcrew.tasks.drawing import draw_examples
from boxcrew.tasks.example_data import ExampleConfig, ExampleData
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.net_configs import CnnConfig, NetConfig, net_chosen
from boxcrew.tasks.quick_training import BATCH, out_of_fold

FOLDS, FOLD_EPOCHS = 3, 4  # of the cross-validation that looks for wrong labels
SHOWN = 32  # examples of an evaluation whose inputs are kept to be shown


class ClassTaskConfig(ExampleConfig):
    """The settings of training with classes, regularization among them."""

    hoisted = ("net", "augment")
    metrics: ClassVar[Mapping[str, bool]] = {
        "accuracy": True,
        "accuracy5": True,
        "val_loss": False,
        "F1": True,
        "ECE": False,
    }

    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing."""
    focal: float = Field(default=0.0, ge=0)
    """Gamma of the focal loss: how little samples count that are certain already."""
    class_weights: bool = False
    """Weigh classes so that rare ones count as much as frequent ones."""
    balanced: bool = False
    """Draw samples so that rare classes come as often as frequent ones."""
    l1: float = Field(default=0.0, ge=0)
    """Weight of the L1 penalty on parameters."""
    max_norm: float | None = Field(default=None, gt=0)
    """Largest norm of the weights that enter a unit."""
    check_labels: bool = False
    """Look for wrong labels before training, which takes a minute or two."""
    net: Annotated[SerializeAsAny[NetConfig], net_chosen("cnn")]
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.class_weights and self.balanced:
            raise UsageError(
                "task.class_weights=true with task.balanced=true: rare classes would count twice",
                advice="set only one of them",
            )
        if self.focal and self.smoothing:
            raise UsageError(
                f"task.smoothing={self.smoothing:g} with task.focal={self.focal:g}: "
                "the focal loss does not smooth labels",
                advice="task.smoothing=0 or task.focal=0",
            )
        return self

    @property
    def title(self) -> str:
        return f"{self.name} by {self.net.name}"

    @property
    def balance(self) -> str:
        """The remedies that are not set yet, as settings that can be typed."""
        offered: list[str] = []
        if not self.class_weights and not self.balanced:
            offered += ["task.class_weights=true", "task.balanced=true"]
        if not self.focal:
            offered.append("task.focal=2 task.smoothing=0" if self.smoothing else "task.focal=2")
        if not offered:
            return ADD_EXAMPLES
        *first, last = offered
        return f"{', '.join(first)} or {last}" if first else last

    def penalty(self, net: nn.Module, weight: Tensor) -> dict[str, Tensor]:
        """Return the loss terms that keep weights small, for samples of a total `weight`."""
        if not self.l1:
            return {}
        # Scaled by the weight, so that the parts of a split step add up to one penalty.
        weights = [parameter for parameter in net.parameters() if parameter.ndim > 1]
        return {"l1": self.l1 * l1(weights) * weight.detach()}


class ClassificationConfig(ClassTaskConfig):
    default_data = "products"
    folder = "classify"
    predicts = "classes"
    kinds = frozenset[InputKind]({"images", "numbers"})

    name: Literal["classification"] = "classification"
    net: Annotated[SerializeAsAny[NetConfig], net_chosen("cnn")] = CnnConfig()


class RegularizedTask(Task):
    """A task with the max-norm limit of its settings."""

    network_name = "net"

    def __init__(self, net: Network, config: ClassTaskConfig) -> None:
        super().__init__()
        self.net = net
        self._config = config

    def constrain(self) -> None:
        if self._config.max_norm is not None:
            limit_norms_(self.net, self._config.max_norm)


class ClassificationTask(RegularizedTask):
    def __init__(self, net: ClassifierNet, config: ClassTaskConfig, counts: Tensor) -> None:
        """Build the task; `counts` (C,) are the training examples of each class."""
        super().__init__(net, config)
        weights = counts.sum() / counts.clamp(min=1) / len(counts) if config.class_weights else None
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase in self.phases
        scores = self.net(batch.inputs)
        if "mix_weights" in batch.targets:
            total, weight = mixed_loss(
                lambda labels, weights: self._loss(scores, labels, weights), batch.targets
            )
        else:
            total, weight = self._loss(scores, batch.targets["labels"])
        terms = {"class": total, **self._config.penalty(self.net, weight)}
        return Losses(terms=terms, weight=weight.detach())

    def _loss(self, scores: Tensor, labels: Tensor, sample_weights: Tensor | None = None) -> Summed:
        weights = self.get_buffer("class_weights") if self._config.class_weights else None
        if self._config.focal:
            return focal_loss(scores, labels, sample_weights, gamma=self._config.focal, class_weights=weights)
        return cross_entropy(
            scores, labels, sample_weights, smoothing=self._config.smoothing, class_weights=weights
        )


ClassesConfigT = TypeVar("ClassesConfigT", bound=ClassTaskConfig, default=Any)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassTaskData(ExampleData[ClassesConfigT], Generic[ClassesConfigT]):
    """Examples that belong to classes: their losses, evaluation and advice."""

    least_classes = 2

    @classmethod
    def open(cls, config: ClassesConfigT, options: OpenOptions, facts: ExampleFacts | None = None) -> Self:
        opened = super().open(config, options, facts)
        if facts is None:  # for training
            config.augment.require_for(opened.examples.kind)
        return opened

    @classmethod
    def build(cls, config: ClassesConfigT, facts: ExampleFacts) -> Task:
        counts = torch.tensor(facts.counts, dtype=torch.float32)
        return ClassificationTask(config.net.build(facts), config, counts)

    @property
    def facts(self) -> ExampleFacts:
        counts = self.known.counts or tuple(self.class_counts().values())
        return replace(self.known, counts=counts)

    @property
    def metrics(self) -> Mapping[str, bool]:
        measured = dict(self.config.metrics)
        if len(self.examples.classes) <= 5:  # it would always be 1
            del measured["accuracy5"]
        return measured

    @property
    def is_balanced(self) -> bool:
        return self.config.balanced

    def augmentation(self) -> Augmentation:
        return self.config.augment.augmentation(self.examples.kind, self.examples.encoding.get("unknown", 0))

    def evaluate(self, task: Task, move: ToDevice, options: EvalOptions) -> Evaluation:
        start, network_seconds = time.monotonic(), 0.0
        probabilities: list[Tensor] = []
        labels: list[Tensor] = []
        skipped: tuple[str, ...] = ()
        first: Tensor | None = None
        for batch in eval_example_batches(self.val, batch=options.batch, workers=options.workers):
            started = time.perf_counter()
            with torch.inference_mode():
                probabilities.append(task.network(move(batch.inputs)).float().softmax(dim=1).cpu())
            network_seconds += time.perf_counter() - started
            labels.append(batch.targets["labels"])
            skipped += batch.skipped
            first = batch.inputs[:SHOWN] if first is None else first
            if options.progress:
                options.progress(sum(map(len, labels)))
        assert first is not None
        predicted, true = torch.cat(probabilities).numpy(), torch.cat(labels).numpy()
        return ClassificationEvaluation(
            report=evaluate_classes(predicted, true, self.examples.classes),
            probabilities=predicted,
            labels=true,
            first=first,
            milliseconds={"network": 1000 * network_seconds / len(true)},
            seconds=time.monotonic() - start,
            skipped=skipped,
        )

    def advice(self, task: Task, *, from_scratch: bool) -> tuple[Advice, ...]:
        advice = super().advice(task, from_scratch=from_scratch)
        if not self.config.check_labels:
            return advice
        steps = max(100, min(600, FOLD_EPOCHS * len(self.train) // BATCH))
        build = partial(self.config.net.build, self.facts)
        probabilities, was_read = out_of_fold(self.train, build, folds=FOLDS, steps=steps)
        indices = np.flatnonzero(was_read)
        suspected = noisy_labels(
            label_noise(probabilities[indices], self.train.labels[indices]),
            lambda suspect: self.train.key(indices[suspect]),
        )
        return (*advice, *suspected)

    def advice_after(
        self, task: Task, move: ToDevice, options: EvalOptions, last: ClassificationEvaluation
    ) -> tuple[Advice, ...]:
        """Check for overfitting (on equally many training examples), missed rare classes and wrong labels."""
        some = replace(self, val=self.train.subset(len(self.val)))
        trained, validated = some.evaluate(task, move, options).numbers, last.numbers
        overfitting = generalization_gap(
            train_loss=trained["val_loss"],
            val_loss=validated["val_loss"],
            train_accuracy=trained["accuracy"],
            val_accuracy=validated["accuracy"],
        )
        counts = list(self.class_counts().values())
        rare = rare_class_missed(counts, last.report.classes, remedy=self.config.balance)
        wrong_labels = contradicted_labels(
            last.probabilities,
            last.labels,
            key=None if last.skipped else self.val.key,  # then predictions and examples do not line up
            remedy="" if self.config.check_labels else "for training: task.check_labels=true",
        )
        return (*overfitting, *rare, *wrong_labels)

    def render_batch(self, batch: Batch, num: int) -> ImageSheets:
        if self.examples.kind != "images":
            return {}
        labels = batch.targets["labels"][:num].numpy()
        return {"train/after_augmentation": draw_examples(batch.inputs[:num], labels, self.examples.classes)}

    def render_predictions(self, evaluation: ClassificationEvaluation, num: int) -> ImageSheets:
        if self.examples.kind != "images":
            return {}
        classes, first = self.examples.classes, evaluation.first[:num]
        predicted, labels = evaluation.probabilities[: len(first)], evaluation.labels[: len(first)]
        return {
            "val/labels": draw_examples(first, labels, classes),
            "val/predictions": draw_examples(first, predicted.argmax(axis=1), classes, predicted.max(axis=1)),
        }

    @classmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        rows = [_row("all", report["numbers"], sum(rates["num_examples"] for rates in report["classes"]))]
        rows += [_row(rates["name"], rates, rates["num_examples"]) for rates in report["classes"]]
        return ScoreTable(columns=("class", "examples", "precision", "recall", "F1"), rows=tuple(rows))


def _row(name: str, numbers: Mapping[str, Any], count: int) -> tuple[str, ...]:
    cells = (numbers[key] for key in ("precision", "recall", "F1"))
    return (name, str(count), *("-" if cell is None else f"{cell:.3f}" for cell in cells))


@TASKS.register("classification")
class ClassificationData(ClassTaskData[ClassificationConfig]):
    config_class = ClassificationConfig
