"""Names of splits, and files found below folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.folders import (
    ImageFinder,
    beginning_of,
    files_below,
    first_files,
    names_in,
    read_lines,
    split_of_file,
    split_of_folder,
    split_of_path,
    stem_of,
    suffix_of,
)


@pytest.mark.parametrize(
    ("name", "split"),
    [("train", "train"), ("Train2017", "train"), ("valid", "val"), ("validation", "val"), ("TEST", "test")],
)
def test_folders_named_after_splits(name: str, split: str) -> None:
    assert split_of_folder(name) == split
    assert split_of_file(f"instances_{name}") == split


@pytest.mark.parametrize("name", ["images", "training_set_photos", "contest", "trains", "", "2017"])
def test_other_folders(name: str) -> None:
    assert split_of_folder(name) is None


def test_files_that_name_no_split_or_two() -> None:
    assert split_of_file("annotations") is None
    assert split_of_file("train_val") is None
    assert split_of_file("_annotations.coco") is None


def test_only_folders_below_the_root_name_a_split() -> None:
    root = Path("test") / "set"
    assert split_of_path(root / "images" / "val" / "a.jpg", root) == "val"
    assert split_of_path(root / "val" / "images" / "a.jpg", root) == "val"
    assert split_of_path(root / "images" / "train.jpg", root) is None


def test_files_below_skips_hidden_ones_and_survives_loops(tmp_path: Path) -> None:
    for name in ("b/x.JPG", "a.jpg", ".git/y.jpg", "b/.z.jpg", "__MACOSX/w.jpg", "b/readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "back").symlink_to(tmp_path, target_is_directory=True)
    names = [file.relative_to(tmp_path).as_posix() for file in files_below(tmp_path, {".jpg"})]
    assert names == ["a.jpg", "b/x.JPG"]


def test_files_below_follows_links_to_other_folders(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.jpg").touch()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "images").symlink_to(tmp_path / "disk", target_is_directory=True)
    assert files_below(tmp_path / "set", {".jpg"}) == [tmp_path / "set" / "images" / "a.jpg"]


def test_finder_prefers_the_name_then_the_order(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder, names in ((first, ["b.jpg", "a.txt"]), (second, ["a.jpg", "a.png", "b.jpg"])):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    finder = ImageFinder()
    assert finder.find([first, second], "a", "a.png") == second / "a.png"
    assert finder.find([first, second], "a", "other.png") == second / "a.jpg"
    assert finder.find([second, first], "b") == second / "b.jpg"
    assert finder.find([tmp_path / "absent", first], "c") is None


@pytest.mark.parametrize("name", ["a.JPG", "a.tar.gz", "a", ".hidden", ".a.txt", "a b.Png"])
def test_parts_of_names_are_those_of_paths(name: str) -> None:
    assert (stem_of(name), suffix_of(name)) == (Path(name).stem, Path(name).suffix.lower())


def test_names_in_a_folder_are_sorted_and_none_in_no_folder(tmp_path: Path) -> None:
    for name in ("b", "a.txt", ".c"):
        (tmp_path / name).touch()
    assert names_in(tmp_path) == [".c", "a.txt", "b"]
    assert names_in(tmp_path / "absent") == names_in(tmp_path / "b") == []


def test_lines_without_blanks_and_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\n  two \n")
    assert read_lines(tmp_path / "a.txt") == ["one", "two"]
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"b\.txt"):
        read_lines(tmp_path / "b.txt")


def test_a_few_files_of_each_folder_tell_the_format(tmp_path: Path) -> None:
    for name in (
        *(f"{i}.json" for i in range(9)),
        "a/b/c.json",
        "a/d.JSON",
        "a/b/deep/e.json",
        ".hidden.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = [file.relative_to(tmp_path).as_posix() for file in first_files(tmp_path, ".json", depth=2)]
    assert names == ["0.json", "1.json", "2.json", "3.json", "a/d.JSON", "a/b/c.json"]
    assert len(list(first_files(tmp_path, ".json", depth=0))) == 4
    assert list(first_files(tmp_path / "absent", ".json", depth=2)) == []


def test_the_beginning_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf \n{" + b"x" * 100_000)
    assert beginning_of(tmp_path / "a").startswith(b"{x")
    assert len(beginning_of(tmp_path / "a")) <= 65_536
    assert beginning_of(tmp_path) == b""
    assert beginning_of(tmp_path / "absent") == b""
