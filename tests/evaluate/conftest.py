"""Judged images for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boxcrew.core.types import Detections, Target
from boxcrew.evaluate.detection.types import EvaluatedImage

Judge = Callable[..., EvaluatedImage]


@pytest.fixture(scope="session")
def judge() -> Judge:
    """Makes one image from its target and detections given as (label, score, box), in any order."""

    def make(target: Target, rows: list[tuple[int, float, list[float]]], key: str = "a") -> EvaluatedImage:
        best_first = sorted(rows, key=lambda row: -row[1])
        detections = Detections.of(
            boxes=torch.tensor([row[2] for row in best_first], dtype=torch.float32).reshape(-1, 4),
            scores=torch.tensor([row[1] for row in best_first], dtype=torch.float32),
            labels=torch.tensor([row[0] for row in best_first], dtype=torch.int64),
        )
        return EvaluatedImage(key=key, width=640, height=480, target=target, detections=detections)

    return make


def perturbed(target: Target, size: tuple[int, int], random: np.random.Generator) -> Detections:
    """Return detections of a middling detector: boxes shaken, lost, doubled, mislabeled, and false."""
    repeats = random.choice([0, 1, 1, 1, 2], size=len(target))
    boxes, labels = np.repeat(target.boxes, repeats, axis=0), np.repeat(target.labels, repeats)
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    shaken = boxes + random.normal(0, 0.08, boxes.shape) * sides
    wrong = random.random(len(labels)) < 0.15
    labels = np.where(wrong, random.integers(0, 8, len(labels)), labels)
    num_false = random.integers(0, 6)
    corner = random.random((num_false, 2)) * size
    false = np.concatenate([corner, corner + random.random((num_false, 2)) * size], axis=1)
    every = np.concatenate([shaken, false])
    labels = np.concatenate([labels, random.integers(0, 8, num_false)])
    scores = random.random(len(labels))
    order = np.argsort(-scores)
    return Detections.of(
        boxes=torch.tensor(every[order], dtype=torch.float32),
        scores=torch.tensor(scores[order], dtype=torch.float32),
        labels=torch.tensor(labels[order], dtype=torch.int64),
    )


@pytest.fixture(scope="session")
def fashion_truth(shared_data: Path) -> dict[str, Any]:
    """The JSON of the validation split, with every 25th object made a crowd."""
    truth = json.loads((shared_data / "fashion8_coco/annotations/instances_val.json").read_text())
    for annotation in truth["annotations"][::25]:
        annotation["iscrowd"] = 1
    result: dict[str, Any] = truth
    return result


@pytest.fixture(scope="session")
def fashion(fashion_truth: dict[str, Any]) -> list[EvaluatedImage]:
    """Return the same images as targets with made-up detections."""
    random = np.random.default_rng(7)
    evaluated = []
    for image in fashion_truth["images"]:
        mine = [
            annotation for annotation in fashion_truth["annotations"] if annotation["image_id"] == image["id"]
        ]
        xywh = np.array([annotation["bbox"] for annotation in mine], dtype=np.float32).reshape(-1, 4)
        target = Target.of(
            np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1),
            [annotation["category_id"] - 1 for annotation in mine],
            difficult=random.random(len(mine)) < 0.1,
            crowd=[annotation["iscrowd"] for annotation in mine],
        )
        detections = perturbed(target, (image["width"], image["height"]), random)
        evaluated.append(
            EvaluatedImage(
                key=image["file_name"],
                width=image["width"],
                height=image["height"],
                target=target,
                detections=detections,
            )
        )
    return evaluated
