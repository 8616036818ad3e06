"""The Python interface of boxcrew, with the same settings as on the command line."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Self

from rich.console import Console

from boxcrew.core.config import Tree, put, read_yaml
from boxcrew.core.errors import BoxcrewError, DataError, UsageError
from boxcrew.core.types import Detections, Image
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_image
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.hardware.machine import Machine
from boxcrew.plan.plan import Plan
from boxcrew.recipes import DEFAULT, RECIPES
from boxcrew.report.plots.labels import plot_labels
from boxcrew.report.plots.plan import plot_plan
from boxcrew.report.plots.run import write_plots
from boxcrew.report.predictions import Result
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import explain, resume, train
from boxcrew.train.run.loading import Loaded, Which, load_task
from boxcrew.train.run.replicas import serve, track
from boxcrew.train.run.validate import ValConfig, validate


def run_config(start: str | None, settings: Tree) -> RunConfig:
    """Return the settings of a run: those of a recipe (or a YAML file), overridden by `settings`."""
    settings = dict(settings)
    named = settings.pop("recipe", None)
    if start and named and start != named:
        raise UsageError(f"two recipes: {start} and recipe={named}")
    start = start or named
    if start is not None and Path(start).suffix in {".yaml", ".yml"}:
        stored = read_yaml(Path(start))
        return run_config(stored.pop("recipe", None), stored).changed(settings)
    return RECIPES.get(start or DEFAULT)().changed(settings)


def train_run(config: RunConfig, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Train, and draw the plots."""
    return _with_plots(train(config, screen, group), screen)


def plan_run(
    config: RunConfig,
    screen: Screen,
    machine: Machine | None = None,
    *,
    with_steps: bool = False,
    drawing: Path | None = None,
) -> dict[str, Any]:
    """Return the plan of a run with explanations; nothing is trained, and only `drawing` is written.
    The plan is for `machine`, or for this one, on which `with_steps` measures a few steps first.
    """
    plan, explained = explain(config, screen, machine, with_steps=with_steps)
    if drawing is not None and plan.predicted is not None:
        plot_plan(plan.predicted, drawing, title=plan.explain()[0])
        screen.say(f"drawing: {drawing}")
    return explained


def work_for_run(group: ReplicaGroup) -> None:
    """Work as a replica of a run other than the chief, until it ends."""
    track(group, Screen())


def serve_run(group: ReplicaGroup) -> None:
    """Work as a parameter server of a run, until it ends."""
    serve(group, Screen())


