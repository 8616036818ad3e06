"""The content of a study's `report.json`, and of its page."""

from __future__ import annotations

from typing import Any, Literal

from boxcrew.core.config import Config

TrialState = Literal["complete", "stopped early", "paused", "running", "failed"]


class CurvePoint(Config):
    """An evaluation of a trial."""

    step: int
    seconds: float | None  # of training so far
    value: float


class TrialReport(Config):
    """A trial with all its results."""

    trial: int
    state: TrialState
    failure: str | None  # why it failed
    settings: dict[str, Any]  # that differ from the recipe's, by dotted keys; none in trial 0
    params: dict[str, Any]  # the values of its dimensions, as Optuna stores them
    value: float | None  # the best so far
    steps: int  # that it was trained, up to the last comparison
    length: int  # steps of its full training
    rungs: dict[str, float]  # the value at each comparison, by step
    curve: tuple[CurvePoint, ...]
    seconds: float  # of training
    run: str

    @property
    def first(self) -> float | None:
        """Its value at the first comparison, where trials can be compared with each other."""
        return next(iter(self.rungs.values()), None)


class DimensionReport(Config):
    """A setting that varies."""

    name: str
    target: str  # the dotted key
    choices: tuple[Any, ...]  # as Optuna stores them; none: a range
    low: float
    high: float
    log: bool
    text: str  # the range or the choices in words


class Noise(Config):
    """The results of the recipe's own settings with several seeds."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    mean: float
    deviation: float


class RecipeReport(Config):
    """The result of the recipe's own settings."""

    value: float | None
    noise: Noise | None


class Change(Config):
    """A setting in which the best trial differs from the recipe."""

    setting: str
    recipe: Any
    best: Any


class BestReport(Config):
    """The best of the trials that were trained to the end."""

    trial: int
    value: float
    settings: dict[str, Any]
    changes: tuple[Change, ...]
    summary: dict[str, Any]  # of its run
    yaml: str  # the file with all its settings


class OnTest(Config):
    """The metric on the test split, and all other numbers there."""

    best: float | None = None
    recipe: float | None = None
    numbers: dict[str, dict[str, Any]]


class Conclusion(Config):
    """The answer to whether the best settings are clearly better than the recipe's; None: nobody can say."""

    clear: bool | None
    gain: float | None = None
    sentence: str


class Counts(Config):
    """The numbers of trials of each kind."""

    trials: int
    complete: int
    stopped_early: int
    failed: int
    repeats: int


class Importance(Config):
    """The share of the differences between trials that each setting explains."""

    method: str
    trials: int
    shares: dict[str, float]  # by dimension, the most important first


class BudgetReport(Config):
    """The time of a study in seconds; that of trainings is a sum over all workers."""

    planned: float | None
    used: float
    trials: float  # of the training of trials
    repeats: float  # of that of the recipe with other seeds
    starting: float  # of the trainings' processes besides: their start and end
    workers: int


class StudyReport(Config):
    """A study with all that is known of it."""

    study: str
    state: Literal["finished", "running", "stopped"]
    data: str  # the name of the data set
    data_path: str
    model: str
    metric: str
    higher_is_better: bool
    sampler: str
    pruner: str
    seed: int
    storage: str  # as Optuna's dashboard takes it
    rungs: tuple[int, ...]
    seconds: float
    time: float | None
    budget: BudgetReport
    stopped_because: str | None
    space: tuple[DimensionReport, ...]
    recipe: RecipeReport
    best: BestReport | None
    conclusion: Conclusion
    test: OnTest | None
    counts: Counts
    importance: Importance | None
    trials: tuple[TrialReport, ...]

    @property
    def sign(self) -> float:
        """The factor that makes larger values better."""
        return 1.0 if self.higher_is_better else -1.0

    def best_trial(self) -> TrialReport | None:
        return None if self.best is None else self.trials[self.best.trial]
