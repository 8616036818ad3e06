from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from boxcrew.core.types import Detections
from boxcrew.data.images.reading import read_image
from boxcrew.data.images.source_image import DecodedImage
from boxcrew.data.images.video import VideoFrame
from boxcrew.report.generated_images import GeneratedImages
from boxcrew.report.predictions import ClassResult, Result
from boxcrew.report.predictions_folder import ClassFile, PredictionFolder

CLASSES = ("phone", "books")


def result(name: str | None = "a/photo.jpg") -> Result:
    detections = Detections.of(
        boxes=torch.tensor([[10.0, 20.0, 60.0, 80.0], [0.0, 0.0, 100.0, 50.0]]),
        scores=torch.tensor([0.9, 0.5]),
        labels=torch.tensor([1, 0]),
    )
    image = np.zeros((100, 200, 3), dtype=np.uint8)
    path = Path(name) if name else None
    return Result(path=path, source=DecodedImage(image), detections=detections, classes=CLASSES)


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


def test_a_name_that_a_number_would_give_stays_with_its_image(tmp_path: Path) -> None:
    folder = PredictionFolder(tmp_path / "out", CLASSES)
    for name in (
        "a/photo.jpg",
        "a/photo-2.jpg",
        "b/photo.jpg",
        "c/photo.jpg",
        "https://x.org/a%20b.jpg?c=/d",
    ):
        folder.add(result(name) if "://" not in name else replace(result(None), name=name))
    folder.close()
    names = sorted(path.stem for path in (tmp_path / "out" / "labels").iterdir())
    assert names == ["d", "photo", "photo-2", "photo-3", "photo-4"]
    coco = json.loads((tmp_path / "out" / "coco.json").read_text())
    assert [image["file_name"] for image in coco["images"]][2:4] == ["b/photo.jpg", "c/photo.jpg"]
    assert coco["images"][-1]["file_name"] == "https://x.org/a%20b.jpg?c=/d"


def test_files_without_results_are_valid_too(tmp_path: Path) -> None:
    PredictionFolder(tmp_path / "out", CLASSES).close()
    assert json.loads((tmp_path / "out" / "predictions.json").read_text()) == []
    coco = json.loads((tmp_path / "out" / "coco.json").read_text())
    assert (coco["images"], coco["annotations"], len(coco["categories"])) == ([], [], 2)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "coco.json", "images", "labels", "predictions.json",
    }  # fmt: skip


def test_the_file_of_classes_is_an_array(tmp_path: Path) -> None:
    file = ClassFile(tmp_path)
    probabilities = np.array([0.25, 0.75], dtype=np.float32)
    for name in ("a", "\udcff"):  # the second is of a file name that is not UTF-8
        file.add(ClassResult(source=name, probabilities=probabilities, classes=CLASSES))
    file.close()
    first, second = json.loads((tmp_path / "predictions.json").read_text())
    assert first["classes"][0] == {"name": "books", "probability": 0.75}
    assert second["source"] == "\udcff"


def test_a_result_is_short_to_show_and_easy_to_go_through() -> None:
    prediction = result()
    assert repr(prediction) == "Result(a/photo.jpg, 200 x 100, 1 books, 1 phone)"
    assert len(prediction) == 2
    first, second = prediction
    assert (first.name, first.label, first.box) == ("books", 1, (10.0, 20.0, 60.0, 80.0))
    box, score, label, name = second
    assert (box, score, label, name) == ((0.0, 0.0, 100.0, 50.0), 0.5, 0, "phone")
    frame = VideoFrame(number=12, seconds=0.4804, image=prediction.image)
    in_video = replace(prediction, path=None, frame=frame)
    assert repr(in_video).startswith("Result(frame 12, ")
    assert list(in_video.to_json().items())[:2] == [("frame", 12), ("seconds", 0.48)]


def test_other_results_are_short_to_show_too() -> None:
    classes = ClassResult(source=None, probabilities=np.array([0.5, 0.25, 0.25]), classes=("a", "b", "c"))
    assert repr(classes) == "ClassResult(sample, a 0.50)"
    images = GeneratedImages(torch.zeros(3, 1, 28, 20, dtype=torch.uint8))
    assert (repr(images), len(images)) == ("GeneratedImages(3 images of 20 x 28)", 3)


def test_plot_is_a_new_picture(tmp_path: Path) -> None:
    prediction = result(None)
    assert prediction.plot().any()
    assert not prediction.image.any()
    assert read_image(prediction.save(tmp_path / "x.png")).any()
    assert prediction.to_json()["image"] is None
