"""Predictions are written as data sets that can be read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Detections
from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import WRITERS
from boxcrew.data.images.reading import read_file
from boxcrew.data.images.source_image import EncodedImage
from boxcrew.report.predicted_labels import PredictedLabels
from boxcrew.report.predictions import Result

CLASSES = ("cup", "book")


def result(path: Path, *, is_file: bool = True) -> Result:
    return Result(
        path=path if is_file else None,
        source=EncodedImage(read_file(path)),
        detections=Detections.of([[2, 3, 20, 30], [5, 5, 40, 20]], [0.9, 0.6], [1, 0]),
        classes=CLASSES,
        name=None if is_file else "https://shop.example/one.jpg",
    )


@pytest.mark.parametrize("format", WRITERS.names())
def test_every_format_can_be_read_back(format: str, tmp_path: Path) -> None:
    photo = tmp_path / "one.jpg"
    Pillow.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(photo)
    labels = PredictedLabels(tmp_path / format, CLASSES, format=format)
    labels.add(result(photo))
    labels.add(result(photo, is_file=False))
    labels.close()
    source = open_source(tmp_path / format)
    assert sum(len(record.target) for record in source.records) == 4
    for record in source.records:
        order = np.argsort(record.target.boxes[:, 0])
        assert np.allclose(record.target.boxes[order], [[2, 3, 20, 30], [5, 5, 40, 20]], atol=0.51)
        assert [source.classes[label] for label in record.target.labels[order]] == ["book", "cup"]


def test_an_unknown_format_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cvatt: no such data format to write; did you mean 'cvat'"):
        PredictedLabels(tmp_path, CLASSES, format="cvatt")
