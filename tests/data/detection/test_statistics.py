"""Counts add up, and advice is given only where something is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.types import Target
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.statistics import SplitStatistics, advise, split_statistics

CLASSES = ("tea", "pot", "cup")


def record(*labels: int, size: tuple[int, int] = (320, 240), box: tuple[float, float] = (40, 40)) -> Record:
    boxes = [(10, 10, 10 + box[0], 10 + box[1])] * len(labels)
    return Record(key="a", path=None, width=size[0], height=size[1], target=Target.of(boxes, labels))


def kinds(train: Sequence[Record], val: Sequence[Record] | None = None) -> dict[str, str]:
    splits = {"train": train} if val is None else {"train": train, "val": val}
    statistics = {name: split_statistics(records, CLASSES) for name, records in splits.items()}
    return {advice.kind: advice.text for advice in advise(statistics, CLASSES)}


def statistics_of(source: Source) -> dict[str, SplitStatistics]:
    return {name: split_statistics(records, source.classes) for name, records in source.splits.items()}


def well(num_images: int) -> list[Record]:
    return [record(0, 1, 2)] * num_images


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=8))
def test_counts_add_up(images: list[list[int]]) -> None:
    counts = split_statistics([record(*labels) for labels in images], CLASSES)
    flat = [label for labels in images for label in labels]
    assert counts.num_images == len(images) == len(counts.image_sizes)
    assert counts.num_boxes == len(flat) == len(counts.box_sizes)
    assert counts.box_labels.tolist() == flat
    assert counts.objects_per_image == tuple(len(labels) for labels in images)
    assert counts.num_empty_images == sum(not labels for labels in images)
    assert counts.boxes_by_class == {name: flat.count(i) for i, name in enumerate(CLASSES)}
    assert counts.images_by_class == {
        name: sum(i in labels for labels in images) for i, name in enumerate(CLASSES)
    }


def test_sizes_and_flags() -> None:
    target = Target.of([(0, 0, 10, 20), (5, 5, 8, 6)], [0, 2], difficult=[True, False], crowd=[False, True])
    counts = split_statistics([Record(key="a", path=None, width=64, height=48, target=target)], CLASSES)
    assert counts.box_sizes.tolist() == [[10, 20], [3, 1]]
    assert counts.image_sizes == ((64, 48),)
    assert (counts.difficult, counts.crowd) == (1, 1)


def test_no_advice_about_a_good_set() -> None:
    assert kinds(well(200), well(60)) == {}


def test_shelf_is_a_good_set() -> None:
    shelf = open_source("shelf")
    assert advise(statistics_of(shelf), shelf.classes) == ()


CASES: Mapping[str, tuple[list[Record], list[Record], tuple[str, ...]]] = {
    "imbalance": ([record(*([0] * 12), 1, 2)] * 50, well(50), ("600 boxes of tea", "50 of pot", "12 to 1")),
    "rare-class": ([*([record(0, 1)] * 30), record(2)], well(50), ("cup (1)",)),
    "class-missing-in-val": (well(200), [record(0, 1)] * 60, ("cup",)),
    "class-missing-in-train": ([record(0, 1)] * 200, well(60), ("cup",)),
    "unused-class": ([record(0, 1)] * 200, [record(0, 1)] * 60, ("cup",)),
    "few-val-images": (well(100), well(12), ("only 12 images",)),
    "empty-images": (well(100) + [record()] * 100, well(60), ("100 of 200", "50%")),
    "val-share": (well(60), well(60), ("50%",)),
    "crowded-images": (well(200), [*well(60), record(*[0] * 130)], ("130", "100 detections")),
    "elongated-boxes": ([record(0, 1, 2, box=(120, 12))] * 100, well(60), ("300 of 480",)),
    "mixed-sizes": (well(100), [record(0, 1, 2, size=(3200, 2400))] * 60, ("320 x 240", "3200 x 2400")),
    "mixed-shapes": (well(100), [record(0, 1, 2, size=(240, 320))] * 40 + well(20), ()),
}


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "mixed-shapes"])
def test_one_problem_gives_one_advice(kind: str) -> None:
    train, val, words = CASES[kind]
    advice = kinds(train, val)
    assert kind in advice
    assert [word for word in words if word not in advice[kind]] == []


def test_classes_may_differ_by_five_to_one() -> None:
    assert "imbalance" not in kinds([record(0, 0, 0, 0, 0, 1, 2)] * 50, well(50))
    assert "imbalance" in kinds([*([record(0, 0, 0, 0, 0, 1, 2)] * 50), record(0)], well(50))


def test_shapes_that_differ_much() -> None:
    wide, tall = [record(0, 1, 2, size=(640, 240))] * 100, [record(0, 1, 2, size=(240, 320))] * 60
    assert "transforms.resize=letterbox" in kinds(wide, tall)["mixed-shapes"]
    assert "mixed-shapes" not in kinds(*CASES["mixed-shapes"][:2])


def test_no_val() -> None:
    assert list(kinds(well(100))) == ["no-val"]


def test_a_small_share_of_many_is_enough() -> None:
    assert "val-share" in kinds(well(4000), well(60))
    assert "val-share" not in kinds(well(20_000), well(600))


def test_many_classes_are_not_all_named(shared_data: Path) -> None:
    source = open_source(shared_data / "coco128_yolo")
    advice = {item.kind: item.text for item in advise(statistics_of(source), source.classes)}
    assert "254 boxes of person" in advice["imbalance"]
    assert " more. " in advice["rare-class"]
    assert max(map(len, advice.values())) < 300


def test_cells(shared_data: Path) -> None:
    source = open_source(shared_data / "bccd_voc")
    statistics = statistics_of(source)
    assert sum(split.num_images for split in statistics.values()) == 364
    assert np.concatenate([split.box_sizes for split in statistics.values()]).min() > 0
    assert [item.kind for item in advise(statistics, source.classes)] == ["imbalance"]
