"""The importance of each setting of a study: how much of the differences between trials it explains."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from boxcrew.report.study.types import Importance
from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.sampling import frozen, quiet

if TYPE_CHECKING:
    from optuna.importance import BaseImportanceEvaluator

LEAST = 10
"""Trials from which on an importance is more than an accident."""
_TREES, _DEPTH = 32, 7  # of fANOVA: deeper ones take a minute for hundreds of trials, and say the same


def importance(study: StudyRecord, ledger: Ledger) -> Importance | None:
    """Return a share for each dimension; None if there are too few trials, or all are equally good.

    Trials are compared at the first rung, which nearly all have reached; dimensions that some do not have are
    left out. The method is fANOVA (Hutter et al., 2014) if scikit-learn is there, else PED-ANOVA (Watanabe
    et al., 2023), both as in Optuna.
    """
    import optuna
    from optuna.importance import get_param_importances

    trials = [_at_first_rung(trial) for trial in ledger.trials if trial.failure is None and 0 in trial.values]
    if len(trials) < LEAST or len({trial.values[0] for trial in trials}) < 2:
        return None
    name, evaluator = _evaluator()
    with quiet():
        shadow = optuna.create_study(direction="maximize" if study.higher_is_better else "minimize")
        for trial in trials:
            shadow.add_trial(frozen(trial, study))
        try:
            shares = get_param_importances(shadow, evaluator=evaluator)
        except RuntimeError:  # the values differ, but in no way that its trees could explain
            return None
    return Importance(
        method=name, trials=len(trials), shares={name: float(share) for name, share in shares.items()}
    )


def _evaluator() -> tuple[str, BaseImportanceEvaluator]:
    """Return the method by its name."""
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    if importlib.util.find_spec("sklearn") is None:
        return "PED-ANOVA", PedAnovaImportanceEvaluator()
    return "fANOVA", FanovaImportanceEvaluator(n_trees=_TREES, max_depth=_DEPTH, seed=0)


def _at_first_rung(trial: Trial) -> Trial:
    """Return a trial as if it had been complete there."""
    asked = trial.asked.model_copy(update={"rungs": trial.asked.rungs[:1]})
    return Trial(asked=asked, values={0: trial.values[0]})
