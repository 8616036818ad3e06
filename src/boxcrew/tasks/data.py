"""The contract of a task's data, by who asks: training, evaluation, reports; `TaskData` is all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self

from torch import Tensor
from typing_extensions import TypeVar

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Image
from boxcrew.data.checks.problem import Problem
from boxcrew.data.config import DataConfig
from boxcrew.data.detection.records import Records
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.advice import Advice, imbalance, missing_data, too_complex
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.runtime.exported import Exported
from boxcrew.runtime.predictor import DetectionPredictor
from boxcrew.tasks.base import PredictionKind, Task, TaskConfig
from boxcrew.tasks.exported import ExportedNetwork
from boxcrew.tasks.facts import DataFacts

ConfigT = TypeVar("ConfigT", bound=TaskConfig, default=Any)
FactsT = TypeVar("FactsT", bound=DataFacts, default=Any)
EvaluationT = TypeVar("EvaluationT", bound=Evaluation, default=Any)

ImageSheets = Mapping[str, Sequence[Image]]
"""Images to show together, by a name such as val/predictions."""

ToDevice = Callable[[Tensor], Tensor]
"""Brings inputs to the device of a task."""

ALL_SPLITS = "all"  # as the split to evaluate a network on; never in training


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The options of opening data. `progress` is called with (done, total)."""

    data: DataConfig
    seed: int  # for splits, where the data has none
    workers: int = 1  # threads that may read it
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """The options of loading training samples."""

    batch: int  # samples per step, over all replicas
    seed: int
    workers: Workers = field(default_factory=Workers)
    positions: Sequence[int] | None = None  # indices within a step of the samples to load here; None: all
    share_sizes: Sequence[int] | None = None  # how many of them each of several clones computes, in order
    largest: bool = False  # inputs of several sizes always have the largest, for measurements
    mixed_steps: int | None = None  # the first steps, whose samples may be made of several; None: all


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """The options of an evaluation. `progress` is called with the number of samples done, if a stage is
    solved that of the current pass.
    """

    batch: int
    workers: Workers
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True, kw_only=True)
class SolveOptions(EvalOptions):
    """The options of solving a stage. `workspace` is a folder for large results on the way, which a stage
    that is repeated after a kill finds again.
    """

    workspace: Path


class Loader(Protocol):
    """An endless source of batches. The samples of a step depend on the seed alone."""

    def batches(self, start_step: int = 0, num_steps: int | None = None) -> Iterator[Batch]: ...


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """The scores of an evaluation as text cells, for people."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class TrainData(ABC):
    """The training samples of a task, with all that planning and the training loop ask of them."""

    @property
    @abstractmethod
    def num_train(self) -> int:
        """The number of training samples."""

    @abstractmethod
    def loader(self, options: LoaderOptions) -> Loader: ...

    @property
    def mixed_fraction(self) -> float:
        """The fraction of the run, from its start, in which samples may be made of several: `mixed_steps` of
        the loader as a fraction.
        """
        return 1.0

    @abstractmethod
    def largest_batch(self, num_samples: int) -> Batch:
        """Return a batch that is as large in every respect as any that training can meet."""

    def cost_key(self) -> Mapping[str, Any]:
        """Return all that decides the cost of a step besides the settings and the network."""
        return {}

    @abstractmethod
    def with_cache(self, num_bytes: int) -> Self:
        """Return the same data with a cache of that many bytes, in memory that loader processes share."""

    @property
    @abstractmethod
    def cached_bytes(self) -> int | None:
        """The bytes that the cache holds; None if the data needs no cache."""

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """The mean size of a sample after reading, in bytes; 0 if nothing has to be read."""

    @property
    def max_sample_bytes(self) -> int:
        """The largest size of a sample after reading, in bytes."""
        return self.sample_bytes


class EvalData(ABC, Generic[EvaluationT]):
    """The validation samples, and how a task does on them."""

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, bool]:
        """The metrics that can be measured on this data: name -> whether higher is better."""

    def unmeasured(self, metric: str) -> str | None:  # noqa: ARG002
        """Return why the validation samples have no value of a metric, such as `the validation split has no
        boxes`; None if they have one.
        """
        return None

    @abstractmethod
    def evaluate(self, task: Task, move: ToDevice, options: EvalOptions) -> EvaluationT:
        """Evaluate a task, which is in evaluation mode."""

    def advice_after(
        self,
        task: Task,  # noqa: ARG002
        move: ToDevice,  # noqa: ARG002
        options: EvalOptions,  # noqa: ARG002
        last: EvaluationT,  # noqa: ARG002
    ) -> tuple[Advice, ...]:
        """Return advice about a trained task from its last evaluation; other arguments as in `evaluate`."""
        return ()

    def render_batch(self, batch: Batch, num: int) -> ImageSheets:  # noqa: ARG002
        """Draw the first samples of a training batch."""
        return {}

    def render_predictions(self, evaluation: EvaluationT, num: int) -> ImageSheets:  # noqa: ARG002
        """Draw the predictions for the first samples of an evaluation."""
        return {}

    def render_inside(self, task: Task, batch: Batch, num: int) -> ImageSheets:  # noqa: ARG002
        """Draw what a network in evaluation mode, on the CPU, makes of training samples on its way."""
        return {}

    @classmethod
    @abstractmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        """Return the scores of an evaluation's JSON."""


