"""The contract of a task: a network with its loss, its settings, and the registry of all kinds of tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Tensor, nn

from boxcrew.core.config import Config
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.registry import Registry, suggest
from boxcrew.core.stage import Stage
from boxcrew.core.types import Batch, Losses
from boxcrew.evaluate.advice import ADD_EXAMPLES
from boxcrew.nets.network import Network

if TYPE_CHECKING:
    from boxcrew.tasks.data import TaskData


class Task(nn.Module, ABC):
    """A network with its loss. The loss is `forward`, so that wrappers for distributed work see it.

    A step has one or more phases, such as critic and generator; each parameter learns in exactly one of them.
    """

    phases: ClassVar[tuple[str, ...]] = ("train",)
    loss_shows_progress: ClassVar[bool] = True  # whether a falling loss means that the network gets better
    network_name: ClassVar[str]  # of the submodule that is the network

    @abstractmethod
    def forward(self, batch: Batch, phase: str = "train") -> Losses: ...

    def phases_of(self, step: int) -> tuple[str, ...]:  # noqa: ARG002
        """Return the phases of a step, in order."""
        return self.phases

    @property
    def cycle(self) -> int:
        """The number of steps after which the sequence of phases repeats."""
        return 1

    def learns_in(self, phase: str, name: str) -> bool:  # noqa: ARG002
        """Return whether the parameter of that name learns in a phase."""
        return True

    def constrain(self) -> None:
        """Bring parameters back into their allowed range; called after each update."""

    def network_inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the arguments of the network's forward for a batch."""
        return batch.inputs, *batch.extra.values()

    @property
    def network(self) -> Network:
        """The network, which initial weights are loaded into and whose weights are saved."""
        network = self.get_submodule(self.network_name)
        assert isinstance(network, Network)
        return network


@contextmanager
def freeze_other_phases(task: Task, phase: str) -> Iterator[None]:
    """Freeze, while the context is open, the parameters that learn in other phases."""
    if len(task.phases) == 1:
        yield
        return
    frozen = [p for name, p in task.named_parameters() if p.requires_grad and not task.learns_in(phase, name)]
    for parameter in frozen:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad = True


PredictionKind = Literal["boxes", "classes", "text", "images"]


class TaskConfig(Config):
    """The settings of a kind of task. Its `hoisted` groups stand at the top of a run's settings."""

    group = "task"
    shorthand = "name"
    hoisted: ClassVar[tuple[str, ...]] = ()
    aliases: ClassVar[Mapping[str, str]] = {}  # short keys at the top of a run's settings -> dotted keys
    choices: ClassVar[Mapping[str, str]] = {}  # hoisted group -> the setting that selects its class
    default_data: ClassVar[str]  # name of an embedded data set
    metrics: ClassVar[Mapping[str, bool]]  # name -> whether higher is better; the default first
    folder: ClassVar[str]  # of runs, under runs/
    sample: ClassVar[str] = "a sample"
    predicts: ClassVar[PredictionKind | None] = None  # what its networks predict; None: the data decides

    name: str
    """Kind of task."""

    @classmethod
    def of(cls, value: object) -> Self:
        try:
            return super().of(value)
        except UsageError as error:
            group = error.message.removeprefix(f"{cls.group}.")
            if group == error.message or group.partition(".")[0] not in cls.hoisted:
                raise
            raise UsageError(group, advice=error.advice) from None

    @property
    def title(self) -> str:
        """The task in a few words, for the heading of a plan."""
        return self.name

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of the training, in order; none if it is a single run."""
        return ()

    @property
    def balance(self) -> str:
        """The remedy to recommend when some classes are rare."""
        return ADD_EXAMPLES


TASKS: Registry[type[TaskData]] = Registry("task", "boxcrew.tasks")
"""A member is registered by `@TASKS.register("detection")` in `tasks/detection.py`, and so on."""


def stored_config(settings: Mapping[str, Any], source: Path) -> TaskConfig:
    """Return the settings of the task that a file carries; `ModelError` if this version has others."""
    try:
        return task_config_class(settings["name"]).of(settings)
    except UsageError as error:
        advice = "use it with the version of boxcrew that wrote it, or train again"
        raise ModelError(f"{source}: {error.message}", advice=advice) from None


def task_config_class(name: str) -> type[TaskConfig]:
    if name not in TASKS.names():
        raise UsageError(f"task={name}: no such task; {suggest(name, TASKS.names())}")
    return TASKS.get(name).config_class
