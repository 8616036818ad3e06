"""The report of a study: `report.json` with all that is known, and the most important on the screen."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_json
from boxcrew.core.units import counted, format_duration
from boxcrew.train.output.metrics import read_rows
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import read_record
from boxcrew.train.run.stored_settings import flat
from boxcrew.tune.best import winner_of
from boxcrew.tune.finish import BEST, TEST
from boxcrew.tune.importance import importance
from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import TRIALS, StudyRecord
from boxcrew.tune.runner import text, words

REPORT = "report.json"
_SHOWN = 8  # trials in the table
_CLEAR = 2.0  # standard deviations


def write_report(study: StudyRecord, folder: Path, ledger: Ledger, screen: Screen) -> dict[str, Any]:
    """Write `report.json`, show the most important of it, and return it."""
    report = make_report(study, folder, ledger)
    write_json(folder / REPORT, report)
    show(report, folder, screen)
    return report


def make_report(study: StudyRecord, folder: Path, ledger: Ledger) -> dict[str, Any]:
    """Return everything about a study as JSON values; `UsageError` if no trial is finished yet."""
    winner = winner_of(ledger, study)
    if winner is None:
        raise UsageError(
            f"study={folder}: no trial is finished yet",
            advice=f"boxcrew tune resume study={folder} continues it",
        )
    value = winner.values[winner.rung]
    recipe, noise, test = _value(ledger.trials[0]), _noise(study, ledger), _test(folder, study)
    best = {
        "trial": winner.number,
        "value": value,
        "settings": winner.asked.settings,
        "changes": _changes(study, winner),
        "summary": read_record(folder / TRIALS / f"{winner.number:04d}", "summary.json"),
        "yaml": BEST,
    }
    return {
        "study": str(folder),
        "state": "finished" if (folder / TEST).is_file() else "stopped",
        "metric": study.metric,
        "higher_is_better": study.higher_is_better,
        "sampler": study.sampler,
        "pruner": study.pruner,
        "seed": study.seed,
        "rungs": list(study.rungs),
        "seconds": ledger.at,
        "time": study.time,
        "stopped_because": None if ledger.stopped is None else ledger.stopped.reason,
        "space": [{**each.tree(), "text": str(each)} for each in study.space.dimensions],
        "recipe": {"value": recipe, "noise": noise},
        "best": best,
        "verdict": _verdict(study, value, recipe, noise, winner.number, test),
        "test": test,
        "counts": _counts(ledger),
        "importance": importance(study, ledger),
        "trials": [_trial(study, folder, trial) for trial in ledger.trials],
    }


def _value(trial: Trial) -> float | None:
    return trial.values[trial.rung] if trial.is_complete else None


def _changes(study: StudyRecord, trial: Trial) -> dict[str, Any]:
    """Return the settings in which a trial differs from the recipe: what they were and what they are."""
    before = flat(study.base)
    after = flat(study.config(trial.asked.settings, trial.asked.rungs, Path("best")).tree())
    ignored = ("out", "steps", "evaluation.at", "evaluation.every_epochs", "saver.every_steps")
    return {
        key: {"from": before.get(key), "to": after.get(key)}
        for key in {**before, **after}
        if key not in ignored and before.get(key) != after.get(key)
    }


def _noise(study: StudyRecord, ledger: Ledger) -> dict[str, Any] | None:
    """Return the results of the recipe with several seeds; None if they were not measured."""
    recipe = _value(ledger.trials[0])
    others = [end.value for _, end in sorted(ledger.repeats().items()) if end.value is not None]
    if recipe is None or not others:
        return None
    values = [recipe, *others]
    seeds = [study.seed + number for number in range(len(values))]
    deviation = statistics.stdev(values)
    return {"seeds": seeds, "values": values, "mean": statistics.fmean(values), "deviation": deviation}


def _test(folder: Path, study: StudyRecord) -> dict[str, Any] | None:
    """Return the values of the metric on the test split; None if it has none."""
    record = read_record(folder, TEST)
    values = {
        name: record[name].get(study.metric) for name in ("best", "recipe") if record.get(name) is not None
    }
    return {**values, "numbers": {name: record[name] for name in values}} if values else None


def _verdict(
    study: StudyRecord,
    best: float,
    recipe: float | None,
    noise: Mapping[str, Any] | None,
    number: int,
    test: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return whether the best settings are clearly better than the recipe's, and why, in a sentence."""
    sign = 1.0 if study.higher_is_better else -1.0
    if recipe is None:
        return {
            "clear": None,
            "sentence": "the recipe's own settings failed, so there is nothing to compare with",
        }
    gain = sign * (best - recipe)
    if number == 0 or gain <= 0:
        return {"clear": False, "gain": 0.0, "sentence": "no setting found is better than the recipe"}
    words = f"{study.metric} {recipe:.4g} -> {best:.4g} on the validation split"
    if noise is None:
        sentence = f"{words}; how much of it is chance was not measured: other seeds would take too long"
        return {"clear": None, "gain": gain, "sentence": sentence}
    mean_gain, spread = sign * (best - noise["mean"]), _CLEAR * noise["deviation"]
    by_chance = f"the recipe alone varies by ±{noise['deviation']:.2g} with the seed"
    on_test = None if test is None or None in (test.get("best"), test.get("recipe")) else test
    if mean_gain <= spread:
        sentence = f"no setting found is clearly better than the recipe: {words}, but {by_chance}"
        return {"clear": False, "gain": mean_gain, "sentence": sentence}
    if on_test is not None and sign * (on_test["best"] - on_test["recipe"]) <= 0:
        sentence = f"no setting found is clearly better than the recipe: {words}, but not on the test split"
        return {"clear": False, "gain": mean_gain, "sentence": sentence}
    return {"clear": True, "gain": mean_gain, "sentence": f"better than the recipe: {words}; {by_chance}"}


