"""The settings of a run, with those of its task, data, plan, loop and output."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from boxcrew.core.config import ChosenBy, Config, Names, Tree, commas, merge, put
from boxcrew.core.errors import UnknownSettingError, UsageError
from boxcrew.core.registry import suggest
from boxcrew.core.storage.address import Url
from boxcrew.core.units import parse_duration
from boxcrew.data.config import DataConfig
from boxcrew.data.loading.loader import LoaderConfig
from boxcrew.plan.request import DeployConfig, Goal, GoalSetting
from boxcrew.tasks.base import TASKS, TaskConfig, task_config_class
from boxcrew.train.init import InitConfig, Scratch, init_config_class
from boxcrew.train.loop.guard import GuardConfig
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.loop.schedule import RunLimits, ScheduleConfig

DEFAULT_TASK = "detection"
_TASK_CHOICE = ChosenBy(setting="name", default=DEFAULT_TASK, lookup=task_config_class, options=TASKS.names)
_INIT_CHOICE = ChosenBy(
    setting="kind", default="scratch", lookup=init_config_class, options=lambda: InitConfig.kinds
)


def _duration(value: object) -> object:
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except UsageError as error:  # pydantic adds the setting's name to a ValueError
        raise ValueError(f"not a duration above zero ({error.advice or 'such as 90s'})") from None


Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class SaverConfig(Config):
    """The times at which checkpoints are saved, and which are kept. Each of the three intervals works by
    itself; without any a checkpoint is saved every epoch, but in no more than 2 % of the run's time.
    """

    group = "saver"

    every_epochs: float | None = Field(default=None, gt=0)
    """Epochs between checkpoints."""
    every_steps: int | None = Field(default=None, ge=1)
    """Steps between checkpoints."""
    every_seconds: Duration | None = None
    """Time between checkpoints, such as 10m or 2h."""
    keep: int = Field(default=2, ge=1)
    """Number of checkpoints to keep, the newest."""
    keep_best: bool = False
    """Also keep the checkpoint of the best evaluation; its weights are kept in any case."""
    keep_every_hours: float | None = Field(default=None, gt=0)
    """Keep one checkpoint for good in every so many hours of training."""


class EvaluationConfig(Config):
    group = "evaluation"

    every_epochs: float | None = Field(default=None, gt=0)
    """Epochs between evaluations; none: five times in the run, in at most a tenth of a limited time."""
    at: Annotated[tuple[Share, ...], commas] = ()
    """Fractions of the run at which to evaluate, instead of every so many epochs; the end is always one."""
    batch: int = Field(default=16, ge=1)
    """Samples that are evaluated at once."""
    metric: str = "auto"
    """Metric that decides which weights are best; auto takes the task's first."""
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without a better one after which the run stops."""


class SummariesConfig(Config):
    group = "summaries"

    every_steps: int = Field(default=10, ge=1)
    """Steps between two lines of metrics."""
    tensorboard: bool = True
    """Write TensorBoard files."""
    histograms: bool = True
    """Write histograms of parameters and activations at evaluations."""
    graph: bool = False
    """Write the graph of the network."""
    images: int = Field(default=8, ge=0)
    """Images of each kind to write."""


class RunConfig(Config):
    """The complete settings of one run. `out` is its directory; by default a new one under `runs/`."""

    task: Annotated[SerializeAsAny[TaskConfig], _TASK_CHOICE] = Field(
        default_factory=lambda: task_config_class(DEFAULT_TASK).of({})
    )
    data: DataConfig = Field(default_factory=lambda settings: DataConfig(path=settings["task"].default_data))
    out: Url | Path | None = None
    """Run directory, or a URL such as s3://bucket/runs/a; none makes a new directory under runs/."""
    name: str | None = None
    """Name of the run directory under runs/."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything random."""
    init: Annotated[SerializeAsAny[InitConfig], _INIT_CHOICE] = Scratch()
    trainable: Names = ("*",)
    """Patterns of the parameter names that learn from the start."""
    unfreeze: dict[float, Names] = Field(default_factory=dict)
    """Fractions of the run, and patterns of the parameter names that start to learn there."""
    steps: int | None = Field(default=None, ge=1)
    """Length of the run in steps."""
    epochs: float | None = Field(default=None, gt=0)
    """Length of the run in epochs."""
    time: Duration | None = None
    """Length of the run as a time, such as 90s, 15m or 2h."""
    batch: int = Field(default=16, ge=1)
    """Samples of a step, over all devices."""
    device: str = "auto"
    """Device or devices that compute, such as cpu, cuda:0 or cuda:0,cuda:1."""
    plan: Path | None = None
    """A plan.json to use as it is."""
    goal: GoalSetting = Goal()
    """Goal of the plan: fastest, smallest, deadline:2h or budget:8GB."""
    trial: bool | Literal["auto"] = "auto"
    """Measure a few steps before the run; auto does so for long runs."""
    loader: LoaderConfig = LoaderConfig()
    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    saver: SaverConfig = SaverConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    summaries: SummariesConfig = SummariesConfig()
    guard: GuardConfig = GuardConfig()
    deploy: DeployConfig = DeployConfig()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for fraction in self.unfreeze:
            if not 0 < fraction < 1:
                raise UsageError(f"unfreeze: {fraction}: not a fraction of the run between 0 and 1")
        if self.steps is None and self.epochs is None and self.time is None:
            raise UsageError("the run has no end", advice="set steps=, epochs= or time=")
        if self.evaluation.at and self.evaluation.every_epochs:
            raise UsageError(
                "evaluation.at and evaluation.every_epochs: two schedules of evaluations", advice="give one"
            )
        metric, known = self.evaluation.metric, list(self.task.metrics)
        if metric not in {"auto", *known}:
            raise UsageError(f"evaluation.metric={metric}: not measured; {suggest(metric, known)}")
        return self

    @property
    def metric(self) -> str:
        """The metric that decides which weights are the best."""
        named = self.evaluation.metric
        return next(iter(self.task.metrics)) if named == "auto" else named

    @property
    def local_out(self) -> Path | None:
        """The run directory; `UsageError` if it is a URL, for those who do not make a working copy of it."""
        if isinstance(self.out, Url):
            raise UsageError(
                f"out={self.out}: only a training can be stored there", advice="give a directory"
            )
        return self.out

    def limits(self, *, num_samples: int, batch: int) -> RunLimits:
        """Return the limits of a run on so many training samples with steps of `batch`."""
        return RunLimits.of(
            steps=self.steps, epochs=self.epochs, seconds=self.time, num_samples=num_samples, batch=batch
        )

    @classmethod
    def of(cls, value: object) -> Self:
        """Build settings from a tree, in which some groups of the task (`hoisted`) are at the top level."""
        return super().of(_with_task_groups(value) if isinstance(value, Mapping) else value)

    def tree(self) -> Tree:
        tree: Tree = {}
        for name, value in super().tree().items():
            tree[name] = value
            if name == "task":
                tree |= {group: value.pop(group) for group in self.task.hoisted}
        return tree

    def with_absolute_path(self) -> RunConfig:
        """Return a copy with an absolute data path, so that the run can be resumed from anywhere."""
        if not Path(self.data.path).exists():
            return self  # an embedded data set, or a mistake that opening it will report
        absolute = self.data.model_copy(update={"path": str(Path(self.data.path).resolve())})
        return self.model_copy(update={"data": absolute})

    def changed(self, settings: Tree) -> RunConfig:
        """Return a copy with some settings changed. A new limit (steps, epochs, time) replaces all three:
        someone who asks for 1000 steps does not want the epochs of a recipe to end them.
        """
        _check_given(settings)
        base, kind = self.tree(), _task_class(settings, self.task.name)
        if any(settings.get(limit) is not None for limit in LIMITS):
            base |= dict.fromkeys(LIMITS)
        if not isinstance(self.task, kind):  # settings of another task mean nothing for this one
            base = {name: value for name, value in base.items() if name not in {*self.task.hoisted, "data"}}
        return RunConfig.of(merge(base, expand(settings, kind), choices={**CHOICES, **kind.choices}))


