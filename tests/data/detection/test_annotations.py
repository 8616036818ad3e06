"""Annotations are repaired, reported and split; a drawn split depends only on keys and seed."""

from __future__ import annotations

import gc
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection.annotations import (
    Annotation,
    Collector,
    Object,
    ObjectTable,
    garbage_collection_paused,
    split_by_seed,
)
from boxcrew.data.detection.record_builder import Reading
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.images.reading import read_image, write_image


def records(num: int) -> Records:
    target = Target.of([], [])
    return Records.of(Record(key=f"{i}.jpg", path=None, width=8, height=8, target=target) for i in range(num))


@given(num=st.integers(2, 60), seed=st.integers(0, 99))
def test_seeded_split_is_complete_and_ignores_order(num: int, seed: int) -> None:
    all_records = records(num)
    train, val = split_by_seed(all_records, seed=seed)
    assert len(train) + len(val) == num
    assert train
    assert len(val) == max(1, round(num * 0.2))
    shuffled = Records.of(random.Random(seed).sample(list(all_records), num))
    assert {record.key for record in split_by_seed(shuffled, seed=seed)[1]} == {record.key for record in val}


def test_another_seed_is_another_split_and_one_image_more_moves_few() -> None:
    first = {record.key for record in split_by_seed(records(100), seed=0)[1]}
    assert first != {record.key for record in split_by_seed(records(100), seed=1)[1]}
    assert len(first - {record.key for record in split_by_seed(records(101), seed=0)[1]}) <= 1


def annotate(folder: Path, name: str, *boxes: Box, size: tuple[int, int] | None = None) -> Annotation:
    path = folder / name
    if not path.exists():
        write_image(path, np.zeros((30, 40, 3), dtype=np.uint8))
    objects = tuple(Object(at=f"object {i}", box=box, label=0) for i, box in enumerate(boxes))
    return Annotation(file=name, image=path, objects=objects, size=size)


