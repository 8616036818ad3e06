"""What was measured is what is used: `predict` sees and finds in a file what `val` does."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image as Pillow

from boxcrew import Detector
from boxcrew.core.types import Detections, Image
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.source_image import EncodedImage
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.detection.evaluator import DetectionEvaluator
from boxcrew.export.parity import compare_detections
from boxcrew.train.run.loading import Loaded

pytestmark = pytest.mark.usefixtures("undrawn")

ORIENTATION = 0x0112  # of EXIF
Save = Callable[[Pillow.Image, Path], None]


def jpeg(**options: Any) -> Save:
    return lambda image, path: image.save(path.with_suffix(".jpg"), quality=90, **options)


def as_is(suffix: str, mode: str = "RGB") -> Save:
    return lambda image, path: image.convert(mode).save(path.with_suffix(suffix))


def turned(orientation: int) -> Save:
    exif = Pillow.Exif()
    exif[ORIENTATION] = orientation
    return jpeg(exif=exif)


KINDS: dict[str, tuple[tuple[int, int], Save]] = {
    "large": ((1600, 1200), jpeg()),
    "odd": ((1237, 799), jpeg()),
    "portrait": ((500, 1700), jpeg()),
    "panorama": ((1900, 240), jpeg()),
    "small": ((50, 40), jpeg()),
    "progressive": ((900, 700), jpeg(progressive=True)),
    "chroma": ((901, 703), jpeg(subsampling=0)),
    "gray": ((900, 700), lambda image, path: image.convert("L").save(path.with_suffix(".jpg"))),
    "cmyk": ((900, 700), lambda image, path: image.convert("CMYK").save(path.with_suffix(".jpg"))),
    "png": ((900, 700), as_is(".png")),
    "alpha": ((900, 700), as_is(".png", "RGBA")),
    "palette": ((900, 700), as_is(".png", "P")),
    "webp": ((900, 700), as_is(".webp")),
    "bmp": ((900, 700), as_is(".bmp")),
    **{f"turned{number}": ((1100, 800), turned(number)) for number in range(1, 9)},
}


def scene(size: tuple[int, int], seed: int) -> Pillow.Image:
    """Patches of color with fine stripes, which decoders that differ show differently."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = np.asarray(Pillow.fromarray(small).resize(size, Pillow.Resampling.NEAREST)).astype(int)
    stripes = 40 * ((np.arange(size[0])[None, :, None] + 2 * np.arange(size[1])[:, None, None]) % 5)
    pixels: Image = np.clip(image + stripes - 80, 0, 255).astype(np.uint8)
    return Pillow.fromarray(pixels)


@pytest.fixture(scope="module")
def detector(tiny_run: Path) -> Detector:
    return Detector.load(tiny_run)


def loaded(detector: Detector) -> Loaded:
    assert isinstance(detector.loaded, Loaded)
    return detector.loaded


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, detector: Detector) -> Path:
    """A YOLO set with a photo of every kind."""
    root = tmp_path_factory.mktemp("kinds")
    for folder in ("images", "labels"):
        (root / folder).mkdir()
    for seed, (name, (size, save)) in enumerate(KINDS.items()):
        save(scene(size, seed), root / "images" / name)
        (root / "labels" / f"{name}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    names = list(detector.classes)
    (root / "data.yaml").write_text(yaml.safe_dump({"train": "images", "val": "images", "names": names}))
    return root


@pytest.fixture(scope="module")
def measured(photos: Path, detector: Detector) -> dict[str, Detections]:
    """The detections of an evaluation, by the name of the image."""
    source = open_source(str(photos))
    records = source.records
    evaluator = DetectionEvaluator(source=source, images=source, records=records, batch=1, workers=Workers())
    with loaded(detector).deployment:
        evaluation = evaluator(detector._predictor)
    assert not evaluation.skipped
    assert len(evaluation.images) == len(KINDS)
    return {Path(image.key).stem: image.detections for image in evaluation.images}


def found(photos: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted((photos / "images").iterdir())}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_gives_the_detections_of_its_evaluation(
    name: str, photos: Path, measured: dict[str, Detections], detector: Detector
) -> None:
    path = found(photos)[name]
    data = path.read_bytes()
    threshold = loaded(detector).config.detector.score_threshold
    for image in (path, data, io.BytesIO(data)):
        result = detector.predict(image, score=threshold)
        assert len(result) > 0
        assert np.array_equal(result.boxes, measured[name].boxes)
        assert np.array_equal(result.scores, measured[name].scores)
        assert np.array_equal(result.labels, measured[name].labels)


def test_a_folder_gives_them_too(photos: Path, measured: dict[str, Detections], detector: Detector) -> None:
    threshold = loaded(detector).config.detector.score_threshold
    results = list(detector.predict_many(photos / "images", score=threshold, batch=1))
    assert [result.path for result in results] == list(found(photos).values())
    for result in results:
        assert result.path is not None
        assert np.array_equal(result.boxes, measured[result.path.stem].boxes)


def test_results_have_the_full_image(photos: Path, detector: Detector) -> None:
    """Boxes are in pixels of the upright original, which is decoded in full only if it is asked for."""
    path = found(photos)["turned6"]
    result = detector.predict(path)
    assert "image" not in vars(result)
    assert repr(result).startswith(f"Result({path}, 800 x 1100, ")
    assert result.image.shape == (1100, 800, 3)
    assert result.to_json()["width"] == 800


def test_large_jpegs_are_read_reduced(photos: Path, detector: Detector) -> None:
    sizes = []

    class Watched(EncodedImage):
        def read(self, *, reduction: int = 1) -> Image:
            sizes.append(reduction)
            return super().read(reduction=reduction)

    prepared = detector._predictor.prepare(Watched(found(photos)["large"].read_bytes()))
    assert sizes == [8]
    assert prepared.extent == (1600, 1200)


@pytest.mark.parametrize("name", KINDS)
def test_an_exported_file_gives_them_too(
    name: str, photos: Path, measured: dict[str, Detections], detector: Detector, exported_run: Path
) -> None:
    threshold = loaded(detector).config.detector.score_threshold
    from_file = Detector.load(exported_run / "model.onnx").predict(found(photos)[name], score=threshold)
    most = loaded(detector).config.detector.max_detections
    difference = compare_detections(from_file.detections, measured[name], least=threshold, most=most)
    assert len(from_file) > 0
    assert difference.is_allowed