LIMITS = ("steps", "epochs", "time")
CHOICES = {"task": "name", "init": "kind", "optim": "name", "schedule": "name", "data": "path"}
"""For each group the setting that decides which others it has."""


def _check_given(settings: Mapping[str, Any]) -> None:
    """Refuse what cannot be meant together, and a name that leads out of runs/."""
    if settings.get("steps") is not None and settings.get("epochs") is not None:
        problem = f"steps={settings['steps']} and epochs={settings['epochs']}: two lengths of the run"
        raise UsageError(problem, advice="give one of them; time= can be added to either")
    name = settings.get("name")
    if name is not None and (set(str(name)) & set("/\\") or str(name) in {"", ".", ".."}):
        problem = f"name={name}: not a plain name for a directory under runs/"
        raise UsageError(problem, advice="for a directory elsewhere give out=DIR")


def _task_class(settings: Mapping[str, Any], default: str) -> type[TaskConfig]:
    task = settings.get("task", default)
    if isinstance(task, TaskConfig):
        return type(task)
    name = task.get("name", task.get("", default)) if isinstance(task, Mapping) else task
    return task_config_class(str(name))


def _with_task_groups(settings: Mapping[str, Any]) -> Tree:
    """Return a tree with the groups of the task inside `task`, and its default data if none is named."""
    kind = _task_class(settings, DEFAULT_TASK)
    known = [*RunConfig.model_fields, *kind.hoisted]
    for name in settings:
        if name not in known:
            raise UnknownSettingError(str(name), suggest(str(name), known))
    tree = {name: value for name, value in settings.items() if name not in kind.hoisted}
    groups = {name: settings[name] for name in kind.hoisted if name in settings}
    if groups:
        task = tree.get("task", {})
        tree["task"] = {**(task if isinstance(task, Mapping) else {"name": task}), **groups}
    data = tree.get("data")
    if isinstance(data, Mapping) and not {"path", ""} & data.keys():
        tree["data"] = {"path": kind.default_data, **data}
    return tree


def expand(settings: Tree, kind: type[TaskConfig]) -> Tree:
    """Return a copy in which aliases, such as `size`, are replaced by the settings that they stand for."""
    tree = copy.deepcopy({name: value for name, value in settings.items() if name not in kind.aliases})
    for name, key in kind.aliases.items():
        if name in settings:
            put(tree, key, settings[name])
    return tree
