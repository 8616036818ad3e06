"""Boxes are repaired or left out, never kept broken; splits depend on keys and seed alone."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.annotations import Annotation, Box, Gathering, Object, repair, split_by_seed
from boxcrew.data.image import write_image
from boxcrew.data.source import Record

SIDES = st.integers(1, 10_000)
ANY_BOX = st.tuples(*[st.floats(width=64) for _ in range(4)])
NEAR_BOX = st.tuples(*[st.floats(-50, 150, width=32) for _ in range(4)])


@given(box=ANY_BOX | NEAR_BOX, width=SIDES, height=SIDES)
def test_what_is_kept_is_a_box_inside_the_image(box: Box, width: int, height: int) -> None:
    kept, fault = repair(box, width, height)
    if kept is None:
        assert fault
        return
    x0, y0, x1, y1 = np.array(kept, dtype=np.float32)
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    assert repair(kept, width, height) == (kept, "")


@given(box=NEAR_BOX)
def test_only_what_touches_the_image_with_some_area_is_kept(box: Box) -> None:
    x0, x1 = sorted((box[0], box[2]))
    y0, y1 = sorted((box[1], box[3]))
    touches = max(x0, 0) < min(x1, 100) and max(y0, 0) < min(y1, 100)
    assert (repair(box, 100, 100)[0] is not None) == touches


@given(x=st.floats(0, 50, width=32), y=st.floats(0, 50, width=32), side=st.floats(1, 50, width=32))
def test_a_good_box_is_not_touched(x: float, y: float, side: float) -> None:
    box = (x, y, x + side, y + side)
    assert repair(box, 100, 100) == (box, "")
    assert repair((box[2], box[3], box[0], box[1]), 100, 100)[0] == box


@pytest.mark.parametrize(
    ("box", "kept", "fault"),
    [
        ((0, 0, 100, 80), (0, 0, 100, 80), ""),
        ((-1, -1, 101, 81), (0, 0, 100, 80), ""),
        ((-1.5, 5, 20, 20), (0, 5, 20, 20), "reaches out of the image of 100 x 80"),
        ((5, 5, 20, 300), (5, 5, 20, 80), "reaches out"),
        ((20, 5, 5, 20), (5, 5, 20, 20), "corners swapped"),
        ((20, 5, 5, 200), (5, 5, 20, 80), "swapped and reaches out"),
        ((5, 5, 5, 20), None, "is empty"),
        ((5, 5, 5 + 1e-12, 20), None, "is empty"),
        ((200, 5, 300, 20), None, "lies outside"),
        ((100, 5, 110, 20), None, "lies outside"),
        ((math.nan, 5, 30, 20), None, "not a number"),
        ((0, 5, math.inf, 20), None, "not a number"),
    ],
)
def test_each_fault_is_named(box: Box, kept: Box | None, fault: str) -> None:
    result, said = repair(box, 100, 80)
    assert result == kept
    assert fault in said
    assert bool(fault) == bool(said)


def records(num: int) -> list[Record]:
    target = Target.of([], [])
    return [Record(key=f"{i}.jpg", path=None, width=8, height=8, target=target) for i in range(num)]


@given(num=st.integers(2, 60), seed=st.integers(0, 99))
def test_seeded_split_is_whole_and_blind_to_order(num: int, seed: int) -> None:
    given_records = records(num)
    train, val = split_by_seed(given_records, seed=seed)
    assert len(train) + len(val) == num
    assert train
    assert len(val) == max(1, round(num * 0.2))
    shuffled = random.Random(seed).sample(given_records, num)
    assert {record.key for record in split_by_seed(shuffled, seed=seed)[1]} == {record.key for record in val}


def test_another_seed_is_another_split_and_one_image_more_moves_few() -> None:
    first = {record.key for record in split_by_seed(records(100), seed=0)[1]}
    assert first != {record.key for record in split_by_seed(records(100), seed=1)[1]}
    assert len(first - {record.key for record in split_by_seed(records(101), seed=0)[1]}) <= 1


def annotate(folder: Path, name: str, *boxes: Box, size: tuple[int, int] | None = None) -> Annotation:
    path = folder / name
    if not path.exists():
        write_image(path, np.zeros((30, 40, 3), dtype=np.uint8))
    objects = tuple(Object(where=f"{name} object {i}", box=box, label=0) for i, box in enumerate(boxes))
    return Annotation(where=name, image=path, objects=objects, size=size)


def test_gathering_repairs_and_reports(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path)
    gathering.add(annotate(tmp_path, "a.png", (5, 5, 3, 9), (1, 1, 1, 1), (0, 0, 9, 9)), "train")
    splits, problems = gathering.finish(seed=0)
    np.testing.assert_array_equal(splits["train"][0].target.boxes, [[3, 5, 5, 9], [0, 0, 9, 9]])
    assert [(problem.where, problem.action) for problem in problems] == [
        ("a.png object 0", "repaired"),
        ("a.png object 1", "left out"),
    ]
    assert "val" not in splits  # one image cannot be split


def test_gathering_notes_sizes_that_differ(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path)
    sizes = {"same.png": (40, 30), "unsaid.png": (0, 0), "turned.png": (30, 40), "other.png": (400, 300)}
    for name, size in sizes.items():
        gathering.add(annotate(tmp_path, name, size=size), "train")
    _, problems = gathering.finish(seed=0)
    noted = {problem.where: problem.what for problem in problems if problem.where in sizes}
    assert set(noted) == {"turned.png", "other.png"}
    assert "EXIF" in noted["turned.png"]
    assert "400 x 300, but upright it is 40 x 30" in noted["other.png"]


def test_gathering_keeps_the_first_of_two(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path)
    gathering.add(annotate(tmp_path, "a.png", (0, 0, 9, 9)), "train")
    gathering.add(annotate(tmp_path, "a.png"), "val")
    splits, problems = gathering.finish(seed=0)
    assert list(splits) == ["train"]
    assert len(splits["train"][0].target) == 1
    assert "listed again" in problems[0].what


def test_gathering_makes_a_val_split_beside_a_test_split_and_says_so(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path)
    for i in range(10):
        gathering.add(annotate(tmp_path, f"{i}.png"), "test" if i == 0 else "train")
    splits, problems = gathering.finish(seed=7)
    assert {name: len(part) for name, part in splits.items()} == {"train": 7, "val": 2, "test": 1}
    assert "seed 7" in problems[0].what


def test_gathering_without_training_images_is_an_error(tmp_path: Path) -> None:
    gathering = Gathering(tmp_path)
    (tmp_path / "bad.png").write_bytes(b"no image")
    gathering.add(Annotation(where="bad.xml", image=tmp_path / "bad.png", objects=()), "train")
    with pytest.raises(DataError, match="no usable training image") as caught:
        gathering.finish(seed=0)
    assert "bad.xml: image bad.png: not an image" in caught.value.advice
