"""Boxes as the page counts and measures them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boxcrew.report.doctor.boxes import AllBoxes
from boxcrew.report.doctor.report import Diagnosis
from boxcrew.testing.sources import DrawnSource


def test_boxes_are_counted_as_the_coverage_counts_them(small: Diagnosis) -> None:
    every = AllBoxes.of(small)
    assert len(every.boxes) == small.num_boxes == len(every.owners)
    assert small.anchor_coverage is not None
    assert np.flatnonzero(every.lost).tolist() == sorted(small.anchor_coverage.lost.tolist())
    for number in (0, len(every.boxes) - 1):
        record, place = every.owners[number]
        assert (record.target.boxes[place] == every.boxes[number]).all()
    assert every.input_sides == pytest.approx(every.sides * 96 / 320)


def test_letterboxed_photos_keep_their_shape(small: Diagnosis) -> None:
    wide = tuple(replace(record, height=160) for record in small.source.split("train"))
    source = DrawnSource(root=Path("x"), classes=small.source.classes, splits={"train": wide})
    squashed = replace(small, source=source, anchor_coverage=None)
    boxed = replace(squashed, transforms=small.transforms.model_copy(update={"resize": "letterbox"}))
    assert AllBoxes.of(squashed).scales[0] == pytest.approx([96 / 320, 96 / 160])
    assert AllBoxes.of(boxed).scales[0] == pytest.approx([96 / 320, 96 / 320])
