"""Which runs a folder has, by the files in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from boxcrew.serve.watch import folders
from boxcrew.serve.watch.folders import find_runs


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    return folder


def keys(*roots: Path) -> list[str]:
    return [found.key for found in find_runs(roots)]


def test_runs_at_any_depth_and_nothing_else(tmp_path: Path) -> None:
    make_run(tmp_path / "detect" / "train")
    make_run(tmp_path / "detect" / "train-2")
    make_run(tmp_path / "one")
    make_run(tmp_path / "one" / "checkpoints" / "inside")
    make_run(tmp_path / ".hidden")
    (tmp_path / "photos").mkdir()
    make_run(tmp_path / "a" / "b" / "c" / "d" / "e" / "too_deep")
    (tmp_path / "around").symlink_to(tmp_path)
    assert keys(tmp_path) == ["detect/train", "detect/train-2", "one"]
    assert keys(tmp_path / "one") == ["one"]
    assert keys(tmp_path / "one", tmp_path / "detect") == ["one", "detect/train", "detect/train-2"]


def test_stages_and_comparisons(tmp_path: Path) -> None:
    make_run(tmp_path / "six" / "rcnn" / "1-finetune")
    make_run(tmp_path / "six" / "yolo")
    (tmp_path / "six" / "notes").mkdir()
    (tmp_path / "six" / "comparison.json").write_text("{}")
    names = ["1-finetune", "2-svm", "../../yolo", "/etc", "..", 7]
    stages = [{"folder": name, "kind": "descend", "state": "begun"} for name in names]
    (tmp_path / "six" / "rcnn" / "stages.json").write_text(json.dumps({"stages": stages}))
    found = {entry.key: (entry.kind, entry.parent) for entry in find_runs((tmp_path,))}
    assert found == {
        "six": ("comparison", None),
        "six/rcnn": ("staged", "six"),
        "six/rcnn/1-finetune": ("stage", "six/rcnn"),
        "six/rcnn/2-svm": ("stage", "six/rcnn"),
        "six/yolo": ("run", "six"),
    }


def test_names_may_be_anything(tmp_path: Path) -> None:
    for name in (b"\xff\xfe", "中文".encode(), b"<img src=x>", b"a\nb"):
        os.makedirs(os.fsencode(tmp_path) + b"/" + name)
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b"/plan.json")).write_text("{}")
    assert set(keys(tmp_path)) == {"��", "中文", "<img src=x>", "a\nb"}


def test_folders_of_the_same_name_and_one_that_is_gone(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "train")
    make_run(tmp_path / "b" / "train")
    roots = (tmp_path / "a" / "train", tmp_path / "b" / "train")
    assert keys(*roots) == [str(root) for root in roots]
    assert keys(tmp_path / "a" / "gone") == ["gone"]


def test_there_is_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        make_run(tmp_path / str(number))
    monkeypatch.setattr(folders, "MAX_RUNS", 5)
    assert keys(tmp_path) == list("01234")


def test_what_may_not_be_seen_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "mine")
    make_run(tmp_path / "theirs")
    original = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if "theirs" in path.parts:
            raise PermissionError(13, "Permission denied")
        return original(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert keys(tmp_path) == ["mine"]
