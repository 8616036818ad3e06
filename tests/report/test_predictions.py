from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Detections
from boxcrew.data.images.reading import read_image
from boxcrew.report.predictions import PredictionFolder, Result

CLASSES = ("phone", "books")


def result(name: str | None = "a/photo.jpg") -> Result:
    detections = Detections(
        boxes=torch.tensor([[10.0, 20.0, 60.0, 80.0], [0.0, 0.0, 100.0, 50.0]]),
        scores=torch.tensor([0.9, 0.5]),
        labels=torch.tensor([1, 0]),
    )
    image = np.zeros((100, 200, 3), dtype=np.uint8)
    return Result(path=Path(name) if name else None, image=image, detections=detections, classes=CLASSES)


def test_all_forms_say_the_same(tmp_path: Path) -> None:
    folder = PredictionFolder(tmp_path / "out", CLASSES)
    folder.add(result())
    folder.add(result("b/photo.jpg"))
    folder.close()
    out = tmp_path / "out"
    plain = json.loads((out / "predictions.json").read_text())
    assert plain[0]["detections"][0] == {"class": "books", "score": 0.9, "box": [10, 20, 60, 80]}
    coco = json.loads((out / "coco.json").read_text())
    assert coco["annotations"][0]["bbox"] == [10, 20, 50, 60]
    assert coco["categories"][coco["annotations"][0]["category_id"]]["name"] == "books"
    assert [a["image_id"] for a in coco["annotations"]] == [0, 0, 1, 1]
    lines = (out / "labels" / "photo.txt").read_text().splitlines()
    assert [float(x) for x in lines[0].split()] == pytest.approx([1, 0.175, 0.5, 0.25, 0.6, 0.9])
    assert sorted(p.name for p in (out / "images").iterdir()) == ["photo-2.jpg", "photo.jpg"]
    assert read_image(out / "images" / "photo.jpg").shape == (100, 200, 3)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        PredictionFolder(tmp_path, CLASSES)


def test_plot_is_a_new_picture(tmp_path: Path) -> None:
    prediction = result(None)
    assert prediction.plot().any()
    assert not prediction.image.any()
    assert read_image(prediction.save(tmp_path / "x.png")).any()
    assert prediction.to_json()["image"] is None
