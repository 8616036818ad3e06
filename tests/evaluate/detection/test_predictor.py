"""Images of any size become detections in their own pixels, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Detections, Image
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.source_image import DecodedImage, EncodedImage
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline
from boxcrew.detectors import build_detector
from boxcrew.evaluate.detection.evaluator import DetectionEvaluator
from boxcrew.evaluate.detection.predictor import Predictor
from tests.helpers import two_headed
from tests.helpers.shapes import EXTENTS, write_shapes


@pytest.fixture
def predictor() -> Predictor:
    torch.manual_seed(0)
    size = InputSize((64,), 128)
    detector = build_detector(two_headed.TwoHeadedConfig(size=size), ("a", "b"))
    pipeline = eval_pipeline(TransformsConfig(), size)
    return Predictor(detector=detector.eval(), pipeline=pipeline, move=lambda tensor: tensor)


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with two_headed.registered():
        yield


def require_equal(first: Detections, second: Detections) -> None:
    torch.testing.assert_close(first.boxes, second.boxes, rtol=0, atol=1e-3)
    torch.testing.assert_close(first.scores, second.scores, rtol=0, atol=1e-5)
    assert first.labels.tolist() == second.labels.tolist()


def images() -> list[Image]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in EXTENTS]


def test_detections_do_not_depend_on_the_other_images(predictor: Predictor) -> None:
    together, seconds = predictor([predictor.prepare(DecodedImage(image)) for image in images()])
    assert seconds.num_images == len(together) == len(EXTENTS)
    for image, detections in zip(images(), together, strict=True):
        (alone,), _ = predictor([predictor.prepare(DecodedImage(image))])
        assert len(alone) > 0
        require_equal(detections, alone)
        assert (detections.boxes <= np.array([image.shape[1], image.shape[0]] * 2)).all()


def test_an_evaluation_returns_images_in_the_order_of_the_records(
    predictor: Predictor, tmp_path: Path
) -> None:
    source = open_source(str(write_shapes(tmp_path / "set")))
    records = source.split("val")
    assert len({predictor.pipeline.canvas_of(record.extent) for record in records}) > 1
    evaluator = DetectionEvaluator(source=source, images=source, records=records, batch=4, workers=Workers())
    evaluation = evaluator(predictor)
    assert [image.key for image in evaluation.images] == [record.key for record in records]
    for image, record in zip(evaluation.images[:3], records, strict=False):
        prepared = predictor.prepare(EncodedImage(Path(str(record.path)).read_bytes()))
        require_equal(image.detections, predictor([prepared])[0][0])
