"""Drawings for people: images with their boxes, and small images with the names of their classes."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boxcrew.core.types import Batch, Image, Ints
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.images.drawing import draw_boxes
from boxcrew.detectors import DetectorNet
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.tasks.data import ImageSheets

SHOWN_PROPOSALS = 10  # more would only clutter an image
SHOWN_SCORE = 0.3  # predictions below would only clutter an image


def render_batch(source: Source, records: Sequence[Record], batch: Batch, num: int) -> ImageSheets:
    """Draw the first samples of a batch before and after augmentation."""
    by_key = {record.key: record for record in records}
    before, after = [], []
    for index, key in enumerate(batch.keys[:num]):
        pixels, target = source.read(by_key[key]), by_key[key].target
        before.append(draw_boxes(pixels, target.boxes, target.labels, source.classes))
        real = batch.targets["labels"][index] >= 0  # others are padding
        image = np.ascontiguousarray(batch.inputs[index].permute(1, 2, 0).numpy())
        boxes, labels = (batch.targets[name][index][real].numpy() for name in ("boxes", "labels"))
        after.append(draw_boxes(image, boxes, labels, source.classes))
    return {"train/before_augmentation": before, "train/after_augmentation": after}


def render_predictions(
    source: Source, records: Sequence[Record], images: Sequence[EvaluatedImage]
) -> ImageSheets:
    by_key = {record.key: record for record in records}
    labels, predictions = [], []
    for image in images:
        pixels, target, detections = source.read(by_key[image.key]), image.target, image.detections
        labels.append(draw_boxes(pixels, target.boxes, target.labels, source.classes))
        detections = detections.above(SHOWN_SCORE)
        boxes, classes, scores = detections.boxes, detections.labels, detections.scores
        predictions.append(draw_boxes(pixels, boxes, classes, source.classes, scores))
    return {"val/labels": labels, "val/predictions": predictions}


def render_proposals(detector: DetectorNet, batch: Batch, num: int) -> ImageSheets:
    """Draw the best regions that a detector of two stages proposes, by their ranks, in training samples."""
    images = batch.inputs[:num].cpu()
    with torch.inference_mode():
        proposals = detector.proposals(images)
    if proposals is None:
        return {}
    ranks = [str(1 + rank) for rank in range(SHOWN_PROPOSALS)]
    drawn = []
    for image, boxes in zip(images, proposals, strict=True):
        best = boxes[:SHOWN_PROPOSALS].numpy()
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
        drawn.append(draw_boxes(pixels, best, range(len(best)), ranks))
    return {"train/proposals": drawn}


def draw_examples(
    images: Tensor, labels: Ints, classes: Sequence[str], scores: npt.NDArray[np.floating] | None = None
) -> list[Image]:
    """Draw `images`, uint8 (n, C, H, W), each with the name of its class."""
    drawn = []
    for index, label in enumerate(labels.tolist()):
        image = enlarged(images[index])
        frame = [[0, 0, image.shape[1], image.shape[0]]]
        score = None if scores is None else [float(scores[index])]
        drawn.append(draw_boxes(image, frame, [label], classes, score))
    return drawn


def enlarged(pixels: Tensor, *, side: int = 160) -> Image:
    """Return uint8 (C, H, W), C 1 or 3, as RGB of at least `side` pixels in its longer side.

    The factor is an integer, so that pixels stay squares of one color.
    """
    image = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    factor = -(-side // max(image.shape[:2]))
    large = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_NEAREST)
    return np.asarray(large, dtype=np.uint8)
