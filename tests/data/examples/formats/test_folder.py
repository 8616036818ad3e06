from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.example_set import ExampleOptions, ExampleSet, open_examples
from boxcrew.data.images.reading import read_image, write_image
from tests.helpers.made_examples import draw_blocks, make_crops, write_classes


def kinds(opened: ExampleSet) -> list[tuple[str, str, str]]:
    return [(problem.kind, problem.file, problem.action) for problem in opened.problems]


def keys(opened: ExampleSet, split: str) -> list[str]:
    part = opened.split(split)
    return [part.key(index) for index in range(len(part))]


def refused(folder: Path) -> DataError:
    with pytest.raises(DataError) as raised:
        open_examples(folder, ExampleOptions())
    assert str(folder) in raised.value.message
    return raised.value


def test_each_folder_is_a_class(tmp_path: Path) -> None:
    write_classes(tmp_path, {"cup": 12, "bowl": 8})
    opened = open_examples(tmp_path, ExampleOptions(seed=2))
    assert opened.classes == ("bowl", "cup")
    assert opened.shape == (30, 40, 3)
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 16, "val": 4}
    assert kinds(opened) == [("made-split", str(tmp_path), "noted")]
    part = opened.split("train")
    for index, key in enumerate(keys(opened, "train")):
        fetched = part.fetch([index])
        assert np.array_equal(fetched.inputs[0], read_image(tmp_path / key))
        assert opened.classes[fetched.labels[0]] == key.split("/")[0]


def test_folders_of_splits(tmp_path: Path) -> None:
    parts = {"train": {"cup": 3, "train": 3}, "valid": {"cup": 2}, "test": {"train": 1}}
    for number, (split, counts) in enumerate(parts.items()):
        write_classes(tmp_path / split, counts)
        for file in (tmp_path / split).rglob("*.png"):  # or they would be the same in all splits
            write_image(file, read_image(file) ^ np.uint8(number))
    write_classes(tmp_path / "more", {"plate": 1})
    opened = open_examples(tmp_path, ExampleOptions())
    assert opened.classes == ("cup", "train")
    assert keys(opened, "val") == ["valid/cup/0.png", "valid/cup/1.png"]
    assert keys(opened, "test") == ["test/train/0.png"]
    assert opened.split("test").labels.tolist() == [1]
    assert kinds(opened) == [("no-split", "more", "left out")]


def test_a_class_may_be_called_like_a_split(tmp_path: Path) -> None:
    write_classes(tmp_path, {"car": 3, "train": 3})
    assert open_examples(tmp_path, ExampleOptions()).classes == ("car", "train")


def test_every_class_is_left_something_to_train_on(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 1, "b": 1, "c": 1, "d": 30})
    for seed in range(5):
        opened = open_examples(tmp_path, ExampleOptions(seed=seed))
        assert set(opened.split("train").labels.tolist()) == {0, 1, 2, 3}
        assert set(opened.split("val").labels.tolist()) == {3}


def test_images_of_different_sizes_become_one(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 4, "b": 4})
    write_image(tmp_path / "a" / "large.jpg", draw_blocks(50, width=500, height=300))
    opened = open_examples(tmp_path, ExampleOptions())
    assert opened.shape == (32, 32, 3)
    (problem,) = [problem for problem in opened.problems if problem.kind == "image-resized"]
    assert (problem.message, problem.action) == (
        "9 images of 2 sizes become 32 x 32; size= sets another side",
        "repaired",
    )
    places = [(split, keys(opened, split)) for split in opened.splits]
    ((split, index),) = [
        (split, names.index("a/large.jpg")) for split, names in places if "a/large.jpg" in names
    ]
    small = opened.split(split).fetch([index]).inputs[0].astype(int)
    blocks = np.random.default_rng(50).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    middles = small[3::6, 3::6][:5, :5]
    assert np.abs(middles - blocks).mean() < 8
    asked = open_examples(tmp_path, ExampleOptions(shape=(20, 24, 1)))
    assert asked.shape == (20, 24, 1)
    for known in (asked, open_examples(tmp_path, ExampleOptions(size=64))):
        assert [problem.kind for problem in known.problems] == ["made-split"]


def test_images_of_one_size_that_are_large_are_not_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(2):
            write_image(
                tmp_path / name / f"{index}.jpg", draw_blocks(index + len(name), width=400, height=300)
            )
    opened = open_examples(tmp_path, ExampleOptions())
    assert opened.shape == (32, 32, 3)
    (problem,) = [problem for problem in opened.problems if problem.kind == "image-resized"]
    assert problem.message.startswith("4 images of 400 x 300 pixels become 32 x 32")


def test_images_beside_the_folders_of_classes_are_told(tmp_path: Path) -> None:
    write_classes(tmp_path / "flat", {"a": 4, "b": 4})
    for name in ("1.png", "2.jpg", "3.png", "4.png", ".hidden.png"):
        write_image(tmp_path / "flat" / name, draw_blocks(90))
    (problem,) = [
        p for p in open_examples(tmp_path / "flat", ExampleOptions()).problems if p.kind == "label-missing"
    ]
    assert (problem.file, problem.action, problem.count) == ("1.png", "left out", 4)
    assert problem.message == "4 images outside of every class folder: 1.png, 2.jpg, 3.png, …"

    write_classes(tmp_path / "divided" / "train", {"a": 4, "b": 4})
    (tmp_path / "divided" / "val").mkdir()
    for name in ("0.png", "train/5.png", "val/6.png"):
        write_image(tmp_path / "divided" / name, draw_blocks(90))
    opened = open_examples(tmp_path / "divided", ExampleOptions())
    (problem,) = [problem for problem in opened.problems if problem.kind == "label-missing"]
    assert problem.message == "3 images outside of every class folder: 0.png, train/5.png, val/6.png"


