"""What is trained: a network and its loss, its data, and how it is judged and shown.

A kind of task is one file here: settings, the task itself, and a subject that brings both together with data.
Training knows no more of any of them than what stands on this page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import Registry, suggest
from boxcrew.core.types import Batch, Image, Losses
from boxcrew.data.checks.problem import Problem
from boxcrew.data.config import DataConfig
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.advice import MORE, Advice, imbalance, missing, too_complex
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.nets.network import Network


class Task(nn.Module, ABC):
    """The loss is the forward, so that whatever wraps a module for distributed work sees it."""

    phases: ClassVar[tuple[str, ...]] = ("train",)
    loss_tells: ClassVar[bool] = True  # whether more is learnt when it falls
    network_name: ClassVar[str]  # of the submodule that is the network

    @abstractmethod
    def forward(self, batch: Batch, phase: str = "train") -> Losses: ...

    def phases_of(self, step: int) -> tuple[str, ...]:  # noqa: ARG002
        """Those that a step has, in their order."""
        return self.phases

    @property
    def cycle(self) -> int:
        """Steps after which the same phases come again."""
        return 1

    def learns_in(self, phase: str, name: str) -> bool:  # noqa: ARG002
        """Whether a parameter of that name learns in a phase; each does in exactly one."""
        return True

    def constrain(self) -> None:
        """Brings parameters back to where they may be; called after each update."""

    def network_inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the arguments of the network's forward for a batch."""
        return batch.inputs, *batch.extra.values()

    @property
    def network(self) -> Network:
        """What is filled at the beginning and stored in the end."""
        network = self.get_submodule(self.network_name)
        assert isinstance(network, Network)
        return network


class TaskConfig(Config):
    """The settings of a kind of task. Some of its groups stand at the top of a run's settings (`hoisted`)."""

    group = "task"
    shorthand = "name"
    hoisted: ClassVar[tuple[str, ...]] = ()
    aliases: ClassVar[Mapping[str, str]] = {}  # short words at the top of a run's settings -> dotted keys
    choices: ClassVar[Mapping[str, str]] = {}  # hoisted group -> the setting that says what its others mean
    default_data: ClassVar[str]  # the embedded set
    metrics: ClassVar[Mapping[str, bool]]  # what `best` can mean, the usual first; whether higher is better
    folder: ClassVar[str]  # of runs, under runs/
    sample: ClassVar[str] = "a sample"

    name: str

    @classmethod
    def of(cls, value: object) -> Self:
        try:
            return super().of(value)
        except UsageError as error:
            group = error.message.removeprefix(f"{cls.group}.")
            if group.partition(".")[0] not in cls.hoisted:
                raise
            raise UsageError(group, advice=error.advice) from None

    @property
    def title(self) -> str:
        """What a plan says that it is for."""
        return self.name

    @property
    def balance(self) -> str:
        """What can be done where some classes are rare."""
        return MORE


DataFacts = Mapping[str, Any]
"""What data decides about a network, as JSON values; `classes` among them. Stored with weights."""

ImageSheets = Mapping[str, Sequence[Image]]
"""By name, such as val/predictions, pictures to be shown together."""


ALL = "all"
"""Splits taken together."""


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """How data is to be opened. `progress` is told (done, total)."""

    data: DataConfig
    seed: int  # for splits, where there are none
    workers: int = 1  # threads that may look at it
    progress: Callable[[int, int], None] | None = None
    facts: DataFacts | None = None  # of a network that is there already; None: the data decides

    @property
    def evaluates_all(self) -> bool:
        """Whether all that is there is examined, whatever its split: not where it is learnt from."""
        return self.facts is not None and self.data.val == ALL


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """How training wants its samples."""

    batch: int  # samples a step, over all replicas
    seed: int
    workers: Workers = field(default_factory=Workers)
    places: Sequence[int] | None = None  # the samples of a step that are to be made here; None: all


