"""The contract of a task's data, all that training asks of it: opening, loading, evaluation and advice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self

from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Image, Target
from boxcrew.data.checks.problem import Problem
from boxcrew.data.config import DataConfig
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.advice import Advice, imbalance, missing_data, too_complex
from boxcrew.evaluate.detection.predictor import Predictor
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.tasks.base import Task, TaskConfig

DataFacts = Mapping[str, Any]
"""The facts about data that decide a network, as JSON values, among them `classes`. Stored with weights."""

ImageSheets = Mapping[str, Sequence[Image]]
"""Images to show together, by a name such as val/predictions."""

Prediction = Literal["boxes", "classes", "text", "images"]

ALL_SPLITS = "all"


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The options of opening data. `progress` is called with (done, total)."""

    data: DataConfig
    seed: int  # for splits, where the data has none
    workers: int = 1  # threads that may read it
    progress: Callable[[int, int], None] | None = None
    facts: DataFacts | None = None  # of an existing network, to evaluate it; None: the data decides, to train

    @property
    def evaluates_all(self) -> bool:
        """True if samples of every split are evaluated; never in training."""
        return self.facts is not None and self.data.val == ALL_SPLITS


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """The options of loading training samples."""

    batch: int  # samples per step, over all replicas
    seed: int
    workers: Workers = field(default_factory=Workers)
    places: Sequence[int] | None = None  # indices within a step of the samples to load here; None: all


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """The options of an evaluation. `progress` is called with the number of samples done."""

    batch: int
    workers: Workers
    progress: Callable[[int], None] | None = None


class Loader(Protocol):
    """An endless source of batches. The samples of a step depend on the seed alone."""

    def batches(self, start_step: int = 0, num_steps: int | None = None) -> Iterator[Batch]: ...


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """The scores of an evaluation as text cells, for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class TaskData(ABC):
    """A kind of task with its settings and its opened data. Immutable."""

    config_class: ClassVar[type[TaskConfig]]
    config: TaskConfig

    @classmethod
    @abstractmethod
    def open(cls, config: TaskConfig, options: OpenOptions) -> Self:
        """Read and check all data once. Bad samples become `problems`; `DataError` if no sample is left."""

    @classmethod
    @abstractmethod
    def build(cls, config: TaskConfig, facts: DataFacts) -> Task:
        """Return the task with its network, initialized from torch's random numbers."""

    @classmethod
    @abstractmethod
    def predicts(cls, facts: DataFacts) -> Prediction:
        """Return what a network for data with these facts predicts."""

    @classmethod
    def predictor(
        cls,
        config: TaskConfig,
        task: Task,  # noqa: ARG003
        move: Callable[[Tensor], Tensor],  # noqa: ARG003
    ) -> Predictor:
        """Return what finds boxes by a task's network; `UsageError` if it predicts something else.
        `move` brings inputs to the device of the network.
        """
        raise UsageError(f"task={config.name}: this works for detectors only")

    @property
    @abstractmethod
    def facts(self) -> DataFacts: ...

    @property
    @abstractmethod
    def problems(self) -> tuple[Problem, ...]:
        """The defects that were found in the data."""

    @property
    @abstractmethod
    def num_train(self) -> int:
        """The number of training samples."""

    @property
    def num_examples(self) -> int:
        """The amount of training data: samples, or characters of running text."""
        return self.num_train

    @property
    def metrics(self) -> Mapping[str, bool]:
        """The metrics of the settings that can be measured on this data."""
        return self.config.metrics

    def require_learnable(self) -> None:  # noqa: B027, most always can
        """Raise `DataError` if there is nothing to learn from the data."""

    def adapted(self) -> tuple[Self, str]:
        """Return this with the settings that data decides, and a sentence about them, empty if none."""
        return self, ""

    def task(self) -> Task:
        return self.build(self.config, self.facts)

    def train_objects(self) -> tuple[list[Target], list[tuple[int, int]]] | None:
        """Return the objects and the (width, height) of each training image; None if there are no boxes."""
        return None

    def class_counts(self) -> Mapping[str, int]:
        """Return the number of training examples of each class; for detectors, of objects."""
        return {}

    def advice(self, task: Task, *, from_scratch: bool) -> tuple[Advice, ...]:
        """Return what is likely to spoil the training of a new task, and what to do about it."""
        counts = self.class_counts()
        num_parameters = sum(parameter.numel() for parameter in task.parameters())
        return (
            *missing_data(self.problems, self.num_train),
            *imbalance(list(counts.values()), list(counts), remedy=self.config.balance),
            *too_complex(
                num_parameters,
                self.num_examples,
                from_scratch=from_scratch,
                has_backbone=task.network.backbone_prefix() is not None,
            ),
        )

    def advice_after(
        self,
        task: Task,  # noqa: ARG002
        move: Callable[[Tensor], Tensor],  # noqa: ARG002
        options: EvalOptions,  # noqa: ARG002
        last: Evaluation,  # noqa: ARG002
    ) -> tuple[Advice, ...]:
        """Return advice about a trained task from its last evaluation; other arguments as in `evaluate`."""
        return ()

    @abstractmethod
    def headline(self) -> str:
        """Return the format of the data in brackets, and what it holds."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """Return a full description of the data as JSON values, among them `classes` and `problems`."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of the training data: equal for equal data, wherever it is stored."""

    @abstractmethod
    def describe(self, task: Task) -> str:
        """Return a sentence about the network."""

    @abstractmethod
    def largest_batch(self, num_samples: int) -> Batch:
        """Return a batch that is as large in every respect as any that training can meet."""

    @abstractmethod
    def cost_key(self) -> Mapping[str, Any]:
        """Return all that decides the cost of a step besides the settings and the network."""

    def keeping(self, num_bytes: int) -> Self:  # noqa: ARG002 - where everything is in memory anyway
        """Return the same data with a cache of that many bytes, in memory that loader processes share."""
        return self

    @property
    def kept_bytes(self) -> int | None:
        """The bytes that the cache holds; None if the data needs no cache."""
        return None

    @property
    def read_bytes(self) -> int:
        """The mean size of a sample after reading, in bytes; 0 if nothing has to be read."""
        return 0

    @property
    def most_read_bytes(self) -> int:
        """The largest size of a sample after reading, in bytes."""
        return 0

    @abstractmethod
    def loader(self, feed: LoaderOptions) -> Loader: ...

    @abstractmethod
    def evaluate(self, task: Task, move: Callable[[Tensor], Tensor], options: EvalOptions) -> Evaluation:
        """Evaluate a task, which is in evaluation mode. `move` brings inputs to its device."""

    def draw_batch(self, batch: Batch, num: int) -> ImageSheets:  # noqa: ARG002
        """Draw the first samples of a training batch."""
        return {}

    def draw_detections(self, evaluation: Evaluation, num: int) -> ImageSheets:  # noqa: ARG002
        """Draw the predictions for the first samples of an evaluation."""
        return {}

    @classmethod
    @abstractmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        """Return the scores of an evaluation's JSON."""
