"""HEIC photos are read with an extra package, and named as what they are without it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import ExifTags
from PIL import Image as Pillow

from boxcrew.core.types import Image
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.heic import is_heic
from boxcrew.data.images.reading import ImageError, read_header, read_image, verify_image
from tests.helpers.sources import problem_lines


def smooth(width: int = 64, height: int = 48) -> Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([x, y, 255 - x], axis=-1).astype(np.uint8)


def save_heic(path: Path, *, orientation: int = 1) -> None:
    image, exif = Pillow.fromarray(smooth()), Pillow.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    pillow_heif.from_pillow(image).save(path, quality=95, exif=exif.tobytes())


@pytest.mark.parametrize("name", ["photo.heic", "photo.HEIF", "photo.jpg"])
def test_a_heic_photo_is_read_whatever_its_name(name: str, tmp_path: Path) -> None:
    save_heic(tmp_path / name)
    header = read_header(tmp_path / name)
    assert (header.width, header.height, header.orientation) == (64, 48, 1)
    assert np.abs(read_image(tmp_path / name).astype(int) - smooth()).mean() < 3
    assert verify_image(tmp_path / name) is False


def test_a_rotated_photo_has_the_size_of_its_header(tmp_path: Path) -> None:
    save_heic(tmp_path / "a.heic", orientation=6)
    header, image = read_header(tmp_path / "a.heic"), read_image(tmp_path / "a.heic")
    assert image.shape[:2] == (header.height, header.width)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.99])
def test_a_photo_that_is_cut_is_named(share: float, tmp_path: Path) -> None:
    path = tmp_path / "a.heic"
    save_heic(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ImageError, match=r"a\.heic: "):
        verify_image(path)


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_heic(tmp_path / "a.heic")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for read in (read_header, read_image, verify_image):
        with pytest.raises(ImageError, match=r"is HEIC, .* pip install 'boxcrew\[heic\]'") as caught:
            read(tmp_path / "a.heic")
        assert caught.value.kind == "unreadable-image"


def test_photos_beside_their_annotations_belong_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>20</xmax><ymax>25</ymax></bndbox>"
    for name in "ab":
        save_heic(tmp_path / f"{name}.heic")
        (tmp_path / f"{name}.xml").write_text(
            f"<annotation><filename>{name}.heic</filename><object><name>tea</name>{box}</object></annotation>"
        )
    assert len(open_source(tmp_path).records) == 2
    Pillow.fromarray(smooth()).save(tmp_path / "a.jpg")
    (tmp_path / "a.heic").unlink()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert "b.heic: is HEIC, which is read with an extra package" in problem_lines(open_source(tmp_path))


def test_other_files_are_not_heic(tmp_path: Path) -> None:
    Pillow.fromarray(smooth()).save(tmp_path / "a.avif")
    assert not is_heic((tmp_path / "a.avif").read_bytes()[:64])
    assert not is_heic(b"")
    assert not is_heic(b"\0\0\0\x18ftypmp42\0\0\0\0isommp42")