def _counts(ledger: Ledger) -> dict[str, int]:
    failed = sum(trial.failure is not None for trial in ledger.trials)
    complete = sum(trial.is_complete and trial.failure is None for trial in ledger.trials)
    return {
        "trials": len(ledger.trials),
        "complete": complete,
        "stopped_early": len(ledger.trials) - complete - failed,
        "failed": failed,
        "repeats": len(ledger.repeats()),
    }


def _trial(study: StudyRecord, folder: Path, trial: Trial) -> dict[str, Any]:
    run = folder / TRIALS / f"{trial.number:04d}"
    rows = [row for row in read_rows(run / "metrics.jsonl") if "rate" not in row and study.metric in row]
    state = "failed" if trial.failure is not None else "complete" if trial.is_complete else "stopped early"
    return {
        "trial": trial.number,
        "state": state,
        "failure": trial.failure,
        "settings": trial.asked.settings,
        "params": trial.asked.params,
        "value": trial.values.get(trial.rung),
        "steps": trial.asked.rungs[trial.rung] if trial.values else 0,
        "rungs": {str(trial.asked.rungs[rung]): value for rung, value in trial.values.items()},
        "curve": [
            {"step": row["step"], "seconds": row.get("time"), "value": row[study.metric]} for row in rows
        ],
        "seconds": read_record(run, "status.json").get("train_seconds", 0.0),
        "run": str(run),
    }


def show(report: Mapping[str, Any], folder: Path, screen: Screen) -> None:
    """Show the best trials, the changed settings, and what the result is worth."""
    _show_trials(report, screen)
    changes = report["best"]["changes"].items()
    rows = [(key, text(change["from"]), text(change["to"])) for key, change in changes]
    if rows:
        screen.table(f"trial {report['best']['trial']}", ("setting", "recipe", "best"), rows, numbers=False)
    counts, noise = report["counts"], report["recipe"]["noise"]
    screen.info(
        f"{counted(counts['trials'], 'trial')} in {format_duration(report['seconds'])}: "
        f"{counts['complete']} complete, {counts['stopped_early']} stopped early, {counts['failed']} failed"
    )
    if noise is not None:
        values = ", ".join(f"{value:.4g}" for value in noise["values"])
        screen.info(f"the recipe with {len(noise['values'])} seeds: {values}")
    if (test := report["test"]) is not None:
        _show_test(report, test, screen)
    screen.info(f"result: {report['verdict']['sentence']}")
    screen.info(f"best settings: {folder / BEST} (boxcrew train recipe=study={folder}:best)")


def _show_trials(report: Mapping[str, Any], screen: Screen) -> None:
    sign = -1.0 if report["higher_is_better"] else 1.0
    tried = [trial for trial in report["trials"] if trial["value"] is not None]
    # Longer trainings come first: values after a part of the steps are not to be compared with them.
    tried.sort(key=lambda trial: (-len(trial["rungs"]), trial["state"] != "complete", sign * trial["value"]))
    rows = [
        (
            str(trial["trial"]),
            f"{trial['value']:.4g}",
            str(trial["steps"]),
            trial["state"],
            words(trial["settings"]),
        )
        for trial in tried[:_SHOWN]
    ]
    screen.table(
        "best trials", ("trial", report["metric"], "steps", "state", "settings"), rows, numbers=False
    )


def _show_test(report: Mapping[str, Any], test: Mapping[str, Any], screen: Screen) -> None:
    parts = [f"{name} {value:.4g}" for name in ("best", "recipe") if (value := test.get(name)) is not None]
    best = test.get("best")
    if best is not None:
        sign = 1.0 if report["higher_is_better"] else -1.0
        flattery = sign * (report["best"]["value"] - best)
        parts.append(f"validation flatters the best by {flattery:+.2g}")
    screen.info(f"test split, {report['metric']}: {', '.join(parts)}")
