"""The best settings of a study: the trial that has them, and a file to train with."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.config import Tree, to_yaml
from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.scheduler import ranked

_AS_GIVEN = ("summaries", "saver", "trial")
"""Settings that trials have differently from the recipe, and that do not change what is learned."""


def winner_of(ledger: Ledger, study: StudyRecord) -> Trial | None:
    """Return the best trial of those that were trained to the end; None if there is none."""
    complete = [trial for trial in ledger.trials if trial.is_complete and trial.failure is None]
    return ranked(complete, len(study.rungs) - 1, study)[0] if complete else None


def best_yaml(study: StudyRecord, trial: Trial) -> str:
    """Return the settings with which training gives the numbers of a trial again, as YAML."""
    config = study.config(trial.asked.settings, trial.asked.rungs, Path("best"))
    changes: Tree = {name: study.given[name] for name in _AS_GIVEN}
    if len(trial.asked.rungs) > 1:  # the guard goes back to these checkpoints
        changes["saver"] = {**changes["saver"], "every_steps": trial.asked.rungs[0]}
    return to_yaml(config.changed({**changes, "out": None}))
