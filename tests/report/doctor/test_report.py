"""A set examined: the numbers, as programs get them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.report.doctor.report import Diagnosis, set_name

Examine = Callable[[Path], Diagnosis]


def test_json_is_whole(small: Diagnosis, tiny_set: Path) -> None:
    report = json.loads(json.dumps(small.to_json(), allow_nan=False))
    assert report["data"] == str(tiny_set)
    assert report["format"] == "voc"
    assert {name: split["images"] for name, split in report["splits"].items()} == {
        "train": 8,
        "val": 4,
        "test": 2,
    }
    for split in report["splits"].values():
        assert sum(split["boxes_by_class"].values()) == split["boxes"]
        assert split["image_sizes"] == [{"width": 320, "height": 320, "images": split["images"]}]
        assert split["box_side"]["min"] <= split["box_side"]["p50"] <= split["box_side"]["max"]
    assert report["anchor_coverage"]["size"] == report["detector"]["size"] == 96
    assert report["suspects"] is None


def test_a_set_without_any_box_is_an_error(tiny_set: Path, tmp_path: Path, examined: Examine) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(tiny_set, photos)
    for file in (photos / "Annotations").iterdir():
        file.write_text(re.sub(r"<object>.*</object>", "", file.read_text(), flags=re.DOTALL))
    with pytest.raises(DataError):
        examined(photos)


def test_a_set_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos.v2" / "images").mkdir(parents=True)
    (tmp_path / "photos.v2" / "mine.yaml").touch()
    (tmp_path / "link").symlink_to(tmp_path / "photos.v2")
    monkeypatch.chdir(tmp_path / "photos.v2")
    for path, name in {
        ".": "photos.v2",
        "images/..": "photos.v2",
        "../link": "link",
        f"{tmp_path}/photos.v2/": "photos.v2",
        "mine.yaml": "mine",
        "shelf": "shelf",
    }.items():
        assert set_name(path) == name
