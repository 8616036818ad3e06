"""Classes in numbers and pictures."""

from __future__ import annotations

from typing import Any

from boxcrew.report.doctor.classes import classes_section, samples_section
from boxcrew.report.doctor.report import Diagnosis


def test_every_class_has_its_numbers_the_commonest_first(small: Diagnosis, read_page: Any) -> None:
    read = read_page(classes_section(small.statistics, small.source.classes))
    titles = [title for title in read.values("th", "title") if title]
    assert sorted(titles) == sorted(small.source.classes)
    totals = [sum(split.boxes_by_class[name] for split in small.statistics.values()) for name in titles]
    assert totals == sorted(totals, reverse=True)
    for split in small.statistics.values():
        assert f"{split.num_boxes} boxes in {split.num_images} images" in read.text


def test_each_class_is_shown_from_different_images(small: Diagnosis, read_page: Any) -> None:
    read = read_page(samples_section(small.source, workers=2))
    alts = read.values("img", "alt")
    for name in small.source.classes:
        mine = [alt for alt in alts if alt.startswith(f"{name} in ")]
        with_it = sum(split.images_by_class[name] for split in small.statistics.values())
        boxes = sum(split.boxes_by_class[name] for split in small.statistics.values())
        assert len(mine) == min(8, boxes)
        assert len(set(mine)) >= min(len(mine), with_it) - 1
        assert f"{name} {boxes}" in read.text
