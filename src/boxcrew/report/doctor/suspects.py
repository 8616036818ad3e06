"""Labels of a data set that a trained detector contradicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.types import Floats, Image
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.detection.evaluator import DetectionEvaluator
from boxcrew.evaluate.detection.suspects import Suspect, suspects_of
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.tasks.base import TASKS
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import load_task

_BATCH = 16


@dataclass(frozen=True)
class _Proposed:
    """The regions of records, proposed when they are asked for."""

    source: Source
    propose: Callable[[Image], Floats]

    def __call__(self, record: Record) -> Floats:
        return self.propose(self.source.read(record))


def find_suspects(
    run: Path, source: Source, screen: Screen, *, limit: int = 24, device: str = "auto"
) -> tuple[Suspect, ...]:
    """Return the labels of all splits that the best weights of `run` (a run directory or file) contradict.
    Labels of classes that the run does not know are ignored. See `suspects_of` for `limit`.
    """
    loaded = load_task(run, device=device, batch=_BATCH)
    if source.classes != loaded.task.network.classes:
        source = source.with_classes(loaded.task.network.classes)
    kind = TASKS.get(loaded.config.name)
    predict = kind.predictor(loaded.config, loaded.task, loaded.deployment.to_device)
    workers = Workers(num=loaded.deployment.plan.loader_workers)
    evaluated: dict[str, tuple[EvaluatedImage, ...]] = {}
    total = sum(map(len, source.splits.values()))
    with loaded.deployment, screen.progress("comparing labels with detections") as progress:
        for split, records in source.splits.items():
            evaluate = DetectionEvaluator(
                source=source,
                images=source,
                records=records,
                batch=_BATCH,
                workers=workers,
                regions=None if predict.propose is None else _Proposed(source, predict.propose),
            )
            evaluation = evaluate(
                predict, progress=lambda done: progress(sum(map(len, evaluated.values())) + done, total)
            )
            evaluated[split] = evaluation.images
            for problem in evaluation.skipped:
                screen.warn(f"left out: {problem}")
    return suspects_of(evaluated, source.classes, limit=limit)
