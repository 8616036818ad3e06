from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.example_set import ExampleOptions, open_examples
from boxcrew.data.examples.formats.idx import read_idx
from tests.helpers.made_examples import make_idx


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_idx(tmp_path)


def refused(folder: Path) -> DataError:
    with pytest.raises(DataError) as raised:
        open_examples(folder, ExampleOptions())
    return raised.value


def test_pictures_labels_and_splits(folder: Path) -> None:
    opened = open_examples(folder, ExampleOptions())
    assert (opened.kind, opened.shape, opened.classes) == ("images", (12, 12, 1), ("0", "1", "2"))
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 54, "val": 6, "test": 9}
    values = [part.fetch(range(len(part))).inputs[:, 0, 0, 0] for part in opened.splits.values()]
    for part, pixels in zip(opened.splits.values(), values, strict=True):
        assert part.labels.tolist() == [int(value) % 3 for value in pixels]
    assert sorted([*values[0], *values[1]]) == list(range(60))
    assert opened.split("val").key(0) == f"train[{values[1][0]}]"
    assert [problem.kind for problem in opened.problems] == ["made-split"]


def test_the_validation_split_depends_on_the_seed_alone(folder: Path) -> None:
    def held(seed: int) -> list[str]:
        part = open_examples(folder, ExampleOptions(seed=seed)).split("val")
        return [part.key(index) for index in range(len(part))]

    assert held(1) == held(1)
    assert held(1) != held(2)


def test_pictures_are_converted_to_what_is_wanted(folder: Path) -> None:
    opened = open_examples(folder, ExampleOptions(shape=(6, 6, 3)))
    assert opened.shape == (6, 6, 3)
    part = opened.split("test")
    inputs = part.fetch([4]).inputs[0]
    assert (inputs[:3] == 4).all()
    assert (inputs[3:] == 104).all()


def test_classes_have_names_where_a_file_tells_them(folder: Path) -> None:
    (folder / "classes.txt").write_text("shirt\nshoe\nbag\nhat\n")
    opened = open_examples(folder, ExampleOptions())
    assert opened.classes == ("shirt", "shoe", "bag")
    assert any(problem.kind == "class-empty" and problem.value == "hat" for problem in opened.problems)
    (folder / "classes.txt").write_text("shirt\nshoe\n")
    assert "names 2 classes, but there are labels up to 2" in refused(folder).message


def test_a_name_that_two_classes_have_is_refused(folder: Path) -> None:
    (folder / "classes.txt").write_text("shirt\n\nshoe\nshirt\n")
    error = refused(folder)
    assert error.message == f"{folder / 'classes.txt'}: names 'shirt' twice, in lines 1 and 4"
    assert error.advice == "give each class its own name"


def test_labels_that_only_test_has_need_no_name(folder: Path) -> None:
    (folder / "classes.txt").write_text("shirt\nshoe\nbag\n")
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 9) + bytes([0, 1, 2, 7, 0, 1, 2, 0, 1])
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    opened = open_examples(folder, ExampleOptions())
    assert opened.classes == ("shirt", "shoe", "bag")
    assert len(opened.split("test")) == 8
    assert opened.problems[-1].message.endswith("no example of 3, 4, 5, 6, 7; 1 of other splits are left out")


def test_files_that_are_not_packed(folder: Path) -> None:
    for file in list(folder.iterdir()):
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    assert len(open_examples(folder, ExampleOptions()).split("test")) == 9


@pytest.mark.parametrize("at", [0, 3, 10, 40, -20, -1])
def test_a_file_cut_anywhere_is_named(folder: Path, at: int) -> None:
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:at])
    error = refused(folder)
    assert str(file) in error.message
    assert error.advice


@pytest.mark.parametrize("at", [0, 3, 7, 15, 16, 500, -1])
def test_a_plain_file_cut_anywhere_is_named(folder: Path, at: int) -> None:
    packed = folder / "train-images-idx3-ubyte.gz"
    (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes())[:at])
    assert str(folder / packed.stem) in refused(folder).message


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK\x03\x04" + bytes(40), "is not IDX: it begins with 504b0304"),
        (bytes([0, 0, 0x0D, 3]) + bytes(40), "numbers of type float32"),
        (bytes([0, 0, 0x08, 1]) + bytes(40), "has 1 axes, not 3"),
        (
            bytes([0, 0, 0x08, 3]) + struct.pack(">3I", 1, 2, 2) + bytes(5),
            "says 1 x 2 x 2 bytes, but it has more",
        ),
    ],
)
def test_other_content_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_idx(file, num_axes=3)
    assert problem in raised.value.message
    assert str(file) in raised.value.message


def test_labels_must_fit_the_pictures(folder: Path) -> None:
    labels = folder / "train-labels-idx1-ubyte.gz"
    labels.write_bytes((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    assert "has 9 labels, but train-images-idx3-ubyte.gz has 60 images" in refused(folder).message
    labels.unlink()
    error = refused(folder)
    assert f"{folder / labels.stem}: is missing, and so is {labels.name}" in error.message
    assert error.advice == "put it into the same folder"


def left_out(folder: Path) -> tuple[str, str, str]:
    """Opens a set that has no test split: which file is to blame, and why."""
    opened = open_examples(folder, ExampleOptions())
    assert list(opened.splits) == ["train", "val"]
    problem, made = opened.problems
    assert (problem.at, problem.action, made.kind) == ("test", "left out", "made-split")
    with pytest.raises(DataError, match="has no split 'test'") as raised:
        opened.split("test")
    assert problem.message in raised.value.advice
    return problem.kind, problem.file, problem.message


def test_a_test_split_that_cannot_be_used_is_left_out(folder: Path) -> None:
    pictures, labels = (folder / f"t10k-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1"))
    whole = labels.read_bytes()
    labels.write_bytes((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    what = f"has 60 labels, but {pictures.name} has 9 images"
    assert left_out(folder) == ("label-missing", labels.name, what)
    labels.write_bytes(whole[:-20])
    kind, file, what = left_out(folder)
    assert (kind, file, what.startswith("cannot be read: ")) == ("label-missing", labels.name, True)
    labels.unlink()
    what = f"is missing, and so is {labels.name}, but {pictures.name} is there"
    assert left_out(folder) == ("label-missing", labels.stem, what)
    labels.write_bytes(whole)
    pictures.write_bytes(gzip.compress(gzip.decompress(pictures.read_bytes())[:-1]))
    what = "its header says 9 x 12 x 12 bytes, but it has only 1295"
    assert left_out(folder) == ("unreadable-image", pictures.name, what)


def test_fashion_mnist(shared_data: Path) -> None:
    opened = open_examples(shared_data / "fashion_mnist", ExampleOptions())
    assert opened.format == "idx"
    assert {name: len(part) for name, part in opened.splits.items()} == {
        "train": 54_000,
        "val": 6_000,
        "test": 10_000,
    }
    assert opened.shape == (28, 28, 1)
    assert np.bincount(opened.split("test").labels).tolist() == [1000] * 10
    assert opened.split("test").labels[:5].tolist() == [9, 2, 1, 1, 6]