def test_collector_repairs_and_reports(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.add(annotate(tmp_path, "a.png", (5, 5, 3, 9), (1, 1, 1, 1), (0, 0, 9, 9)), "train")
    splits, problems = collector.finish(seed=0)
    np.testing.assert_array_equal(splits["train"][0].target.boxes, [[3, 5, 5, 9], [0, 0, 9, 9]])
    assert [(p.kind, p.file, p.at, p.value, p.action) for p in problems] == [
        ("box-swapped", "a.png", "object 0", "[5, 5, 3, 9]", "repaired"),
        ("box-empty", "a.png", "object 1", "[1, 1, 1, 1]", "left out"),
    ]
    assert "val" not in splits  # one image cannot be split


def test_collector_notes_sizes_that_differ(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    sizes = {"same.png": (40, 30), "unsaid.png": (0, 0), "rotated.png": (30, 40), "other.png": (400, 300)}
    for name, size in sizes.items():
        collector.add(annotate(tmp_path, name, (1, 1, 9, 9), size=size), "train")
    _, problems = collector.finish(seed=0)
    noted = {p.file: (p.kind, p.action, p.value) for p in problems if p.file in sizes}
    assert noted == {
        "rotated.png": ("size-mismatch", "noted", "30 x 40"),
        "other.png": ("size-mismatch", "noted", "400 x 300"),
    }
    assert any("400 x 300, but upright it is 40 x 30" in problem.message for problem in problems)


@pytest.mark.parametrize("orientation", range(5, 9))
def test_boxes_drawn_before_the_rotation_are_rotated(orientation: int, tmp_path: Path) -> None:
    stored = np.zeros((30, 40, 3), dtype=np.uint8)
    stored[2:10, 20:36] = 255
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.fromarray(stored).save(tmp_path / "a.png", exif=exif)
    collector = Collector(tmp_path)
    collector.add(annotate(tmp_path, "a.png", (20, 2, 36, 10), size=(40, 30)), "train")
    splits, problems = collector.finish(seed=0)
    (record,) = splits["train"]
    assert (record.width, record.height) == (30, 40)
    x0, y0, x1, y1 = record.target.boxes[0].astype(int)
    upright = read_image(tmp_path / "a.png")
    assert (upright[y0:y1, x0:x1] == 255).all()
    assert upright[y0:y1, x0:x1].size == (upright == 255).sum()
    assert [(p.kind, p.action) for p in problems] == [("exif-rotation", "repaired")]


def test_boxes_that_are_inside_only_the_upright_image_are_not_rotated(tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    Pillow.fromarray(np.zeros((30, 40, 3), dtype=np.uint8)).save(tmp_path / "a.png", exif=exif)
    collector = Collector(tmp_path)
    collector.add(annotate(tmp_path, "a.png", (5, 5, 20, 39), size=(40, 30)), "train")
    splits, problems = collector.finish(seed=0)
    assert splits["train"][0].target.boxes.tolist() == [[5, 5, 20, 39]]
    assert [(p.kind, p.action) for p in problems] == [("exif-rotation", "noted")]


def test_a_table_is_read_like_its_objects(tmp_path: Path) -> None:
    boxes = np.array([[0.1, 0.1, 0.5, 0.5], [0.5, 0.5, 0.4, 0.9], [0.2, 0.3, 1.01, 0.8], [np.nan, 0, 1, 1]])
    table = ObjectTable(np.array([2, 0, 1, 0]), boxes)
    assert [obj.at for obj in table] == ["line 1", "line 2", "line 3", "line 4"]
    outcomes = []
    for objects in (table, tuple(table)):
        collector = Collector(tmp_path)
        collector.add(
            replace(
                annotate(tmp_path, "plain.png"),
                objects=ObjectTable(table.labels[:1], boxes[:1]),
                relative=True,
            ),
            "train",
        )
        collector.add(replace(annotate(tmp_path, "a.png"), objects=objects, relative=True), "train")
        splits, problems = collector.finish(seed=0)
        records = sorted((record for part in splits.values() for record in part), key=lambda r: r.key)
        outcomes.append(([(r.target.boxes.tolist(), r.target.labels.tolist()) for r in records], problems))
    assert outcomes[0] == outcomes[1]
    assert [(p.kind, p.at) for p in outcomes[0][1]][:2] == [("box-swapped", "line 2"), ("box-nan", "line 4")]
    np.testing.assert_allclose(outcomes[0][0][1][0], [[4, 3, 20, 15]])


def test_unknown_labels_are_left_out_of_tables_and_objects_alike(tmp_path: Path) -> None:
    table = ObjectTable(np.array([0, 3, 1, -1]), np.tile([0.1, 0.1, 0.5, 0.5], (4, 1)))
    outcomes = []
    for objects in (table, tuple(table)):
        collector = Collector(tmp_path)
        collector.add(replace(annotate(tmp_path, "a.png"), objects=objects, relative=True), "train")
        splits, problems = collector.finish(seed=0, reading=Reading(num_classes=2))
        outcomes.append((splits["train"][0].target.labels.tolist(), problems))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == [0, 1]
    assert [(p.kind, p.at, p.value, p.message) for p in outcomes[0][1]] == [
        ("unknown-class", "line 2", "3", "there is no class 3; classes are 0 to 1"),
        ("unknown-class", "line 4", "-1", "there is no class -1; classes are 0 to 1"),
    ]


def test_options_change_tables_and_objects_alike(tmp_path: Path) -> None:
    table = ObjectTable(np.array([1, 2]), np.array([[10.0, 20.0, 30.0, 80.0], [50.0, 0.0, 100.0, 50.0]]))
    options = BoxOptions(coordinates="percent", boxes="yxyx", first_class=1)
    for objects in (table, tuple(table)):
        collector = Collector(tmp_path)
        collector.add(replace(annotate(tmp_path, "a.png"), objects=objects), "train")
        splits, problems = collector.finish(seed=0, reading=Reading(options=options, num_classes=2))
        (record,) = splits["train"]
        np.testing.assert_allclose(record.target.boxes, [[8, 3, 32, 9], [0, 15, 20, 30]], rtol=1e-6)
        assert record.target.labels.tolist() == [0, 1]
        assert problems == ()


@pytest.mark.parametrize("orientation", [1, 6])
def test_rescaled_boxes_are_those_of_the_image_even_if_exif_rotates_it(
    orientation: int, tmp_path: Path
) -> None:
    stored = np.zeros((30, 40, 3), dtype=np.uint8)
    stored[2:10, 20:36] = 255
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.fromarray(stored).save(tmp_path / "a.png", exif=exif)
    collector = Collector(tmp_path)
    collector.add(annotate(tmp_path, "a.png", (10, 1, 18, 5), size=(20, 15)), "train")
    splits, problems = collector.finish(seed=0, reading=Reading(options=BoxOptions(rescale=True)))
    x0, y0, x1, y1 = splits["train"][0].target.boxes[0].astype(int)
    upright = read_image(tmp_path / "a.png")
    assert (upright[y0:y1, x0:x1] == 255).all()
    assert upright[y0:y1, x0:x1].size == (upright == 255).sum()
    assert "size-mismatch" not in {problem.kind for problem in problems}


def test_garbage_collection_goes_on_as_it_was() -> None:
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with garbage_collection_paused():
                assert not gc.isenabled()
            assert gc.isenabled() == enabled
        finally:
            gc.enable()


def test_background_is_noted(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.add(annotate(tmp_path, "empty.png"), "train")
    bare = replace(annotate(tmp_path, "bare.png"), objects=None)
    collector.add(bare, "train")
    _, problems = collector.finish(seed=0)
    assert [(p.kind, p.file, p.action) for p in problems[:2]] == [
        ("empty-annotation", "empty.png", "noted"),
        ("image-without-annotation", "bare.png", "noted"),
    ]


def test_collector_keeps_the_first_of_two(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.add(annotate(tmp_path, "a.png", (0, 0, 9, 9)), "train")
    collector.add(annotate(tmp_path, "a.png"), "val")
    splits, problems = collector.finish(seed=0)
    assert list(splits) == ["train"]
    assert len(splits["train"][0].target) == 1
    assert (problems[0].kind, problems[0].action) == ("leak", "left out")
    assert "listed in val, and was in train" in problems[0].message


def test_collector_draws_a_val_split_beside_a_test_split_and_notes_it(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    for i in range(10):
        collector.add(annotate(tmp_path, f"{i}.png", (1, 1, 9, 9)), "test" if i == 0 else "train")
    splits, problems = collector.finish(seed=7)
    assert {name: len(records) for name, records in splits.items()} == {"train": 7, "val": 2, "test": 1}
    assert "seed 7" in problems[0].message


def test_collector_without_training_images_is_an_error(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    (tmp_path / "bad.png").write_bytes(b"no image")
    collector.add(Annotation(file="bad.xml", image=tmp_path / "bad.png", objects=()), "train")
    with pytest.raises(DataError, match="no usable training image") as caught:
        collector.finish(seed=0)
    assert "bad.png: not an image" in caught.value.advice
