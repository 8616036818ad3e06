"""Runs as the command line and Python start them: settings from a recipe, training with plots, plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import BoxcrewError, UnknownSettingError, UsageError
from boxcrew.core.storage.address import Location
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.hardware.machine import Machine
from boxcrew.plan.plan import Plan
from boxcrew.recipes import DEFAULT, RECIPES
from boxcrew.report.plots.labels import plot_labels
from boxcrew.report.plots.plan import plot_plan
from boxcrew.report.plots.run import write_plots
from boxcrew.train.bucket.working_copy import RunLocation, run_location
from boxcrew.train.config import RunConfig
from boxcrew.train.foreign_words import dotted_keys, with_hint
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import explain, resume, train

WEIGHT_SUFFIXES = frozenset({".pt", ".pth", ".safetensors", ".ckpt", ".onnx"})


def run_config(start: str | None, settings: Tree) -> RunConfig:
    """Return the settings of a run: those of a recipe (or a YAML file), overridden by `settings`."""
    settings = dict(settings)
    named = settings.pop("recipe", None)
    if start and named and start != named:
        raise UsageError(f"two recipes: {start} and recipe={named}")
    base = _start_config(start or named or DEFAULT)
    try:
        return base.changed(settings)
    except UnknownSettingError as error:
        raise with_hint(error, dotted_keys(settings)) from None


def _start_config(start: str) -> RunConfig:
    """Return the settings of a recipe, or of a YAML file; a path of another kind gets advice."""
    if start in RECIPES.names():
        return RECIPES.get(start)()
    if start.startswith("study="):
        return run_config(None, read_yaml(_best_of_study(start)))
    path = Path(start)
    if path.suffix in {".yaml", ".yml"}:
        stored = read_yaml(path)
        if "names" in stored and {"train", "val", "path"} & stored.keys():
            raise UsageError(f"{start}: describes a data set, not a run", advice=f"train on it: data={start}")
        return run_config(stored.pop("recipe", None), stored)
    if path.suffix in WEIGHT_SUFFIXES:
        problem, advice = f"{start}: weights, not a recipe", f"init=finetune init.checkpoint={start}"
        raise UsageError(problem, advice=f"to start from them: {advice}")
    if (path / "config.yaml").is_file():
        raise UsageError(f"{start}: a run, not a recipe", advice=f"boxcrew resume run={start} continues it")
    if path.exists() or "/" in start:
        raise UsageError(f"{start}: not a recipe", advice=f"a data set is given as data={start}")
    return RECIPES.get(start)()


def _best_of_study(start: str) -> Path:
    """Return the file of settings that `study=DIR:best` stands for; `UsageError` if there is none."""
    folder, _, which = start.removeprefix("study=").rpartition(":")
    if which != "best":
        raise UsageError(f"recipe={start}: no such recipe", advice="write recipe=study=DIR:best")
    file = Path(folder) / "best.yaml"
    if not file.is_file():
        raise UsageError(
            f"recipe={start}: there is no {file}", advice=f"boxcrew tune resume study={folder} ends it"
        )
    return file


def train_run(config: RunConfig, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Train, and draw the plots. With `out` a URL, everything is stored there."""
    with run_location(config.out, screen, is_new=True) as location:
        config = config.model_copy(update={"out": location.folder})
        return _finished(train(config, screen, group), location, screen)


def plan_run(
    config: RunConfig,
    screen: Screen,
    machine: Machine | None = None,
    *,
    with_steps: bool = False,
    drawing: Path | None = None,
) -> dict[str, Any]:
    """Return the plan of a run, or those of its stages, with explanations; nothing is trained, and only
    `drawing` is written, of a run without stages. The plan is for `machine`, or for this one, on which
    `with_steps` measures a few steps first.
    """
    explained = explain(config, screen, machine, with_steps=with_steps)
    if drawing is not None:
        (plan,) = explained.plans
        if plan.predicted is not None:
            plot_plan(plan.predicted, drawing, title=plan.explain()[0])
            screen.info(f"drawing: {drawing}")
    return explained.tree


def resume_run(run: Location, changes: Tree, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Continue a run in a directory or under a URL, and draw the plots."""
    with run_location(run, screen, is_new=False) as location:
        assert location.folder is not None
        return _finished(resume(location.folder, changes, screen, group), location, screen)


def _finished(outcome: Outcome, location: RunLocation, screen: Screen) -> Outcome:
    location.save()  # before the plots: a machine that is taken away may leave no time for them
    outcome = replace(_with_plots(outcome, screen), url=location.url)
    if outcome.interrupted and location.url is not None:
        screen.info(f"to continue on any computer: boxcrew resume run={location.url}")
    return outcome


def _with_plots(outcome: Outcome, screen: Screen) -> Outcome:
    files = BestEffort(screen.warn)
    with files.writing("plots"), screen.progress("drawing the plots"):
        _draw(outcome)
    screen.info(f"results: {outcome.folder}{_named_results(outcome.folder)}")
    if (board := outcome.folder / "tensorboard").is_dir():
        screen.info(f"curves: tensorboard --logdir {board}")
    if trouble := [*([outcome.trouble] if outcome.trouble else []), *files.problems()]:
        problem = f"{outcome.folder}: not all files could be written: {'; '.join(trouble)}"
        advice = f"free some disk space, then: boxcrew resume run={outcome.folder}"
        raise BoxcrewError(problem, advice=advice)
    return outcome


def _named_results(folder: Path) -> str:
    """Return the names of the most important results that are there, in brackets."""
    weights = [f"weights/{name}.safetensors" for name in ("best", "last")]
    names = [name for name in weights if (folder / name).is_file()][:1]
    names += ["plots/"] if any((folder / "plots").glob("*")) else []
    names += ["summary.json"] if (folder / "summary.json").is_file() else []
    return f" ({', '.join(names)})" if names else ""


def _draw(outcome: Outcome) -> None:
    for folder in (outcome.folder, *outcome.stage_folders):
        write_plots(folder)
    latest = (outcome.folder, *outcome.stage_folders)[-1]
    plan = Plan.read(latest / "plan.json", setting="plan")
    if plan.predicted is not None:
        plot_plan(plan.predicted, outcome.folder / "plots" / "plan.png", title=plan.explain()[0])
    if (records := outcome.task_data.train_records()) is not None:
        plot_labels(records, outcome.task_data.facts.classes, outcome.folder / "plots" / "labels.png")
