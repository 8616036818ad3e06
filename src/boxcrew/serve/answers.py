"""Answers: what was found, as JSON, as COCO results, or drawn on the photo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boxcrew.data.images.drawing import class_color, draw_boxes
from boxcrew.data.images.reading import encode_image
from boxcrew.serve.detecting import Finding
from boxcrew.serve.models import ServedModel

_BOX_DIGITS, _SCORE_DIGITS = 3, 6


def detections_json(
    request_id: str, model: ServedModel, findings: Sequence[Finding], score: float
) -> dict[str, Any]:
    """Return the detections with at least a score, best first, in pixels of the upright photos."""
    results = [
        {
            "name": finding.name,
            "width": finding.extent[0],
            "height": finding.extent[1],
            "detections": [
                {"box": box, "score": value, "label": label, "name": model.info.classes[label]}
                for box, value, label in _rows(finding, score)
            ],
            "milliseconds": finding.milliseconds,
        }
        for finding in findings
    ]
    return {"request": request_id, "model": identity(model), "results": results}


def detections_coco(findings: Sequence[Finding], score: float) -> list[dict[str, Any]]:
    """Return COCO's list of results. Images are numbered from 1 as they were sent, classes from 1."""
    return [
        {
            "image_id": number,
            "file_name": finding.name,
            "category_id": label + 1,
            "bbox": [
                box[0],
                box[1],
                round(box[2] - box[0], _BOX_DIGITS),
                round(box[3] - box[1], _BOX_DIGITS),
            ],
            "score": value,
        }
        for number, finding in enumerate(findings, 1)
        for box, value, label in _rows(finding, score)
    ]


def drawn(model: ServedModel, finding: Finding, *, score: float) -> bytes:
    """Return the photo with its boxes, as a JPEG."""
    detections = finding.detections.above(score)
    boxes, labels = detections.boxes, detections.labels
    return encode_image(
        draw_boxes(finding.image.read(), boxes, labels, model.info.classes, detections.scores), quality=90
    )


def identity(model: ServedModel) -> dict[str, str]:
    """Return what says which weights have answered."""
    return {"name": model.name, "digest": model.digest, "version": model.version}


def model_json(model: ServedModel) -> dict[str, Any]:
    """Return what there is to know about a model."""
    info = model.info
    return {
        **identity(model),
        "network": info.network,
        "classes": list(info.classes),
        "colors": ["#{:02x}{:02x}{:02x}".format(*class_color(i)) for i in range(len(info.classes))],
        "size": model.image.size.square,
        "AP": info.scores.get("AP"),
        "AP50": info.scores.get("AP50"),
        "score_threshold": model.rule.score_threshold,
        "suggested_threshold": model.threshold,
        "engine": model.engine,
        "precision": model.predictor.exported.engine.precision,
        "milliseconds": model.times.milliseconds(),
        "loaded": model.loaded.isoformat(timespec="seconds"),
        "samples": len(model.samples),
    }


def _rows(finding: Finding, score: float) -> list[tuple[list[float], float, int]]:
    """Return boxes, scores and labels, rounded to the digits that are significant."""
    detections = finding.detections.above(score)
    return [
        ([round(edge, _BOX_DIGITS) for edge in box], round(value, _SCORE_DIGITS), label)
        for box, value, label in zip(
            detections.boxes.tolist(), detections.scores.tolist(), detections.labels.tolist(), strict=True
        )
    ]