def resume_run(folder: Path, changes: Tree, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    return _with_plots(resume(folder, changes, screen, group), screen)


def _with_plots(outcome: Outcome, screen: Screen) -> Outcome:
    files = BestEffort(screen.warn)
    with files.writing("plots"):
        _draw(outcome)
    screen.say(f"results: {outcome.folder} (weights/best.safetensors, plots/, summary.json)")
    board = outcome.folder / "tensorboard"
    if board.is_dir():
        screen.say(f"curves: tensorboard --logdir {board}")
    trouble = [*([outcome.trouble] if outcome.trouble else []), *files.problems()]
    if trouble:
        raise BoxcrewError(
            f"{outcome.folder}: not all files could be written: {'; '.join(trouble)}",
            advice="free some disk space, then: boxcrew resume run=" + str(outcome.folder),
        )
    return outcome


def _draw(outcome: Outcome) -> None:
    for folder in (outcome.folder, *outcome.stage_folders):
        write_plots(folder)
    plan = Plan.read(outcome.folder / "plan.json", setting="plan")
    if plan.predicted is not None:
        plot_plan(plan.predicted, outcome.folder / "plots" / "plan.png", title=plan.explain()[0])
    _draw_labels(outcome.task_data, outcome.folder / "plots" / "labels.png")


def _draw_labels(task_data: TaskData, file: Path) -> None:
    objects = task_data.train_objects()
    if objects is not None:
        targets, sizes = objects
        plot_labels(targets, tuple(task_data.facts["classes"]), sizes, file)


class Detector:
    """A trained detector.
    `Detector.load("runs/detect/train").predict("shelf.jpg").plot()`
    """

    def __init__(self, loaded: Loaded, path: Path) -> None:
        self._loaded = loaded
        self._path = path
        kind = TASKS.get(loaded.config.name)
        self._predictor = kind.predictor(loaded.config, loaded.task, loaded.deployment.to_device)
        self.classes: tuple[str, ...] = loaded.task.network.classes

    @classmethod
    def load(cls, path: str | Path, *, weights: Which = "best", device: str = "auto") -> Self:
        """Load a run directory, or a weight file of one."""
        return cls(load_task(Path(path), which=weights, device=device), Path(path))

    @classmethod
    def train(cls, recipe: str | None = None, *, verbose: bool = True, **settings: Any) -> Self:
        """Train, and load the best weights.
        Settings are those of the command line: `data="photos"`, `epochs=20`, `optim={"rate": 1e-3}`.
        """
        tree: Tree = {}
        for key, value in settings.items():
            put(tree, key, str(value) if isinstance(value, Path) else value)
        screen = Screen(Console(stderr=True) if verbose else None)
        outcome = train_run(run_config(recipe, tree), screen)
        return cls.load(outcome.folder)

    def val(self, data: str | Path | None = None, *, split: str = "val", batch: int = 16) -> dict[str, Any]:
        """Return the report on a data set, by default the run's own: `report["numbers"]["AP50"]`."""
        config = ValConfig(
            run=self._path, data=str(data) if data is not None else None, split=split, batch=batch
        )
        report: dict[str, Any] = validate(config, Screen())["best"]
        return report

    def predict(self, image: str | Path | Image, *, score: float = 0.25) -> Result:
        """Detect objects in one image: a file, or an RGB array (H, W, 3) of 0..255."""
        if isinstance(image, str | Path):
            return self._results([(Path(image), read_image(Path(image)))], score)[0]
        return self._results([(None, image)], score)[0]

    def predict_many(
        self, source: str | Path | Iterable[str | Path], *, score: float = 0.25, batch: int = 8
    ) -> Iterator[Result]:
        """Detect objects in a file, a folder, a glob pattern or several files, `batch` images at a time."""
        paths = iter(find_images(source))
        groups = iter(lambda: list(islice(paths, batch)), [])
        # The next images are read while the network runs: decoding releases the interpreter.
        with ThreadPoolExecutor(max_workers=1) as reader:
            coming = _submit(reader, groups)
            while coming is not None:
                images, coming = coming.result(), _submit(reader, groups)
                yield from self._results(images, score)

    def _results(self, images: Sequence[tuple[Path | None, Image]], score: float) -> list[Result]:
        with self._loaded.deployment:
            predictions, _ = self._predictor([image for _, image in images])
        return [
            Result(path=path, image=image, detections=_above(detections, score), classes=self.classes)
            for (path, image), detections in zip(images, predictions, strict=True)
        ]


def _submit(
    reader: ThreadPoolExecutor, groups: Iterator[list[Path]]
) -> Future[list[tuple[Path, Image]]] | None:
    """Start to read the next group of images; None if there is none."""
    group = next(groups, None)
    return None if group is None else reader.submit(lambda: [(path, read_image(path)) for path in group])


def find_images(source: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return image files in order of name; `DataError` if there is none."""
    if not isinstance(source, str | Path):
        return [Path(file) for file in source]
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    else:
        files = sorted(Path(p) for p in glob.glob(str(source), recursive=True) if Path(p).is_file())  # noqa: PTH207 - patterns may be absolute
    if not files:
        raise DataError(f"source={source}: no image found", advice="give an image, a folder or a 'glob*.jpg'")
    return files


def _above(detections: Detections, score: float) -> Detections:
    keep = detections.scores >= score
    return Detections(
        boxes=detections.boxes[keep], scores=detections.scores[keep], labels=detections.labels[keep]
    )
