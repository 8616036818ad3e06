"""The 12 numbers of COCO, computed in memory by faster-coco-eval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Floats
from boxcrew.evaluate.detection.types import EvaluatedImage

_Array = npt.NDArray[np.float64]

COCO_NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
_ALL, _SMALL, _MEDIUM, _LARGE = range(4)  # area ranges: any, < 32², 32²..96², > 96² px
_MAX_1, _MAX_10, _MAX_100 = range(3)  # most detections of a class in an image
_AT_50, _AT_75 = 0, 5  # indices of these IoU in 0.50, 0.55, ... 0.95


@dataclass(frozen=True, kw_only=True)
class CocoScores:
    """The scores of a detector by COCO's rules."""

    numbers: Mapping[str, float]  # by COCO_NAMES; -1 where no object is counted
    AP: tuple[float | None, ...]  # of each class; None if the set has no object of it
    AP50: tuple[float | None, ...]


def coco_scores(images: Sequence[EvaluatedImage], *, num_classes: int) -> CocoScores:
    """Return all 12 numbers, and AP and AP50 of each class, equal to those of pycocotools.

    Detections on crowds do not count. COCO does not know `difficult`: such objects count as any other (the
    VOC numbers leave them out). Areas are those of the boxes.
    """
    precision, recall = _accumulate(images, num_classes)
    overall = precision[..., _ALL, _MAX_100]
    arrays = (
        *(overall, overall[_AT_50], overall[_AT_75]),
        *(precision[..., size, _MAX_100] for size in (_SMALL, _MEDIUM, _LARGE)),
        *(recall[..., _ALL, most] for most in (_MAX_1, _MAX_10, _MAX_100)),
        *(recall[..., size, _MAX_100] for size in (_SMALL, _MEDIUM, _LARGE)),
    )
    means = ((name, _mean(array)) for name, array in zip(COCO_NAMES, arrays, strict=True))
    return CocoScores(
        numbers={name: -1.0 if mean is None else mean for name, mean in means},
        AP=tuple(_mean(overall[:, :, label]) for label in range(num_classes)),
        AP50=tuple(_mean(overall[_AT_50, :, label]) for label in range(num_classes)),
    )


def _accumulate(images: Sequence[EvaluatedImage], num_classes: int) -> tuple[_Array, _Array]:
    """Return precision (IoU, recall, class, area, most), recall (IoU, class, area, most); -1 is undefined."""
    if not images:
        return np.full((10, 101, num_classes, 4, 3), -1.0), np.full((10, num_classes, 4, 3), -1.0)
    from faster_coco_eval import COCO, COCOeval_faster

    truth = COCO(ground_truth(images, num_classes=num_classes))
    evaluation = COCOeval_faster(truth, truth.loadRes(results(images)), iouType="bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    return np.asarray(evaluation.eval["precision"]), np.asarray(evaluation.eval["recall"])


def ground_truth(images: Sequence[EvaluatedImage], *, num_classes: int) -> dict[str, Any]:
    """Return the targets in COCO's annotation format."""
    sizes, annotations = [], list[dict[str, Any]]()
    for number, image in enumerate(images, start=1):
        sizes.append({"id": number, "width": image.width, "height": image.height})
        target = image.target
        for label, box, crowd in zip(target.labels, _xywh(target.boxes), target.crowd, strict=True):
            ids = {"id": len(annotations) + 1, "image_id": number, "category_id": int(label)}  # 0: unmatched
            annotations.append(ids | {"bbox": box, "area": box[2] * box[3], "iscrowd": int(crowd)})
    categories = [{"id": label, "name": str(label)} for label in range(num_classes)]
    return {"images": sizes, "categories": categories, "annotations": annotations}


def results(images: Sequence[EvaluatedImage]) -> list[dict[str, Any]]:
    """Return the detections in COCO's results format."""
    return [
        {"image_id": number, "category_id": label, "bbox": box, "score": score}
        for number, detections in enumerate((image.detections for image in images), start=1)
        for boxes in [_xywh(detections.boxes)]
        for label, box, score in zip(
            detections.labels.tolist(), boxes, detections.scores.tolist(), strict=True
        )
    ]


def _xywh(boxes: Floats) -> list[list[float]]:
    wide = boxes.astype(np.float64)
    wide[:, 2:] -= wide[:, :2]
    result: list[list[float]] = wide.tolist()
    return result


def _mean(values: _Array) -> float | None:
    """Return the mean of the defined values; None if there are none."""
    defined = values[values > -1]
    return float(defined.mean()) if defined.size else None
