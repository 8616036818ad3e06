"""The overview of a data set's labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.core.types import Target
from boxcrew.data.detection.records import Record, Records
from boxcrew.report.plots.labels import plot_labels
from boxcrew.report.plots.style import DPI

SIZE = (round(7.4 * DPI), round(13.0 * DPI), 3)


def record(target: Target, size: tuple[int, int]) -> Record:
    return Record(key="a.jpg", path=None, width=size[0], height=size[1], target=target)


def test_a_real_set(shared_data: Path, read_png: Any, tmp_path: Path) -> None:
    truth = json.loads((shared_data / "fashion8_coco/annotations/instances_train.json").read_text())
    records = []
    for image in truth["images"]:
        mine = [annotation for annotation in truth["annotations"] if annotation["image_id"] == image["id"]]
        xywh = np.array([annotation["bbox"] for annotation in mine]).reshape(-1, 4)
        boxes = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
        target = Target.of(boxes, [annotation["category_id"] - 1 for annotation in mine])
        records.append(record(target, (image["width"], image["height"])))
    shown = Records.of(records)
    before = shown.objects().boxes
    plot_labels(shown, [category["name"] for category in truth["categories"]], tmp_path / "labels.png")
    assert read_png(tmp_path / "labels.png").shape == SIZE
    assert (shown.objects().boxes == before).all()


@pytest.mark.parametrize("num_classes", [1, 80])
def test_any_number_of_classes_and_many_boxes(num_classes: int, read_png: Any, tmp_path: Path) -> None:
    corner = np.random.default_rng(0).random((6000, 2)) * 50
    target = Target.of(np.concatenate([corner, corner + 30], axis=1), np.arange(6000) % num_classes)
    records = Records.of([record(target, (100, 100))])
    plot_labels(records, [f"class {i}" for i in range(num_classes)], tmp_path / "labels.png")
    assert read_png(tmp_path / "labels.png").shape == SIZE


@pytest.mark.parametrize("targets", [[], [Target.of([], [])], [Target.of([[1, 1, 1, 5]], [0])]])
def test_hardly_any_labels(targets: list[Target], read_png: Any, tmp_path: Path) -> None:
    records = Records.of(record(target, (64, 48)) for target in targets)
    plot_labels(records, ["phone", "watch"], tmp_path / "labels.png")
    assert read_png(tmp_path / "labels.png").shape == SIZE
