from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boxcrew
from boxcrew.api import Detector, find_images
from boxcrew.core.errors import DataError, ModelError
from boxcrew.data.images.reading import read_image


def test_detector_is_what_the_package_offers() -> None:
    assert boxcrew.Detector is Detector


def test_predict_a_photo_and_an_array_are_the_same(tiny_run: Path, tiny_set: Path) -> None:
    detector = Detector.load(tiny_run)
    photo = sorted((tiny_set / "JPEGImages").iterdir())[0]
    from_file = detector.predict(photo, score=0.0)
    from_array = detector.predict(read_image(photo), score=0.0)
    assert len(from_file.boxes) > 0
    np.testing.assert_array_equal(from_file.boxes, from_array.boxes)
    assert from_file.plot().shape == from_file.image.shape
    assert (np.diff(from_file.scores) <= 0).all()
    height, width = from_file.image.shape[:2]
    assert (from_file.boxes >= 0).all()
    assert (from_file.boxes <= [width, height, width, height]).all()


def test_predict_many_equals_one_by_one(tiny_run: Path, tiny_set: Path) -> None:
    detector = Detector.load(tiny_run)
    folder = tiny_set / "JPEGImages"
    together = list(detector.predict_many(folder, score=0.05, batch=3))
    assert [one.path for one in together] == find_images(folder)
    for one in together:
        assert one.path is not None
        alone = detector.predict(one.path, score=0.05)
        np.testing.assert_allclose(one.boxes, alone.boxes, atol=1e-2)
        assert one.names == alone.names


def test_val_says_what_training_said(tiny_run: Path) -> None:
    report = Detector.load(tiny_run).val()
    assert report["numbers"].keys() >= {"AP", "AP50", "AP75", "AP50_voc07", "AP50_voc12"}


def test_train_from_python(tiny_set: Path, tmp_path: Path) -> None:
    detector = Detector.train(
        "starter",
        verbose=False,
        data=tiny_set,
        out=tmp_path / "run",
        steps=1,
        batch=2,
        init="scratch",
        trainable=["*"],
        detector={"backbone": "mobilenetv3_small_050", "size": 96},
        loader={"workers": 0},
    )
    assert detector.classes[0] == "clothes"
    assert (tmp_path / "run" / "summary.json").is_file()


def test_last_weights_can_be_asked_for(tiny_run: Path) -> None:
    assert Detector.load(tiny_run, weights="last").classes == Detector.load(tiny_run).classes


def test_errors_name_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such run or weight file"):
        Detector.load(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"it has no weights/best\.safetensors"):
        Detector.load(tmp_path)
    with pytest.raises(DataError, match="no image found"):
        find_images(tmp_path)
