"""The time to compute the AP of many detections: ours, against pycocotools."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from bench.row import Row, alternate_figures
from boxcrew.core.types import Detections, Target
from boxcrew.evaluate.detection.coco import coco_scores, ground_truth, results
from boxcrew.evaluate.detection.types import EvaluatedImage

CLASSES, SIDE = 80, 640
OBJECTS, FOUND = 7, 40  # per image, about as in COCO


def rows(*, images: int = 2000, repeats: int = 3) -> list[Row]:
    evaluated = _examples(images)
    sides = [partial(_time, partial(side, evaluated)) for side in (_ours, _theirs)]
    ours, theirs = alternate_figures(sides, repeats=repeats)
    assert abs(ours["AP"] - theirs["AP"]) < 1e-6, (ours, theirs)
    ratio = theirs["cpu_seconds"] / ours["cpu_seconds"]
    return [
        Row(
            what=f"AP of {images:,} images with {FOUND} detections each, against pycocotools",
            ours=f"{ours['seconds']:.2f} s",
            theirs=f"{theirs['seconds']:.2f} s",
            verdict=f"{ratio:.1f} x (aim: faster)",
            command="python -m bench average_precision",
            detail=f"{CLASSES} classes, {OBJECTS} objects an image, drawn; both begin with boxes in memory "
            f"and give the same AP; medians of {repeats}, taking turns; ratio of CPU seconds, "
            f"{ours['cpu_seconds']:.2f} against {theirs['cpu_seconds']:.2f}",
        )
    ]


def _ours(evaluated: list[EvaluatedImage]) -> float:
    return coco_scores(evaluated, num_classes=CLASSES).numbers["AP"]


def _theirs(evaluated: list[EvaluatedImage]) -> float:
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = ground_truth(evaluated, num_classes=CLASSES)
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results(evaluated)), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])


def _time(compute: Callable[[], float]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    ap = compute()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "AP": ap,
    }


def _examples(num_images: int) -> list[EvaluatedImage]:
    """Return images whose objects are each detected about twice; the other detections are random."""
    rng = np.random.default_rng(0)
    return [_example(rng, str(i)) for i in range(num_images)]


def _example(rng: np.random.Generator, key: str) -> EvaluatedImage:
    boxes, labels = _boxes(rng, OBJECTS), rng.integers(0, CLASSES, OBJECTS)
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    near = [boxes + rng.normal(0, 0.08, boxes.shape) * sides for _ in range(2)]
    found = np.concatenate((*near, _boxes(rng, FOUND - 2 * OBJECTS)))
    guesses = np.concatenate((labels, labels, rng.integers(0, CLASSES, FOUND - 2 * OBJECTS)))
    return EvaluatedImage(
        key=key,
        width=SIDE,
        height=SIDE,
        target=Target.of(boxes, labels),
        detections=Detections.of(
            boxes=torch.from_numpy(found.astype(np.float32)),
            scores=torch.from_numpy(rng.random(FOUND).astype(np.float32)),
            labels=torch.from_numpy(guesses),
        ),
    )


def _boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    sides = SIDE * np.exp(rng.uniform(np.log(0.02), np.log(0.6), (count, 2)))
    corners = rng.uniform(0, 1, (count, 2)) * (SIDE - sides)
    return np.concatenate((corners, corners + sides), axis=1)
