"""The worth of a study's result: chance, the test split, and whether it is clearly better."""

from __future__ import annotations

import statistics
from pathlib import Path

from boxcrew.report.study.types import Conclusion, Noise, OnTest
from boxcrew.train.run.directory import read_record
from boxcrew.tune.finish import TEST
from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import StudyRecord

_CLEAR = 2.0  # standard deviations


def final_value(trial: Trial) -> float | None:
    """Return the result of a trial that was trained to the end; None of any other."""
    return trial.values[trial.rung] if trial.is_complete else None


def noise_of(study: StudyRecord, ledger: Ledger) -> Noise | None:
    """Return the results of the recipe with several seeds; None if they were not measured."""
    recipe = final_value(ledger.trials[0]) if ledger.trials else None
    others = [end.value for _, end in sorted(ledger.repeats().items()) if end.value is not None]
    if recipe is None or not others:
        return None
    values = (recipe, *others)
    return Noise(
        seeds=tuple(study.seed + number for number in range(len(values))),
        values=values,
        mean=statistics.fmean(values),
        deviation=statistics.stdev(values),
    )


def test_of(folder: Path, study: StudyRecord) -> OnTest | None:
    """Return the values of the metric on the test split; None if there is none, or it was not looked at."""
    record = read_record(folder, TEST)
    numbers = {name: record[name] for name in ("best", "recipe") if record.get(name) is not None}
    values = {name: each.get(study.metric) for name, each in numbers.items()}
    return OnTest(**values, numbers=numbers) if numbers else None


def conclusion_of(
    study: StudyRecord,
    winner: Trial | None,
    *,
    recipe: float | None,
    noise: Noise | None,
    test: OnTest | None,
    is_over: bool,
) -> Conclusion:
    """Return whether the best settings are clearly better than the recipe's, and why, in a sentence."""
    if winner is None:
        return Conclusion(clear=None, sentence="no trial has been trained to the end, so there is no result")
    if recipe is None:
        sentence = "the recipe's own settings failed, so there is nothing to compare with"
        return Conclusion(clear=None, sentence=sentence)
    best, sign = winner.values[winner.rung], 1.0 if study.higher_is_better else -1.0
    if winner.number == 0 or sign * (best - recipe) <= 0:
        return Conclusion(clear=False, gain=0.0, sentence="no setting found is better than the recipe")
    words = f"{study.metric} {recipe:.4g} -> {best:.4g} on the validation split"
    if noise is None:
        why = "was not measured: other seeds would take too long" if is_over else "is measured at the end"
        sentence = f"{words}; how much of it is chance {why}"
        return Conclusion(clear=None, gain=sign * (best - recipe), sentence=sentence)
    gain, by_chance = (
        sign * (best - noise.mean),
        f"the recipe alone varies by ±{noise.deviation:.2g} with the seed",
    )
    on_test = test is None or test.best is None or test.recipe is None or sign * (test.best - test.recipe) > 0
    if gain > _CLEAR * noise.deviation and on_test:
        return Conclusion(clear=True, gain=gain, sentence=f"better than the recipe: {words}; {by_chance}")
    but = "not on the test split" if gain > _CLEAR * noise.deviation else by_chance
    sentence = f"no setting found is clearly better than the recipe: {words}, but {but}"
    return Conclusion(clear=False, gain=gain, sentence=sentence)
