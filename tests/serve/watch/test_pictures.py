"""The pictures of a run: only those, and only pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.data.images.reading import write_image
from boxcrew.serve.watch.pictures import list_pictures, read_picture


@pytest.fixture
def plots(tmp_path: Path) -> Path:
    folder = tmp_path / "plots"
    folder.mkdir()
    for name in ("results.png", "train_batch0.jpg", "val_batch0_pred.jpg", "val_batch0_labels.jpg"):
        write_image(folder / name, np.zeros((4, 4, 3), dtype=np.uint8))
    (folder / "page.html").write_text("<script>alert(1)</script>")
    (folder / "page.jpg").write_text("<script>alert(1)</script>")
    (folder / "link.png").symlink_to(folder / "results.png")
    write_image(tmp_path / "outside.png", np.zeros((4, 4, 3), dtype=np.uint8))
    return folder


def test_predictions_come_first(plots: Path) -> None:
    names = [picture.name for picture in list_pictures(plots)]
    assert names == [
        "val_batch0_pred.jpg",
        "val_batch0_labels.jpg",
        "train_batch0.jpg",
        "page.jpg",
        "results.png",
    ]
    assert list_pictures(plots / "none") == []


def test_a_picture_has_its_own_kind(plots: Path) -> None:
    assert read_picture(plots, "results.png") == ((plots / "results.png").read_bytes(), "image/png")
    found = read_picture(plots, "train_batch0.jpg")
    assert found is not None
    assert found[1] == "image/jpeg"


@pytest.mark.parametrize(
    "name",
    [
        "page.html",
        "page.jpg",
        "link.png",
        "../outside.png",
        "/etc/passwd",
        "",
        "..",
        "results.png\0",
        "none.png",
    ],
)
def test_nothing_else_is_shown(plots: Path, name: str) -> None:
    assert read_picture(plots, name) is None
