"""The importance of each setting of a study: how much of the differences between trials it explains."""

from __future__ import annotations

from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.sampling import frozen, quiet

LEAST = 10
"""Trials from which on an importance is more than an accident."""


def importance(study: StudyRecord, ledger: Ledger) -> dict[str, float] | None:
    """Return a share for each dimension (PED-ANOVA, as in Optuna), the most important first; None if there
    are too few trials. Trials are compared at the first rung, which nearly all have reached; dimensions that
    some do not have are left out.
    """
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    trials = [_at_first_rung(trial) for trial in ledger.trials if trial.failure is None and 0 in trial.values]
    if len(trials) < LEAST:
        return None
    with quiet():
        shadow = optuna.create_study(direction="maximize" if study.higher_is_better else "minimize")
        for trial in trials:
            shadow.add_trial(frozen(trial, study))
        shares = get_param_importances(shadow, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(share) for name, share in shares.items()}


def _at_first_rung(trial: Trial) -> Trial:
    """Return a trial as if it had been complete there."""
    asked = trial.asked.model_copy(update={"rungs": trial.asked.rungs[:1]})
    return Trial(asked=asked, values={0: trial.values[0]})
