"""Images in the middle of another file are read like files of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.data.images.packed import PackedFile, read_ends
from boxcrew.data.images.reading import ImageError, read_header, read_image, read_start, verify_image
from tests.helpers.labels import draw


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_an_image_in_an_archive_is_that_of_the_file(name: str, tmp_path: Path) -> None:
    draw(tmp_path, name, width=300, height=200)
    file = tmp_path / name
    data = file.read_bytes()
    (tmp_path / "archive").write_bytes(b"before" + data + b"after")
    packed = PackedFile(tmp_path / "archive", f"folder/{name}", 6, len(data))
    assert packed.read_bytes() == data
    assert packed.suffix == file.suffix
    assert packed.is_file()
    assert read_start(packed, 10**6) == data
    assert read_ends(packed, 100, 50) == (data[:100], data[-50:], len(data)) == read_ends(file, 100, 50)
    assert read_ends(packed, 10**6, 10**6) == (data, data, len(data))
    assert read_header(packed) == read_header(file)
    np.testing.assert_array_equal(read_image(packed), read_image(file))
    assert verify_image(packed) is False


def test_errors_name_the_archive_and_the_member(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"no image at all")
    packed = PackedFile(tmp_path / "a.tar", "b.jpg", 3, 5)
    for read in (read_header, read_image, verify_image):
        with pytest.raises(ImageError, match=r"a\.tar/b\.jpg: not an image"):
            read(packed)
    (tmp_path / "a.tar").unlink()
    for read in (read_header, read_image, verify_image):
        with pytest.raises(ImageError, match=r"a\.tar/b\.jpg: no such image file"):
            read(packed)
