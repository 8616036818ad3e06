"""What a trained detector says against the labels of a whole set, for the doctor's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from boxcrew.data.detection.source import Source
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.detection.evaluator import Evaluator
from boxcrew.evaluate.detection.metric import EvaluatedImage
from boxcrew.evaluate.detection.suspects import Suspect, suspects_of
from boxcrew.tasks.detection import predictor, require_detection
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import load_task

_BATCH = 16


def find_suspects(
    run: Path, source: Source, screen: Screen, *, limit: int = 24, device: str = "auto"
) -> tuple[Suspect, ...]:
    """What the best weights of `run` (a run directory or weight file) say against the labels of all splits of
    `source`; as `suspects_of`. Labels of classes that the run does not know are not judged.
    """
    loaded = load_task(run, device=device, batch=_BATCH)
    if source.classes != loaded.task.network.classes:
        source = source.with_classes(loaded.task.network.classes)
    look = predictor(require_detection(loaded.config), loaded.task, loaded.deployment.to_device)
    workers = Workers(num=loaded.deployment.plan.loader_workers)
    evaluated: dict[str, tuple[EvaluatedImage, ...]] = {}
    with loaded.deployment, screen.progress("comparing labels with what is found") as progress:
        for split, records in source.splits.items():
            evaluator = Evaluator(
                source=source, images=source, records=records, batch=_BATCH, workers=workers
            )
            evaluation = evaluator(look, progress=partial(_tell, progress, source, evaluated))
            evaluated[split] = evaluation.images
            for problem in evaluation.skipped:
                screen.warn(f"left out: {problem}")
    return suspects_of(evaluated, source.classes, limit=limit)


def _tell(
    progress: Callable[[int, int], None],
    source: Source,
    evaluated: Mapping[str, Sequence[EvaluatedImage]],
    done: int,
) -> None:
    """`done` images of a split, after the splits that are `evaluated` already."""
    before = sum(len(images) for images in evaluated.values())
    progress(before + done, sum(len(records) for records in source.splits.values()))
