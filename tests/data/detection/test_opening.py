"""A set that is opened again comes from its columns, as it was, and only if none of its files has changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection import opening as module
from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.detection.opening import OpenRequest, open_scanned
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import WRITERS, write_source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import DrawnSource


@pytest.fixture(autouse=True)
def small_sets_of_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are stored however small they are, and although they were written a moment ago."""
    monkeypatch.setattr(module, "LEAST_IMAGES", 1)
    monkeypatch.setattr(module, "_TICK", -(10**15))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the sets that were parsed."""
    paths: list[str] = []

    def open_it(path: str, *, format: str, seed: int, options: BoxOptions, disk: int) -> Source:
        paths.append(path)
        return open_source(path, format=format, seed=seed, options=options, disk=disk)

    monkeypatch.setattr(module, "open_source", open_it)
    return paths


def written(folder: Path, format: str = "coco") -> Path:
    write_source(DrawnSource.open(folder), folder / "set", format=format)
    return folder / "set"


def opened(path: Path, **changes: object) -> Source:
    request = OpenRequest(path=str(path), **changes)  # type: ignore[arg-type]
    return open_scanned(request, workers=1, cache=path.parent / "cache")


def values(source: Source) -> object:
    def of(record: Record) -> object:
        target = {name: array.tolist() for name, array in vars(record.target).items()}
        return record.key, record.path, record.extent, target

    splits = {name: [*map(of, records)] for name, records in source.splits.items()}
    return source.format, source.root, source.classes, splits, source.problems


def path_of(record: Record) -> Path:
    assert isinstance(record.path, Path)
    return record.path


@pytest.mark.parametrize("format", WRITERS.names())
def test_the_second_time_it_is_the_same_and_not_parsed(
    format: str, tmp_path: Path, parsed: list[str]
) -> None:
    first = opened(written(tmp_path, format))
    second = opened(tmp_path / "set")
    assert parsed == [str(tmp_path / "set")]
    assert values(second) == values(first) == values(open_source(tmp_path / "set"))
    assert second.split("train").digest == first.split("train").digest
    record = second.split("train")[1]
    np.testing.assert_array_equal(second.read(record), first.read(record))
    for source in (first, second):  # the memory is that of the files
        boxes = source.split("train").columns.boxes
        assert isinstance(boxes.base, np.memmap)
        assert not boxes.flags.writeable


def test_other_seeds_options_and_formats_are_other_sets(tmp_path: Path, parsed: list[str]) -> None:
    folder = written(tmp_path)
    for changes in ({}, {"seed": 1}, {"options": BoxOptions(rescale=True)}, {"format": "coco"}):
        opened(folder, **changes)
        opened(folder, **changes)
    assert len(parsed) == 4


def test_a_changed_annotation_file_is_parsed_again(tmp_path: Path, parsed: list[str]) -> None:
    folder = written(tmp_path)
    opened(folder)
    (file, *_) = sorted(folder.rglob("*train*.json"))
    content = json.loads(file.read_bytes())
    content["annotations"] = content["annotations"][:-1]
    file.write_text(json.dumps(content))
    assert values(opened(folder)) == values(open_source(folder))
    assert len(parsed) == 2


def test_a_set_with_another_image_or_one_less_is_parsed_again(tmp_path: Path, parsed: list[str]) -> None:
    folder = written(tmp_path, "yolo")
    image = path_of(opened(folder).split("train")[0])
    shutil.copyfile(image, image.with_name("another.png"))
    assert len(opened(folder).split("train")) == 5
    image.with_name("another.png").unlink()
    assert len(opened(folder).split("train")) == 4
    assert len(parsed) == 3


def test_an_image_of_another_size_is_noticed_by_the_scan(tmp_path: Path, parsed: list[str]) -> None:
    folder = written(tmp_path, "yolo")
    record = opened(folder).split("train")[1]
    write_image(path_of(record), np.zeros((200, 100, 3), dtype=np.uint8))
    assert opened(folder).split("train")[1].extent == (100, 200)
    assert len(parsed) == 2
    assert opened(folder).split("train")[1].extent == (100, 200)
    assert len(parsed) == 2


def test_other_pixels_of_the_same_size_need_no_parsing_but_a_broken_image_is_left_out(
    tmp_path: Path, parsed: list[str]
) -> None:
    folder = written(tmp_path)
    records = opened(folder).split("train")
    write_image(path_of(records[1]), np.zeros((records[1].height, records[1].width, 3), dtype=np.uint8))
    path_of(records[2]).write_bytes(b"no image")
    again = opened(folder)
    assert [*again.split("train").iter_keys()] == [records[number].key for number in (0, 1, 3)]
    assert [problem.kind for problem in again.problems if problem.action == "left out"] == ["not-an-image"]
    assert len(parsed) == 1


@pytest.mark.parametrize("name", ["boxes.npy", "rows.npy", "keys.npy", "set.json", "files", "COMMIT", ""])
def test_damaged_columns_are_made_anew(name: str, tmp_path: Path, parsed: list[str]) -> None:
    first = values(opened(written(tmp_path)))
    (stored,) = (file for file in (tmp_path / "cache" / "columns").iterdir() if file.is_dir())
    if name == "COMMIT":
        (stored / name).unlink()
    elif name:
        (stored / name).write_bytes((stored / name).read_bytes()[:-5])
    else:
        shutil.rmtree(stored)
    for _ in range(2):
        assert values(opened(tmp_path / "set")) == first
    assert len(parsed) == 2
    assert len([*(tmp_path / "cache" / "columns").iterdir()]) == 2  # the pointer and one folder


def test_what_changed_while_it_was_read_is_not_stored(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TICK", 10**11)
    folder = written(tmp_path)
    assert values(opened(folder)) == values(opened(folder))
    assert len(parsed) == 2
    assert not (tmp_path / "cache" / "columns").exists()


def test_small_and_drawn_sets_are_not_stored(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShelfSource, "num_images", {"train": 2, "val": 1})
    open_scanned(OpenRequest(path="shelf"), workers=1, cache=tmp_path / "cache")
    monkeypatch.setattr(module, "LEAST_IMAGES", 13)
    opened(written(tmp_path))
    opened(tmp_path / "set")
    assert len(parsed) == 3
    assert not (tmp_path / "cache" / "columns").exists()


def test_lists_outside_of_the_set_belong_to_it(tmp_path: Path, parsed: list[str]) -> None:
    folder, lists = written(tmp_path, "yolo"), tmp_path / "lists"
    lists.mkdir()
    names = {split: sorted((folder / "images" / split).iterdir()) for split in ("train", "val")}
    for split, images in names.items():
        (lists / f"{split}.txt").write_text("".join(f"{image}\n" for image in images))
    classes = "names: [tea pot, Kanne, 茶]"
    (lists / "data.yaml").write_text(
        f"path: {folder}\ntrain: {lists}/train.txt\nval: {lists}/val.txt\n{classes}"
    )
    assert len(opened(lists / "data.yaml").split("train")) == 4
    (lists / "train.txt").write_text(f"{names['train'][0]}\n")
    assert len(opened(lists / "data.yaml").split("train")) == 1
    assert len(parsed) == 2


def test_errors_are_not_stored(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(DataError, match="no such file"):
            opened(tmp_path / "absent")


def test_the_sets_that_were_not_used_for_longest_are_forgotten(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_SETS", 2)
    folder = written(tmp_path)
    for seed in (0, 1, 0, 2):
        opened(folder, seed=seed)
        time.sleep(0.01)
    assert len(parsed) == 3
    for seed in (0, 2):
        opened(folder, seed=seed)
    assert len(parsed) == 3
    opened(folder, seed=1)
    assert len(parsed) == 4
    assert len([*(tmp_path / "cache" / "columns").iterdir()]) == 4


def test_a_process_that_is_killed_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    folder = written(tmp_path)
    truth = values(open_source(folder))
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05):
        child = os.fork()
        if child == 0:
            while True:
                shutil.rmtree(tmp_path / "cache", ignore_errors=True)
                opened(folder)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert values(opened(folder)) == truth
        assert values(opened(folder)) == truth
