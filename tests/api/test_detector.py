from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image as Pillow

import boxcrew
from boxcrew import Detector
from boxcrew.core.errors import DataError, ModelError, UsageError
from boxcrew.data.images.reading import read_image
from boxcrew.report.predictions import Result

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def detector(tiny_run: Path) -> Detector:
    return Detector.load(tiny_run)


@pytest.fixture(scope="module")
def photos(tiny_set: Path) -> list[Path]:
    return sorted((tiny_set / "JPEGImages").iterdir())


def assert_same(result: Result, expected: Result, *, atol: float = 0.0) -> None:
    assert len(expected.boxes) > 0
    assert result.names == expected.names
    np.testing.assert_allclose(result.boxes, expected.boxes, rtol=0, atol=atol)
    np.testing.assert_allclose(result.scores, expected.scores, rtol=0, atol=min(atol, 1e-5))


def test_the_package_offers_four_classes() -> None:
    assert {*boxcrew.__all__} == {"Classifier", "Detector", "Generator", "TextModel", "__version__"}
    for name in boxcrew.__all__[:-1]:
        assert getattr(boxcrew, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Detecter'"):
        boxcrew.__getattr__("Detecter")


def test_a_detector_says_what_it_is(detector: Detector, tiny_run: Path) -> None:
    assert repr(detector) == f"Detector(ssdlite, {len(detector.classes)} classes, {tiny_run})"


def test_any_form_of_an_image_gives_the_same_boxes(detector: Detector, photos: list[Path]) -> None:
    """The files are PNG: of a JPEG, the decoders of Pillow and OpenCV may differ by a bit."""
    pixels = read_image(photos[0])
    expected = detector.predict(photos[0], score=0.0)
    for image in (str(photos[0]), pixels, Pillow.fromarray(pixels), Pillow.open(photos[0])):
        assert_same(detector.predict(image, score=0.0), expected)
    assert_same(detector(photos[0], score=0.0), expected)
    assert expected.path == photos[0]
    assert detector.predict(pixels).path is None
    assert expected.plot().shape == expected.image.shape
    assert (np.diff(expected.scores) <= 0).all()
    height, width = expected.image.shape[:2]
    assert (expected.boxes >= 0).all()
    assert (expected.boxes <= [width, height, width, height]).all()


def test_a_list_and_a_generator_give_a_list(detector: Detector, photos: list[Path]) -> None:
    expected = [detector.predict(photo, score=0.05) for photo in photos[:3]]
    for images in (photos[:3], tuple(photos[:3]), (read_image(photo) for photo in photos[:3])):
        results = detector.predict(images, score=0.05)
        assert isinstance(results, list)
        for result, alone in zip(results, expected, strict=True):
            assert_same(result, alone, atol=1e-3)
    assert detector.predict([]) == []


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_predict_many_equals_one_by_one(detector: Detector, photos: list[Path], batch: int) -> None:
    """One at a time to the bit. Together to 1e-3 pixels: convolutions of another batch size add the same
    products in another order, which changes the last bits of float32.
    """
    results = list(detector.predict_many(photos[0].parent, score=0.05, batch=batch))
    assert [result.path for result in results] == photos
    for result in results:
        assert result.path is not None
        alone = detector.predict(result.path, score=0.05)
        assert_same(result, alone, atol=0.0 if batch == 1 else 1e-3)


def test_predict_many_takes_globs_lists_and_generators(detector: Detector, photos: list[Path]) -> None:
    pattern = list(detector.predict_many(f"{photos[0].parent}/*.png", batch=4))
    generated = list(detector.predict_many((read_image(photo) for photo in photos), batch=4))
    assert [result.path for result in pattern] == photos
    assert [result.path for result in generated] == [None] * len(photos)
    for result, other in zip(pattern, generated, strict=True):
        np.testing.assert_array_equal(result.boxes, other.boxes)


def test_files_that_cannot_be_read_are_left_out(
    detector: Detector, photos: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"not a photo")
    warnings: list[str] = []
    images = [broken, broken, photos[0], broken, photos[1]]
    results = list(detector.predict_many(images, batch=2, warn=warnings.append))
    assert [result.path for result in results] == photos[:2]
    assert warnings == [f"left out: {broken}: not an image of a known kind"] * 3
    with pytest.warns(UserWarning, match=r"left out: .*broken\.jpg"):
        assert list(detector.predict_many([broken])) == []
    with pytest.raises(DataError, match=r"broken\.jpg"):
        detector.predict(images)


def test_images_are_read_only_a_batch_ahead(detector: Detector, photos: list[Path]) -> None:
    begun: list[Path] = []

    def images() -> Any:
        for photo in photos:
            begun.append(photo)
            yield photo

    results = detector.predict_many(images(), batch=2)
    assert next(results).path == photos[0]
    assert begun == photos[:4]
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("images", [None, 1, [1], {"a": 1}, [[1.0]], object(), range(3)])
def test_what_is_no_image_is_refused(detector: Detector, images: Any) -> None:
    with pytest.raises(UsageError, match="is not an image: give a path, bytes, a binary file, a Pillow"):
        detector.predict(images)


def test_a_batch_is_many_images(detector: Detector, photos: list[Path]) -> None:
    pixels = np.stack([read_image(photo) for photo in photos[:3]])
    expected = detector.predict(list(pixels), score=0.05)
    batch = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    batches: tuple[Any, ...] = (pixels, batch, batch / 255, pixels.transpose(0, 3, 1, 2))
    for images in batches:
        results = detector.predict(images, score=0.05)
        for result, alone in zip(results, expected, strict=True):
            assert_same(result, alone)
        assert len(list(detector.predict_many(images))) == 3


def test_predict_many_of_one_image_has_one_result(detector: Detector, photos: list[Path]) -> None:
    pixels = read_image(photos[0])
    with photos[0].open("rb") as file:
        for image in (pixels, torch.from_numpy(pixels), photos[0].read_bytes(), Pillow.open(photos[0]), file):
            (result,) = detector.predict_many(image)  # type: ignore[arg-type]
            np.testing.assert_array_equal(result.image, pixels)
    assert list(detector.predict_many([])) == []


def test_whatever_cannot_be_read_is_left_out(detector: Detector, photos: list[Path]) -> None:
    pixels = read_image(photos[0])
    bad: list[Any] = [
        None,
        b"no image",
        np.full((4, 4), np.nan),
        pixels.astype(np.int32) - 256,
        torch.zeros(2),
        "no.png",
    ]
    warnings: list[str] = []
    results = list(detector.predict_many([pixels, *bad, photos[0]], batch=3, warn=warnings.append))
    assert [result.path for result in results] == [None, photos[0]]
    assert len(warnings) == len(bad)
    assert all(warning.startswith("left out: ") for warning in warnings)


def test_a_folder_is_not_one_image(detector: Detector, photos: list[Path]) -> None:
    with pytest.raises(DataError, match="is a folder, not an image: use predict_many"):
        detector.predict(photos[0].parent)


def test_pillow_images_are_upright_and_opaque(detector: Detector) -> None:
    """As files are: orientation of EXIF applied, transparency on white."""
    turned = Pillow.new("RGB", (40, 20), "red")
    turned.getexif()[0x0112] = 6
    assert detector.predict(turned).image.shape == (40, 20, 3)
    clear = detector.predict(Pillow.new("RGBA", (8, 8), (0, 0, 0, 0))).image
    assert (clear == 255).all()


@dataclass
class StandIn:
    """In place of `supervision.Detections`, which is not a dependency: the arguments that we give it."""

    xyxy: npt.NDArray[Any]
    confidence: npt.NDArray[Any]
    class_id: npt.NDArray[Any]
    data: dict[str, npt.NDArray[Any]]


def test_to_supervision(detector: Detector, photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """At our border only: a small module with its `Detections` stands in for the real package."""
    module = ModuleType("supervision")
    module.Detections = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "supervision", module)
    for score in (0.0, 1.0):  # the second leaves none
        result = detector.predict(photos[0], score=score)
        made = result.to_supervision()
        assert made.xyxy.shape == (len(result.boxes), 4)
        np.testing.assert_array_equal(made.confidence, result.scores)
        np.testing.assert_array_equal(made.class_id, result.labels)
        assert made.data["class_name"].tolist() == result.names
        assert made.data["class_name"].dtype.kind == "U"


def test_without_supervision_the_error_says_what_to_install(
    detector: Detector, photos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "supervision", None)  # as if it were not there
    with pytest.raises(UsageError, match="pip install supervision"):
        detector.predict(photos[0]).to_supervision()


def test_val_says_what_training_said(detector: Detector) -> None:
    report = detector.val()
    assert report["numbers"].keys() >= {"AP", "AP50", "AP75", "AP50_voc07", "AP50_voc12"}
    assert report["weights"].endswith("best.safetensors")


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
        detector={"name": "ssdlite", "backbone": "mobilenetv3_small_050", "size": 96},
        loader={"workers": 0},
    )
    assert detector.classes[0] == "clothes"
    assert (tmp_path / "run" / "summary.json").is_file()


def test_last_weights_can_be_asked_for(tiny_run: Path, detector: Detector) -> None:
    last = Detector.load(tiny_run, which="last")
    assert last.classes == detector.classes
    assert last.val()["weights"].endswith("last.safetensors")


def test_errors_name_what_was_looked_for(detector: Detector, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such run or weight file"):
        Detector.load(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"it has no weights/best\.safetensors"):
        Detector.load(tmp_path)
    with pytest.raises(DataError, match="no image found"):
        next(detector.predict_many(tmp_path))


def test_a_score_that_no_detection_can_have_is_refused(detector: Detector, photos: list[Path]) -> None:
    with pytest.raises(UsageError, match="score=25: not between 0 and 1"):
        detector.predict(photos[0], score=25)