def write_nested(root: Path, *names: str) -> None:
    """Four images each, in a folder of their own."""
    for number, name in enumerate(names):
        (root / name / f"s{number}").mkdir(parents=True)
        for index in range(4):
            write_image(root / name / f"s{number}" / f"{index}.png", draw_blocks(10 * number + index))


def test_images_anywhere_below_the_folders_of_classes(tmp_path: Path) -> None:
    write_nested(tmp_path / "flat", "cat", "dog")
    write_nested(tmp_path / "divided", "train/cat", "train/dog", "val/cat")
    for root in (tmp_path / "flat", tmp_path / "divided"):
        opened = open_examples(root, ExampleOptions())
        assert opened.classes == ("cat", "dog")
        assert list(opened.splits) == ["train", "val"]
        write_image(root / "preview.png", draw_blocks(90))
        again = open_examples(root, ExampleOptions())
        assert again.classes == ("cat", "dog")
        assert ("label-missing", "preview.png", "left out") in kinds(again)


@pytest.mark.parametrize(
    "names",
    [
        ("PetImages/Cat", "PetImages/Dog"),  # a folder around a set
        ("training_set/cat", "training_set/dog", "test_set/cat"),  # parts of a set
        ("images/train", "images/val", "masks/train", "masks/val"),  # no set of classes
    ],
)
def test_folders_that_are_no_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    write_nested(tmp_path, *names)
    assert "not a data set in any known format" in refused(tmp_path).message


def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 5, "b": 5})
    cut = tmp_path / "a" / "0.png"
    cut.write_bytes(cut.read_bytes()[:-30])
    (tmp_path / "a" / "1.png").write_text("not an image")
    (tmp_path / "b" / "notes.doc").write_text("bowls")
    (tmp_path / "b" / ".hidden").write_text("bowls")
    (tmp_path / "c").mkdir()
    opened = open_examples(tmp_path, ExampleOptions(workers=2))
    assert set(kinds(opened)) == {
        ("truncated-image", "a/0.png", "left out"),
        ("not-an-image", "a/1.png", "left out"),
        ("not-an-image", "b", "noted"),
        ("made-split", str(tmp_path), "noted"),
        ("class-empty", str(tmp_path), "noted"),
    }
    assert opened.classes == ("a", "b")
    assert sum(len(part) for part in opened.splits.values()) == 8


def test_a_copy_in_another_split_is_left_out_there(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", {"a": 3, "b": 3})
    (tmp_path / "val" / "a").mkdir(parents=True)
    write_image(tmp_path / "val" / "a" / "own.png", draw_blocks(77))
    shutil.copy(tmp_path / "train" / "a" / "1.png", tmp_path / "val" / "a" / "copy.png")
    opened = open_examples(tmp_path, ExampleOptions())
    assert kinds(opened) == [("leak", "val/a/copy.png", "left out")]
    assert keys(opened, "val") == ["val/a/own.png"]


def test_where_no_image_for_validation_can_be_read_others_are_taken(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", {"a": 5, "b": 5})
    (tmp_path / "val" / "a").mkdir(parents=True)
    write_image(tmp_path / "val" / "a" / "own.png", draw_blocks(77))
    cut = tmp_path / "val" / "a" / "own.png"
    cut.write_bytes(cut.read_bytes()[:-30])
    opened = open_examples(tmp_path, ExampleOptions())
    assert kinds(opened) == [
        ("truncated-image", "val/a/own.png", "left out"),
        ("made-split", str(tmp_path), "noted"),
    ]
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 8, "val": 2}


def test_images_without_folders_of_classes_are_of_one(tmp_path: Path) -> None:
    write_classes(tmp_path / "flat", {"cups": 3})
    assert open_examples(tmp_path / "flat" / "cups", ExampleOptions()).classes == ("cups",)
    write_classes(tmp_path / "divided", {"train": 3, "val": 2})
    opened = open_examples(tmp_path / "divided", ExampleOptions())
    assert opened.classes == ("divided",)
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 3, "val": 2}


def test_nothing_to_train_on_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path / "val", {"a": 1, "b": 1})
    assert "has nothing to train on" in refused(tmp_path).message


def test_a_set_for_detection_is_none(tmp_path: Path) -> None:
    assert open_examples(make_crops(tmp_path), ExampleOptions()).format == "crops"


def test_what_vanishes_later_is_told(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 6, "b": 6})
    part = open_examples(tmp_path, ExampleOptions()).split("train").with_cache(10**6)
    part.fetch([0])
    for index in (0, 2):
        (tmp_path / part.key(index)).unlink()
    fetched = part.fetch([3, 2, 0])
    assert fetched.indices.tolist() == [3, 0]
    assert fetched.labels.tolist() == part.labels[[3, 0]].tolist()
    assert len(fetched.inputs) == 2
    (problem,) = fetched.skipped
    assert part.key(2) in problem


def test_as_many_are_kept_as_there_is_room_for(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 5, "b": 5})
    size = 30 * 40 * 3
    part = open_examples(tmp_path, ExampleOptions()).split("train")
    assert (part.input_bytes, part.cached_bytes) == (size, 0)
    part = part.with_cache(3 * size + 5)
    assert part.cached_bytes == 3 * size
    part.fetch(range(8))
    for index in range(8):
        (tmp_path / part.key(index)).unlink()
    assert part.fetch(range(8)).indices.tolist() == [0, 1, 2]