class Loader(Protocol):
    """Batches without end: what a step holds depends on the seed alone."""

    def batches(self, start_step: int = 0, num_steps: int | None = None) -> Iterator[Batch]: ...


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class TaskData(ABC):
    """What a run is about: a kind of task with its settings, its data opened. Values: nothing changes one."""

    config_class: ClassVar[type[TaskConfig]]
    config: TaskConfig

    @classmethod
    @abstractmethod
    def open(cls, config: TaskConfig, opening: OpenOptions) -> Self:
        """Looks at all data once. What is wrong with some of it becomes a problem; `DataError` if nothing is
        left.
        """

    @classmethod
    @abstractmethod
    def build(cls, config: TaskConfig, facts: DataFacts) -> Task:
        """The task with its network, filled from torch's random numbers."""

    @property
    @abstractmethod
    def facts(self) -> DataFacts: ...

    @property
    @abstractmethod
    def problems(self) -> tuple[Problem, ...]:
        """Of the data."""

    @property
    @abstractmethod
    def num_train(self) -> int:
        """Samples to learn from."""

    @property
    def num_examples(self) -> int:
        """What there is to learn from: samples, or characters of a text."""
        return self.num_train

    @property
    def metrics(self) -> Mapping[str, bool]:
        """Those of the settings' metrics that are measured on this data."""
        return self.config.metrics

    def require_learnable(self) -> None:  # noqa: B027, most always can
        """`DataError` where there is nothing to learn from the data."""

    def settled(self) -> tuple[Self, str]:
        """With what the settings leave to the data decided, and a sentence about it, empty if nothing was."""
        return self, ""

    def task(self) -> Task:
        return self.build(self.config, self.facts)

    def class_counts(self) -> Mapping[str, int]:
        """Training examples of each class; of detectors, objects."""
        return {}

    def advice(self, task: Task, *, from_scratch: bool) -> tuple[Advice, ...]:
        """What is likely to spoil training, and what to do."""
        counts = self.class_counts()
        num_parameters = sum(parameter.numel() for parameter in task.parameters())
        return (
            *missing(self.problems, self.num_train),
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
        """The same of a task that has been trained, by its last examination and, as `evaluate`, by what it
        knows of the examples that it has learnt from.
        """
        return ()

    @abstractmethod
    def headline(self) -> str:
        """The format of the data in brackets, and what it holds."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """The same as JSON values, at length, with `classes` and `problems`."""

    @abstractmethod
    def digest(self) -> str:
        """Of what training sees: equal for equal data, wherever it lies."""

    @abstractmethod
    def describe(self, task: Task) -> str:
        """The network in a sentence."""

    @abstractmethod
    def largest_batch(self, num_samples: int) -> Batch:
        """As large in every respect as any that training can meet."""

    @abstractmethod
    def cost_key(self) -> Mapping[str, Any]:
        """All that decides what a step costs besides the settings and the network."""

    def keeping(self, num_bytes: int) -> Self:  # noqa: ARG002 - where everything is in memory anyway
        """The same data, with as much of what is read kept in memory that loader processes share."""
        return self

    @property
    def kept_bytes(self) -> int | None:
        """How much is; None where nothing has to be."""
        return None

    @property
    def read_bytes(self) -> int:
        """Of a sample that has been read, on the whole; 0 where nothing has to be."""
        return 0

    @property
    def most_read_bytes(self) -> int:
        """Of the largest."""
        return 0

    @abstractmethod
    def loader(self, feed: LoaderOptions) -> Loader: ...

    @abstractmethod
    def evaluate(self, task: Task, move: Callable[[Tensor], Tensor], options: EvalOptions) -> Evaluation:
        """Of a task in evaluation mode, to whose device `move` brings inputs."""

    def draw_batch(self, batch: Batch, num: int) -> ImageSheets:  # noqa: ARG002
        """The first samples of a batch of training."""
        return {}

    def draw_detections(self, evaluation: Evaluation, num: int) -> ImageSheets:  # noqa: ARG002
        """What was found in the first samples of an examination."""
        return {}

    @classmethod
    @abstractmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        """Of an evaluation's JSON, for people."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """How an examination is done. `progress` is told how many samples are."""

    batch: int
    workers: Workers
    progress: Callable[[int], None] | None = None


TASKS: Registry[type[TaskData]] = Registry("task", "boxcrew.tasks")
"""Members say `@TASKS.register("detection")` in `tasks/detection.py`, and so on."""


def task_config_class(name: str) -> type[TaskConfig]:
    if name not in TASKS.names():
        raise UsageError(f"task={name}: no such task; {suggest(name, TASKS.names())}")
    return TASKS.get(name).config_class
