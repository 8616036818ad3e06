"""Ultralytics' data.yaml, read unchanged: its paths, its names, and nothing executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.images.reading import write_image


def put(folder: Path, *names: str) -> None:
    """Write images, each with a label file in the folder `labels`."""
    for name in names:
        for kind in ("images", "labels"):
            (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / "images" / f"{name}.jpg", np.zeros((30, 40, 3), dtype=np.uint8))
        (folder / "labels" / f"{name}.txt").write_text("1 0.5 0.5 0.5 0.5\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "set", "train/a", "train/b", "val/c", "more/d")
    return tmp_path / "set"


def opened(file: Path, text: str) -> Source:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return open_source(file)


def keys(source: Source) -> dict[str, list[str]]:
    return {split: [record.key for record in records] for split, records in source.splits.items()}


SAME = {"train": ["images/train/a.jpg", "images/train/b.jpg"], "val": ["images/val/c.jpg"]}
SPLITS = "train: images/train\nval: images/val\n"
NAMES = "names: [tea, jam]\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("set/data.yaml", SPLITS),
        ("set/data.yaml", f"path: .\n{SPLITS}"),
        ("set/data.yaml", f"path:\n{SPLITS}test:\n"),
        ("data.yml", f"path: set\n{SPLITS}"),
        ("configs/my.yaml", f"path: ../set\n{SPLITS}"),
        ("set/data.yaml", "train: ./images/train\nval: ../images/val\n"),
        ("set/data.yaml", f"{SPLITS}download: |\n  import os\n  os.abort()\n"),
        ("set/data.yaml", f"{SPLITS}test: images/absent\n"),
    ],
)
def test_paths_are_relative_to_the_file(
    name: str, text: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    source = opened(root.parent / name, text + NAMES)
    assert keys(source) == SAME
    assert source.classes == ("tea", "jam")
    assert source.split("train")[0].target.labels.tolist() == [1]
    assert [problem.message for problem in source.problems] == (
        ["test: images/absent does not exist"] if "absent" in text else []
    )


def test_absolute_paths(root: Path) -> None:
    file = root.parent / "elsewhere" / "data.yaml"
    assert keys(opened(file, f"path: {root}\n{SPLITS}{NAMES}")) == SAME
    text = f"train: {root}/images/train\nval: {root}/images/val\n{NAMES}"
    assert keys(opened(file, text))["val"] == ["../set/images/val/c.jpg"]


def test_a_path_that_does_not_exist_gives_way_to_the_folder_of_the_file(root: Path) -> None:
    source = opened(root / "data.yaml", f"path: /home/somebody/set\n{SPLITS}{NAMES}")
    assert keys(source) == SAME
    assert "/home/somebody/set does not exist" in source.problems[0].message


def test_lists_of_files_and_of_folders(root: Path) -> None:
    (root / "train.txt").write_text(
        f"./images/train/a.jpg\nimages/more/d.jpg\n{root}/images/train/b.jpg\nno.jpg\n"
    )
    source = opened(root / "data.yaml", f"train: train.txt\nval: [images/val]\n{NAMES}")
    assert keys(source)["train"] == ["images/train/a.jpg", "images/more/d.jpg", "images/train/b.jpg"]
    assert list(map(str, source.problems)) == ["no.jpg: no such image file (left out)"]
    source = opened(
        root / "data.yaml", f"train:\n  - images/train\n  - images/more\nval: images/val\n{NAMES}"
    )
    assert keys(source)["train"] == ["images/train/a.jpg", "images/train/b.jpg", "images/more/d.jpg"]


@pytest.mark.parametrize("line", ["../other/images/x.jpg", "{root}/../other/images/x.jpg", "a/../../x.jpg"])
def test_a_line_of_a_list_may_not_leave_the_set(line: str, root: Path) -> None:
    put(root.parent / "other", "x")
    text = line.replace("{root}", str(root))
    (root / "train.txt").write_text(f"images/train/a.jpg\n{text}\n")
    source = opened(root / "data.yaml", f"train: train.txt\nval: images/val\n{NAMES}")
    assert keys(source)["train"] == ["images/train/a.jpg"]
    (problem,) = source.problems
    assert (problem.kind, problem.where) == ("path-escape", "train.txt line 2")
    assert problem.value == text


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_split_is_an_error(split: str, root: Path) -> None:
    with pytest.raises(DataError, match=rf"{split}: images/oops does not exist") as caught:
        opened(root / "data.yaml", SPLITS.replace(f"images/{split}", "images/oops") + NAMES)
    assert str(root) in caught.value.advice


def test_val_that_is_train_is_not_measured_on(root: Path) -> None:
    source = opened(root / "data.yaml", f"train: images/train\nval: images/train\n{NAMES}")
    assert {split: len(names) for split, names in keys(source).items()} == {"train": 1, "val": 1}
    assert "same images as train" in source.problems[0].message
    assert len(source.problems) == 2


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ("names: {0: tea, 1: jam}", ("tea", "jam")),
        ("names: {'0': tea, '2': jam}", ("tea", "class1", "jam")),
        ("names: [tea, 42, ' jam ']", ("tea", "42", "jam")),
        (
            "names: [yes, on, 007, 1e3, null, 0x1F, 1_000, ~]",
            ("yes", "on", "007", "1e3", "null", "0x1F", "1_000", "~"),
        ),
        ("names: {0: no, 1: 3.10}", ("no", "3.10")),
        ("names:\n  0: tea\n  1:\n", ("tea", "class1")),
        ("nc: 2", ("class0", "class1")),
        ("nc: 2\nnames:", ("class0", "class1")),
        ("nc: 5\nnames: [tea, jam]", ("tea", "jam")),
    ],
)
def test_names(names: str, classes: tuple[str, ...], root: Path) -> None:
    source = opened(root / "data.yaml", f"{SPLITS}{names}\n")
    assert source.classes == classes
    assert any("nc is 5" in problem.message for problem in source.problems) == ("nc: 5" in names)
    gaps = [problem.message for problem in source.problems if problem.kind == "class-id-gap"]
    assert gaps == (
        ["names has no 1; the class is called class1"] if classes[:2] == ("tea", "class1") else []
    )


@pytest.mark.parametrize(
    "text",
    [
        "names: 5",
        "names: {a: tea}",
        "nc: 0",
        "names: []",
        "nc: many",
        "names: {-1: tea}",
        "names: tea",
        "names: {999999999999: tea}",
        "nc: 999999999999",
        "nc: .inf",
        "names: [[tea, jam]]",
    ],
)
def test_bad_names_are_refused(text: str, root: Path) -> None:
    with pytest.raises(DataError, match=r"data\.yaml.*names"):
        opened(root / "data.yaml", f"{SPLITS}{text}\n")


@pytest.mark.parametrize("text", ["", "- a", "{", "just words", "train: images/train", "names: [a]"])
def test_other_yaml_is_no_data_set(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a data set in any known format"):
        opened(tmp_path / "other.yaml", text)


@pytest.mark.parametrize("value", ["!!int ''", "!!bool maybe", "!!timestamp x", "2024-99-99", "&a [*a]"])
def test_values_that_yaml_cannot_make_are_no_crash(value: str, root: Path) -> None:
    with pytest.raises(DataError, match=r"data\.yaml"):
        opened(root / "data.yaml", f"{SPLITS}names: {value}\n")


def test_classes_of_the_same_name_are_one(root: Path) -> None:
    (root / "labels" / "train" / "a.txt").write_text(
        "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n2 0.5 0.5 0.5 0.5\n"
    )
    (root / "labels" / "train" / "b.txt").write_text("2 0.5 0.5 0.5 0.5\n\n3 0.5 0.5 0.5 0.5\n")
    source = opened(root / "data.yaml", f"{SPLITS}names: [tea, jam, tea, milk]\n")
    assert source.classes == ("tea", "jam", "milk")
    assert [record.target.labels.tolist() for record in source.split("train")] == [[0, 1, 0], [0, 2]]
    (problem,) = source.problems
    assert (problem.kind, problem.value, problem.action) == ("duplicate-class", "tea", "noted")


def test_paths_of_another_machine_in_a_list(root: Path) -> None:
    lines = ["data/images/train/a.jpg", "/home/somebody/set/images/train/b.jpg", r"C:\set\images\more\d.jpg"]
    (root / "train.txt").write_text("\n".join(lines))
    source = opened(root / "data.yaml", f"path: .\ntrain: data/train.txt\nval: images/val\n{NAMES}")
    assert keys(source)["train"] == ["images/train/a.jpg", "images/train/b.jpg", "images/more/d.jpg"]
    assert source.problems == ()


def test_splits_must_be_paths(root: Path) -> None:
    with pytest.raises(DataError, match="train is not a path"):
        opened(root / "data.yaml", f"train: {{a: b}}\n{NAMES}")


def test_several_data_files(root: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (root / name).write_text(SPLITS + NAMES)
    with pytest.raises(DataError, match=r"a\.yaml, b\.yaml"):
        open_source(root)
    (root / "data.yaml").write_text(SPLITS + NAMES)
    assert keys(open_source(root)) == SAME
