"""Everything that can be set about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from boxcrew.core.config import Config, Names, Tree, chosen_by, merge
from boxcrew.core.errors import UsageError
from boxcrew.core.units import parse_duration
from boxcrew.data.loader import LoaderConfig
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors.base import DetectorConfig, detector_config_class
from boxcrew.detectors.ssdlite import SsdLiteConfig
from boxcrew.plan.wishes import DeployConfig, Goal, GoalSetting
from boxcrew.train.guard import GuardConfig
from boxcrew.train.init import InitConfig, Scratch, init_config_class
from boxcrew.train.optim import OptimConfig
from boxcrew.train.schedule import ScheduleConfig


class DataConfig(Config):
    group = "data"
    shorthand = "path"

    path: str = "shelf"  # a data set's directory or file, or the name of an embedded one
    format: str = "auto"  # voc, coco, yolo
    val: str = "val"  # the split that is evaluated
    strict: bool = False  # stop at data that has to be repaired or left out


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


Metric = Literal[
    "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl",
    "AP50_voc07", "AP50_voc12", "precision", "recall", "F1",
]  # fmt: skip


class EvaluationConfig(Config):
    group = "evaluation"

    every_epochs: float | None = Field(default=None, gt=0)  # None: five times in the run and at the end
    batch: int = Field(default=16, ge=1)
    metric: Metric = "AP"  # what `best` means
    patience: int | None = Field(default=None, ge=1)  # evaluations without a better one before stopping


class SummariesConfig(Config):
    group = "summaries"

    every_steps: int = Field(default=10, ge=1)
    tensorboard: bool = True
    histograms: bool = True  # of parameters and activations, at evaluations
    graph: bool = False
    images: int = Field(default=8, ge=0)  # pictures of each kind


class TaskConfig(Config):
    group = "task"
    shorthand = "name"

    name: Literal["detection"] = "detection"


class RunConfig(Config):
    """One training, whole. `out` is the run directory; without it a fresh one under `runs/` is made."""

    task: TaskConfig = TaskConfig()
    data: DataConfig = DataConfig()
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
    probe: bool | Literal["auto"] = "auto"  # whether steps are tried before; auto: if the run is long
    detector: Annotated[
        SerializeAsAny[DetectorConfig], chosen_by("name", default="ssdlite", lookup=detector_config_class)
    ] = SsdLiteConfig()
    loader: LoaderConfig = LoaderConfig()
    transforms: TransformsConfig = TransformsConfig()
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
        base = self.tree()
        if any(settings.get(limit) is not None for limit in LIMITS):
            base |= dict.fromkeys(LIMITS)
        return RunConfig.of(merge(base, expand(settings), choices=CHOICES))


LIMITS = ("steps", "epochs", "time")
CHOICES = {"detector": "name", "init": "kind", "optim": "name", "schedule": "name", "data": "path"}
"""For each group the setting that says what the others mean."""


def expand(settings: Tree) -> Tree:
    """`size` at the top is the detector's."""
    if "size" not in settings:
        return settings
    rest = {key: value for key, value in settings.items() if key != "size"}
    detector = rest.get("detector", {})
    if not isinstance(detector, dict):
        detector = {"name": detector}
    return rest | {"detector": {**detector, "size": settings["size"]}}
