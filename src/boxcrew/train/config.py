"""Everything that can be set about a run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from boxcrew.core.config import Config, Names, Tree, chosen_by, merge, put
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.core.units import parse_duration
from boxcrew.data.config import DataConfig
from boxcrew.data.loading.loader import LoaderConfig
from boxcrew.plan.request import DeployConfig, Goal, GoalSetting
from boxcrew.tasks.base import TaskConfig, task_config_class
from boxcrew.train.loop.guard import GuardConfig
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.loop.schedule import ScheduleConfig
from boxcrew.train.run.init import InitConfig, Scratch, init_config_class

USUAL = "detection"  # the task of settings that name none


def _duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except UsageError as error:  # pydantic adds the setting's name to a ValueError
        raise ValueError(f"not a duration above zero ({error.advice or 'such as 90s'})") from None


class SaverConfig(Config):
    """When to save, each of the three by itself; none of them: every epoch, but in no more than 2 % of the
    run's time. And what to keep.
    """

    group = "saver"

    every_epochs: float | None = Field(default=None, gt=0)
    every_steps: int | None = Field(default=None, ge=1)
    every_seconds: Annotated[float, BeforeValidator(_duration), Field(gt=0)] | None = None  # or 10m, 2h
    keep: int = Field(default=2, ge=1)  # the last n
    keep_best: bool = False  # the whole state of the best evaluation; its weights are kept in any case
    keep_every_hours: float | None = Field(default=None, gt=0)  # one of each n hours of training, for good


class EvaluationConfig(Config):
    group = "evaluation"

    every_epochs: float | None = Field(default=None, gt=0)  # None: five times in the run and at the end
    batch: int = Field(default=16, ge=1)
    metric: str = "auto"  # what `best` means; auto: the task's first
    patience: int | None = Field(default=None, ge=1)  # evaluations without a better one before stopping


class SummariesConfig(Config):
    group = "summaries"

    every_steps: int = Field(default=10, ge=1)
    tensorboard: bool = True
    histograms: bool = True  # of parameters and activations, at evaluations
    graph: bool = False
    images: int = Field(default=8, ge=0)  # pictures of each kind


class RunConfig(Config):
    """One training, whole. `out` is the run directory; without it a fresh one under `runs/` is made."""

    task: Annotated[
        SerializeAsAny[TaskConfig], chosen_by("name", default=USUAL, lookup=task_config_class)
    ] = Field(default_factory=lambda: task_config_class(USUAL).of({}))
    data: DataConfig = Field(default_factory=lambda given: DataConfig(path=given["task"].default_data))
    out: Path | None = None
    name: str | None = None  # of the run directory under runs/<task>/
    seed: int = Field(default=0, ge=0)
    init: Annotated[
        SerializeAsAny[InitConfig], chosen_by("kind", default="scratch", lookup=init_config_class)
    ] = Scratch()
    trainable: Names = ("*",)  # patterns of parameter names, before `unfreeze`
    unfreeze: dict[float, Names] = Field(
        default_factory=dict
    )  # share of the run -> patterns that become trainable there
    steps: int | None = Field(default=None, ge=1)
    epochs: float | None = Field(default=None, gt=0)
    time: Annotated[float, BeforeValidator(_duration), Field(gt=0)] | None = None  # seconds; 90s, 15m, 2h
    batch: int = Field(default=16, ge=1)  # samples a step, over all devices
    device: str = "auto"
    plan: Path | None = None  # a plan.json to use as it is
    goal: GoalSetting = Goal()  # of the plan: fastest, smallest, deadline:2h, budget:8GB
    trial: bool | Literal["auto"] = "auto"  # whether steps are tried before; auto: if the run is long
    loader: LoaderConfig = LoaderConfig()
    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    saver: SaverConfig = SaverConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    summaries: SummariesConfig = SummariesConfig()
    guard: GuardConfig = GuardConfig()
    deploy: DeployConfig = DeployConfig()

    @field_validator("unfreeze")
    @classmethod
    def _shares(cls, value: dict[float, tuple[str, ...]]) -> dict[float, tuple[str, ...]]:
        for share in value:
            if not 0 < share < 1:
                raise UsageError(f"unfreeze: {share}: not a share of the run between 0 and 1")
        return value

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.steps is None and self.epochs is None and self.time is None:
            raise UsageError("the run has no end", advice="set steps=, epochs= or time=")
        return self

    @model_validator(mode="after")
    def _can_be_judged(self) -> Self:
        known = list(self.task.metrics)
        if self.evaluation.metric not in {"auto", *known}:
            raise UsageError(
                f"evaluation.metric={self.evaluation.metric}: not measured; "
                f"{suggest(self.evaluation.metric, known)}"
            )
        return self

    @property
    def metric(self) -> str:
        """What `best` means."""
        named = self.evaluation.metric
        return next(iter(self.task.metrics)) if named == "auto" else named

    @classmethod
    def of(cls, value: object) -> Self:
        """In a tree, groups of the task stand beside those of training."""
        return super().of(_gathered(value) if isinstance(value, Mapping) else value)

    def tree(self) -> Tree:
        found: Tree = {}
        for name, value in super().tree().items():
            found[name] = value
            if name == "task":
                found |= {group: value.pop(group) for group in self.task.hoisted}
        return found

    def anchored(self) -> RunConfig:
        """The same with the path of the data made absolute: a run may be resumed from anywhere."""
        if not Path(self.data.path).exists():
            return self  # an embedded set, or a mistake that opening it will name
        absolute = self.data.model_copy(update={"path": str(Path(self.data.path).resolve())})
        return self.model_copy(update={"data": absolute})

    def changed(self, settings: Tree) -> RunConfig:
        """These settings with others put over them. A limit given (steps, epochs, time) replaces all three:
        who asks for 1000 steps does not want a recipe's epochs to end them.
        """
        base, kind = self.tree(), _task_class(settings, self.task.name)
        if any(settings.get(limit) is not None for limit in LIMITS):
            base |= dict.fromkeys(LIMITS)
        if not isinstance(self.task, kind):  # what was said of another task means nothing for this one
            base = {name: value for name, value in base.items() if name not in {*self.task.hoisted, "data"}}
        return RunConfig.of(merge(base, expand(settings, kind), choices={**CHOICES, **kind.choices}))


LIMITS = ("steps", "epochs", "time")
CHOICES = {"task": "name", "init": "kind", "optim": "name", "schedule": "name", "data": "path"}
"""For each group the setting that says what the others mean."""


def _task_class(settings: Mapping[str, Any], otherwise: str) -> type[TaskConfig]:
    task = settings.get("task", otherwise)
    if isinstance(task, TaskConfig):
        return type(task)
    return task_config_class(
        str(task.get("name", task.get("", otherwise)) if isinstance(task, Mapping) else task)
    )


def _gathered(settings: Mapping[str, Any]) -> Tree:
    """With the groups of the task in their place, and its data where none is named."""
    kind = _task_class(settings, USUAL)
    known = [*RunConfig.model_fields, *kind.hoisted]
    for name in settings:
        if name not in known:
            raise UsageError(f"{name}: no such setting; {suggest(str(name), known)}")
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
    """With short words, such as `size`, at the places that they stand for."""
    tree = copy.deepcopy({name: value for name, value in settings.items() if name not in kind.aliases})
    for name, key in kind.aliases.items():
        if name in settings:
            put(tree, key, settings[name])
    return tree
