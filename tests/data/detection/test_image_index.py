"""Names of images as annotation tools write them, and the files that are meant."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from boxcrew.data.detection.image_index import ImageIndex


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    root = tmp_path / "set"
    for name in (
        "images/a.jpg",
        "images/B c.jpg",
        "train/twice.png",
        "val/twice.png",
        "images/11aa22bb-d.jpg",
        "images/50%.jpg",
        "images/what?.jpg",
        "images/Caf\u00e9.jpg",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (tmp_path / "outside.jpg").touch()
    (root / "images/e.jpg").touch()
    return ImageIndex(root)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.jpg", "images/a.jpg"),
        ("images/a.jpg", "images/a.jpg"),
        ("A.JPG", "images/a.jpg"),
        (r"C:\photos\2024\a.jpg", "images/a.jpg"),
        (r"images\a.jpg", "images/a.jpg"),
        ("/home/somebody/a.jpg", "images/a.jpg"),
        ("../../a.jpg", "images/a.jpg"),
        ("https://tool.example/data/upload/1/B%20c.jpg?token=1", "images/B c.jpg"),
        ("/data/local-files/?d=shop/images/a.jpg", "images/a.jpg"),
        ("/data/upload/1/9f8e7d6c-e.jpg", "images/e.jpg"),
        ("11aa22bb-d.jpg", "images/11aa22bb-d.jpg"),
        ("val/twice.png", "val/twice.png"),
        ("/home/somebody/shop/val/twice.png", "val/twice.png"),
        ("s3://bucket/shop/train/twice.png", "train/twice.png"),
        (f"/tasks/1/presign/?fileuri={base64.b64encode(b's3://bucket/x/a.jpg').decode()}", "images/a.jpg"),
        ("images/B%20c.jpg", "images/B c.jpg"),
        ("50%.jpg", "images/50%.jpg"),
        ("what?.jpg", "images/what?.jpg"),
        ("Cafe\u0301.jpg", "images/Caf\u00e9.jpg"),
    ],
)
def test_what_a_name_means(index: ImageIndex, name: str, file: str) -> None:
    assert index.find(name) == index.root / file


def test_a_name_that_several_files_have(index: ImageIndex) -> None:
    problem = ("ambiguous-image", "other/twice.png may be train/twice.png or val/twice.png")
    assert index.find("other/twice.png") == problem
    assert index.find("twice.png", [index.root / "val"]) == index.root / "val/twice.png"


@pytest.mark.parametrize("name", ["../outside.jpg", "b.jpg", "", "images", "/x/?fileuri=%", "a\0.jpg"])
def test_a_name_that_no_file_has(index: ImageIndex, name: str) -> None:
    assert index.find(name) == ("missing-file", f"there is no image file {name}")


@pytest.mark.parametrize("name", ["http://[", "a\0b.jpg", "\ud800.jpg"])
def test_a_name_that_no_file_can_have(index: ImageIndex, name: str) -> None:
    assert index.find(name) == ("missing-file", f"there is no image file {name}")


@pytest.mark.parametrize("root", [".", "../set"])
def test_no_name_leads_out_of_a_relative_root(
    root: str, index: ImageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(index.root)
    relative = ImageIndex(Path(root))
    assert relative.find("../outside.jpg") == ("missing-file", "there is no image file ../outside.jpg")
    assert relative.find("train/../images/a.jpg") == Path(root) / "images/a.jpg"
    assert relative.find("images/a.jpg") == Path(root) / "images/a.jpg"


def test_a_very_long_name_is_not_found_and_not_repeated(index: ImageIndex) -> None:
    for name in ("x" * 5000 + ".jpg", "data:image/png;base64," + "A" * 5000):
        kind, message = index.find(name)  # type: ignore[misc]
        assert kind == "missing-file"
        assert len(message) < 120
