"""boxcrew from Python, with the same settings as on the command line."""

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
from boxcrew.tasks.detection import DetectionData, predictor, require_detection
from boxcrew.train.config import RunConfig
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import explain, resume, train
from boxcrew.train.run.loading import Loaded, Which, load_task
from boxcrew.train.run.replicas import serve, track
from boxcrew.train.run.validate import ValConfig, validate


def run_config(start: str | None, settings: Tree) -> RunConfig:
    """The settings of a run: a recipe (or a YAML file of settings), with others put over it."""
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
    """Trains and draws the plots."""
    return _with_plots(train(config, screen, group), screen)


def plan_run(
    config: RunConfig,
    screen: Screen,
    machine: Machine | None = None,
    *,
    with_steps: bool = False,
    picture: Path | None = None,
) -> dict[str, Any]:
    """The plan, and who would do what where; nothing is trained, and nothing written but the picture. For
    this machine, on which a few steps may be tried first, or for one that is described.
    """
    plan, explained = explain(config, screen, machine, with_steps=with_steps)
    if picture is not None and plan.predicted is not None:
        plot_plan(plan.predicted, picture, title=plan.explain()[0])
        screen.say(f"picture: {picture}")
    return explained


def follow_run(group: ReplicaGroup) -> None:
    """Works for the chief of a run, in a process that is not the chief."""
    track(group, Screen())


def serve_run(group: ReplicaGroup) -> None:
    """Keeps parameters for a run, in a process that is a parameter server."""
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
        screen.say(f"look: tensorboard --logdir {board}")
    trouble = [*([outcome.trouble] if outcome.trouble else []), *files.problems()]
    if trouble:
        raise BoxcrewError(
            f"{outcome.folder}: not all could be written: {'; '.join(trouble)}",
            advice="make room, then: boxcrew resume run=" + str(outcome.folder),
        )
    return outcome


def _draw(outcome: Outcome) -> None:
    write_plots(outcome.folder)
    plan = Plan.read(outcome.folder / "plan.json", setting="plan")
    if plan.predicted is not None:
        plot_plan(plan.predicted, outcome.folder / "plots" / "plan.png", title=plan.explain()[0])
    if isinstance(outcome.task_data, DetectionData):
        _draw_labels(outcome.task_data, outcome.folder / "plots" / "labels.png")


def _draw_labels(task_data: DetectionData, file: Path) -> None:
    sizes = [(record.width, record.height) for record in task_data.train]
    targets = [record.target for record in task_data.train]
    plot_labels(targets, task_data.source.classes, sizes, file)


class Detector:
    """A trained detector.

    `Detector.load("runs/detect/train").predict("shelf.jpg").plot()`
    """

    def __init__(self, loaded: Loaded, place: Path) -> None:
        self._loaded = loaded
        self._place = place
        self._predictor = predictor(require_detection(loaded.config), loaded.task, loaded.deployment.move)
        self.classes: tuple[str, ...] = loaded.task.network.classes

    @classmethod
    def load(cls, place: str | Path, *, weights: Which = "best", device: str = "auto") -> Self:
        """From a run directory, or a weight file of one."""
        return cls(load_task(Path(place), which=weights, device=device), Path(place))

    @classmethod
    def train(cls, recipe: str | None = None, *, verbose: bool = True, **settings: Any) -> Self:
        """Trains, and gives the best weights. Settings as on the command line: `data="photos"`, `epochs=20`,
        groups as dictionaries: `optim={"rate": 1e-3}`.
        """
        tree: Tree = {}
        for key, value in settings.items():
            put(tree, key, str(value) if isinstance(value, Path) else value)
        screen = Screen(Console(stderr=True) if verbose else None)
        outcome = train_run(run_config(recipe, tree), screen)
        return cls.load(outcome.folder)

    def val(self, data: str | Path | None = None, *, split: str = "val", batch: int = 16) -> dict[str, Any]:
        """The report on a data set, or on the run's own: `report["numbers"]["AP50"]`."""
        config = ValConfig(
            run=self._place, data=str(data) if data is not None else None, split=split, batch=batch
        )
        report: dict[str, Any] = validate(config, Screen())["best"]
        return report

    def predict(self, photo: str | Path | Image, *, score: float = 0.25) -> Result:
        """What is in one photo: a file, or an RGB array (H, W, 3) of 0..255."""
        given = Path(photo) if isinstance(photo, str | Path) else None
        image = read_image(given) if given is not None else photo
        assert not isinstance(image, str | Path)
        return self._results([(given, image)], score)[0]

    def predict_many(
        self, source: str | Path | Iterable[str | Path], *, score: float = 0.25, batch: int = 8
    ) -> Iterator[Result]:
        """The same for a file, a folder, a glob pattern or several files, a few at a time."""
        paths = iter(find_photos(source))
        groups = iter(lambda: list(islice(paths, batch)), [])
        # The next photos are read while the network looks at these: decoding needs no interpreter.
        with ThreadPoolExecutor(max_workers=1) as reader:
            coming = _submit(reader, groups)
            while coming is not None:
                photos, coming = coming.result(), _submit(reader, groups)
                yield from self._results(photos, score)

    def _results(self, photos: Sequence[tuple[Path | None, Image]], score: float) -> list[Result]:
        with self._loaded.deployment:
            found, _ = self._predictor([image for _, image in photos])
        return [
            Result(path=path, image=image, found=_above(one, score), classes=self.classes)
            for (path, image), one in zip(photos, found, strict=True)
        ]


def _submit(
    reader: ThreadPoolExecutor, groups: Iterator[list[Path]]
) -> Future[list[tuple[Path, Image]]] | None:
    """The next group of photos, being read; None if there is none."""
    group = next(groups, None)
    return None if group is None else reader.submit(lambda: [(path, read_image(path)) for path in group])


def find_photos(source: str | Path | Iterable[str | Path]) -> list[Path]:
    """Image files, in order of name; `DataError` if there is none."""
    if not isinstance(source, str | Path):
        return [Path(one) for one in source]
    place = Path(source)
    if place.is_file():
        return [place]
    if place.is_dir():
        found = sorted(p for p in place.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    else:
        found = sorted(Path(p) for p in glob.glob(str(source), recursive=True) if Path(p).is_file())  # noqa: PTH207 - patterns may be absolute
    if not found:
        raise DataError(f"source={source}: no photo there", advice="give a photo, a folder or a 'glob*.jpg'")
    return found


def _above(found: Detections, score: float) -> Detections:
    keep = found.scores >= score
    return Detections(boxes=found.boxes[keep], scores=found.scores[keep], labels=found.labels[keep])