class DataSummary(ABC):
    """A description of the data and its defects, for people and reports."""

    @property
    @abstractmethod
    def problems(self) -> tuple[Problem, ...]:
        """The defects that were found in the data."""

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
    def class_counts(self) -> Mapping[str, int]:
        """Return the number of training examples of each class; for detectors, of objects."""


class TaskData(TrainData, EvalData[EvaluationT], DataSummary, Generic[ConfigT, FactsT, EvaluationT]):
    """A kind of task with its settings and its opened data. Immutable."""

    config_class: ClassVar[type[TaskConfig]]
    facts_class: ClassVar[type[DataFacts]]
    config: ConfigT

    @classmethod
    @abstractmethod
    def open(cls, config: ConfigT, options: OpenOptions, facts: FactsT | None = None) -> Self:
        """Read and check all data once. Bad samples become `problems`; `DataError` if no sample is left.

        `facts` are those of an existing network, to evaluate it; if None, the data decides them, to train.
        """

    @classmethod
    @abstractmethod
    def build(cls, config: ConfigT, facts: FactsT) -> Task:
        """Return the task with its network, initialized from torch's random numbers."""

    @classmethod
    def build_exported(cls, config: ConfigT, facts: FactsT, exported: Exported) -> Task:
        """Return the task with an exported network, to evaluate it and to predict."""
        task = cls.build(config, facts)
        setattr(task, task.network_name, ExportedNetwork(exported))
        return task.eval()

    @classmethod
    def predicts(cls, facts: FactsT) -> PredictionKind:
        """Return what a network for data with these facts predicts."""
        return cls.config_class.predicts or ("classes" if facts.classes else "text")

    @classmethod
    def predictor(cls, config: ConfigT, task: Task, move: ToDevice) -> DetectionPredictor:  # noqa: ARG003
        """Return what finds boxes by a task's network; `UsageError` if it predicts something else.
        `move` brings inputs to the device of the network.
        """
        raise UsageError(f"task={config.name}: this works for detectors only")

    @property
    @abstractmethod
    def facts(self) -> FactsT: ...

    def task(self) -> Task:
        return self.build(self.config, self.facts)

    def train_records(self) -> Records | None:
        """Return the training images with their boxes; None if there are no boxes."""
        return None

    @abstractmethod
    def describe(self, task: Task) -> str:
        """Return a sentence about the network."""

    @property
    def metrics(self) -> Mapping[str, bool]:
        return self.config.metrics

    @property
    def num_examples(self) -> int:
        """The amount of training data: samples, or characters of running text."""
        return self.num_train

    def require_learnable(self) -> None:
        """Raise `DataError` if there is nothing to learn from the data."""

    def adapted(self) -> tuple[Self, str]:
        """Return this data with the settings of the task that the data decides, and a sentence about them, or
        an empty one.
        """
        return self, ""

    def advice(self, task: Task, *, from_scratch: bool) -> tuple[Advice, ...]:
        """Return what is likely to spoil the training of a new task, and what to do about it."""
        counts = self.class_counts()
        num_parameters = sum(parameter.numel() for parameter in task.parameters())
        has_backbone = task.network.backbone_prefix() is not None
        return (
            *missing_data(self.problems, self.num_train),
            *imbalance(list(counts.values()), list(counts), remedy=self.config.balance),
            *too_complex(
                num_parameters, self.num_examples, from_scratch=from_scratch, has_backbone=has_backbone
            ),
        )

    def require_solvable(self, folder: Path) -> None:
        """Raise an error before training if a solve stage in `folder` would fail after it."""

    def solve(self, task: Task, stage: str, options: SolveOptions) -> tuple[str, ...]:
        """Set layers or buffers of the network in closed form, for the solve stage of that name; return a
        message about each sample that could not be read. The task is on the CPU, in evaluation mode and
        without gradients. The result must depend on nothing but the data and the task.
        """
        raise NotImplementedError(f"{self.config.name} has no solve stage {stage}")
