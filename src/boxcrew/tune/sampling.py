"""The settings of a new trial, drawn by a sampler of Optuna from the results so far.

The sampler is made anew for each trial, with a seed from the study's seed and the trial's number, and sees a
study in memory that holds the results in the order of their numbers. So what it draws depends on nothing
else: not on the clock, and not on how often the study was stopped.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from boxcrew.core.errors import UsageError
from boxcrew.train.run.stored_settings import flat
from boxcrew.tune.ledger import Trial
from boxcrew.tune.record import Sampler, StudyRecord
from boxcrew.tune.space import Dimension, Params, Space, with_settings

if TYPE_CHECKING:
    import optuna

Notes = dict[str, Any]
"""Attributes that a sampler gives a trial in Optuna's storage."""

STARTUP = 8
"""Trials that are drawn at random before the sampler learns from them, trial 0 among them."""
_ATTEMPTS = 20
_MOST_POINTS = 10_000


def require_optuna(sampler: Sampler) -> None:
    """Raise `UsageError` if a package is missing that the sampler needs."""
    needed = {"optuna": "pip install 'boxcrew[tune]'"} | (
        {"cmaes": "pip install cmaes"} if sampler == "cma" else {}
    )
    for package, advice in needed.items():
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed, which sampler={sampler} needs", advice=advice)


def draw(study: StudyRecord, trials: Sequence[Trial], number: int) -> Params | None:
    """Return the values of trial `number`; None if all that there are have been tried."""
    if number == 0:
        return study.space.params_of(study.base_config)
    tried = [settings_with(study, trial.asked.params) for trial in trials]
    if study.sampler == "grid":
        points = (params for params in grid(study) if settings_with(study, params) not in tried)
        return next(points, None)
    for attempt in range(_ATTEMPTS):
        params = _ask(study, trials, seed=_seed(study.seed, number, attempt))
        if settings_with(study, params) not in tried:
            return params
    return None


def settings_with(study: StudyRecord, params: Params) -> dict[str, object]:
    """Return the searched settings of a trial with these values, with the recipe's own where it has none."""
    settings = study.space.settings(params)
    try:
        stored = flat(with_settings(study.base_config, settings).tree())
    except UsageError:  # which trains to a failure with a reason
        stored = settings
    return {dimension.target: stored.get(dimension.target) for dimension in study.space.dimensions}


def grid(study: StudyRecord) -> list[Params]:
    """Return all points of the space in an order that the seed decides."""
    dimensions = study.space.dimensions
    values = [dimension.points() for dimension in dimensions]
    count = math.prod(map(len, values))
    if count > _MOST_POINTS:
        raise UsageError(
            f"sampler=grid: {count} points are too many", advice="give fewer values, or sampler=tpe"
        )
    names = [dimension.name for dimension in dimensions]
    points = [
        _relevant(study.space, dict(zip(names, point, strict=True))) for point in itertools.product(*values)
    ]
    unique = [point for i, point in enumerate(points) if point not in points[:i]]
    random.Random(study.seed).shuffle(unique)  # noqa: S311 - an order, no secret
    return unique


def _relevant(space: Space, params: Params) -> Params:
    """Return the values of the dimensions that matter, given the others."""
    kept: Params = {}
    for dimension in space.dimensions:
        settings = space.settings(kept)
        if dimension.matters({key: settings.get(key) for key in dimension.only}):
            kept[dimension.name] = params[dimension.name]
    return kept


def _ask(study: StudyRecord, trials: Sequence[Trial], *, seed: int) -> Params:
    notes = _notes(study, trials) if study.sampler == "cma" else [{} for _ in trials]
    return _ask_optuna(study, trials, notes, seed=seed)[0]


def _ask_optuna(
    study: StudyRecord, trials: Sequence[Trial], notes: Sequence[Notes], *, seed: int
) -> tuple[Params, Notes]:
    """Return the values that the sampler draws after these trials, and the state that it stores with the new
    one.
    """
    import optuna

    with quiet():
        shadow = optuna.create_study(
            sampler=_sampler(study.sampler, seed),
            direction="maximize" if study.higher_is_better else "minimize",
        )
        for trial, noted in zip(trials, notes, strict=True):
            earlier = frozen(trial, study)
            earlier.system_attrs = noted
            shadow.add_trial(earlier)
        asked = shadow.ask()
        params: Params = {}
        for dimension in study.space.dimensions:
            settings = study.space.settings(params)
            if dimension.matters({key: settings.get(key) for key in dimension.only}):
                params[dimension.name] = _suggest(asked, dimension)
        return params, dict(shadow.trials[-1].system_attrs)


def _notes(study: StudyRecord, trials: Sequence[Trial]) -> list[Notes]:
    """Return CMA-ES's state for each trial, recomputed by drawing the trials again. Nothing has to be stored
    that only Python could read.
    """
    notes: list[Notes] = []
    for trial in trials:
        noted: Notes = {}
        for attempt in range(_ATTEMPTS if trial.number else 0):
            seed = _seed(study.seed, trial.number, attempt)
            params, noted = _ask_optuna(study, trials[: trial.number], notes, seed=seed)
            if params == trial.asked.params:
                break
        notes.append(noted)
    return notes


def _suggest(asked: optuna.Trial, dimension: Dimension) -> object:
    """Return the value of a dimension that the sampler suggests."""
    name, log = dimension.name, dimension.log
    if dimension.choices:
        return asked.suggest_categorical(name, dimension.points())
    if dimension.whole:
        step = {} if log else {"step": int(dimension.step or 1)}
        return asked.suggest_int(name, int(dimension.low), int(dimension.high), log=log, **step)
    return asked.suggest_float(name, dimension.low, dimension.high, log=log, step=dimension.step)


def frozen(trial: Trial, study: StudyRecord) -> optuna.trial.FrozenTrial:
    """Return a trial as Optuna has it: one that waits at a rung counts as pruned there."""
    from optuna.trial import TrialState, create_trial

    if trial.failure is not None:
        state = TrialState.FAIL
    elif trial.is_complete:
        state = TrialState.COMPLETE
    else:
        state = TrialState.PRUNED if trial.values else TrialState.RUNNING
    distributions = {each.name: each.distribution() for each in study.space.dimensions}
    return create_trial(
        state=state,
        value=trial.values[trial.rung] if state == TrialState.COMPLETE else None,
        params=trial.asked.params,
        distributions={name: distributions[name] for name in trial.asked.params},
        intermediate_values={trial.asked.rungs[rung]: value for rung, value in trial.values.items()},
        user_attrs={"settings": trial.asked.settings, "failure": trial.failure},
    )


def _sampler(name: Sampler, seed: int) -> optuna.samplers.BaseSampler:
    from optuna import samplers

    if name == "tpe":
        return samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True, group=True)
    if name == "cma":
        return samplers.CmaEsSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)
    return samplers.RandomSampler(seed=seed)


def _seed(*parts: int) -> int:
    digest = hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's lines about each trial, and its notes about what it calls experimental."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
