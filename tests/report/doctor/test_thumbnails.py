"""Pictures inside a page: the right part of the photo, with the box where it is."""

from __future__ import annotations

import base64
import re
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.images.reading import write_image
from boxcrew.report.doctor.markup import Html
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, read_partial_image, render_figures


def photo_of(width: int, height: int, box: Box) -> Image:
    """Black, with the box in red."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    x0, y0, x1, y1 = map(round, box)
    image[y0:y1, x0:x1, 0] = 255
    return image


def develop_one(read: Callable[[], Image], **rest: object) -> Html:
    (picture,) = render_figures([Thumbnail(read=read, alt="what is seen", **rest)], workers=1)  # type: ignore[arg-type]
    assert picture
    return picture


def pixels(picture: Html) -> Image:
    match = re.search(r'src="data:image/jpeg;base64,([^"]+)"', picture)
    assert match
    decoded = cv2.imdecode(np.frombuffer(base64.b64decode(match[1]), np.uint8), cv2.IMREAD_COLOR_RGB)
    assert decoded is not None
    return np.asarray(decoded, dtype=np.uint8)


def drawn(picture: Html) -> tuple[list[float], list[float]]:
    """The frame's x, y, width, height and the size of what it is drawn on."""
    rect = re.search(r'class="line"[^>]* x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"', picture)
    view = re.search(r'viewBox="0 0 (\S+) (\S+)"', picture)
    assert rect
    assert view
    return [float(v) for v in rect.groups()], [float(v) for v in view.groups()]


@given(
    width=st.integers(40, 500),
    height=st.integers(40, 500),
    shares=st.tuples(*(st.floats(0, 0.7) for _ in range(2)), *(st.floats(0.1, 0.3) for _ in range(2))),
)
def test_the_frame_lies_on_the_box_whatever_part_is_shown(
    width: int, height: int, shares: tuple[float, float, float, float]
) -> None:
    x0, y0 = round(shares[0] * width), round(shares[1] * height)
    box = (float(x0), float(y0), float(round(x0 + shares[2] * width)), float(round(y0 + shares[3] * height)))
    photo = photo_of(width, height, box)
    picture = develop_one(lambda: photo, frames=(Frame(box=box, color="#123456"),), around=box, side=128)
    seen = pixels(picture)
    assert seen.shape[0] == seen.shape[1] <= 128
    (x, y, w, h), (wide, high) = drawn(picture)
    scale = seen.shape[1] / wide
    assert wide == high
    red = (seen[..., 0] > 128) & (seen[..., 1] < 100)
    rows, columns = np.flatnonzero(red.any(axis=1)), np.flatnonzero(red.any(axis=0))
    least = 0.04 * wide  # smaller boxes are drawn larger
    assert w == pytest.approx(max(least, box[2] - box[0]), abs=0.01)
    assert h == pytest.approx(max(least, box[3] - box[1]), abs=0.01)
    assert (columns.min() + columns.max() + 1) / 2 == pytest.approx((x + w / 2) * scale, abs=2)
    assert (rows.min() + rows.max() + 1) / 2 == pytest.approx((y + h / 2) * scale, abs=2)


def test_a_whole_photo_keeps_its_shape_and_is_not_enlarged() -> None:
    photo = np.full((60, 120, 3), 90, dtype=np.uint8)
    picture = develop_one(lambda: photo)
    assert pixels(picture).shape == (60, 120, 3)
    assert "--ratio:2.000" in picture
    assert 'alt="what is seen"' in picture
    assert "<svg" not in picture


@pytest.mark.parametrize(
    "box", [(50.0, 50.0, 50.0, 50.0), (90.0, 80.0, 10.0, 20.0), (300.0, 300.0, 400.0, 400.0)]
)
def test_boxes_that_cannot_be_are_drawn_where_they_can_be_seen(box: Box) -> None:
    photo = np.full((100, 100, 3), 90, dtype=np.uint8)
    (x, y, w, h), _ = drawn(develop_one(lambda: photo, frames=(Frame(box=box, color="red", dashed=True),)))
    assert min(w, h) >= 4
    assert x <= 100 <= 100 + x + w
    assert y <= 100 <= 100 + y + h


def test_what_cannot_be_read_is_no_picture() -> None:
    def fails() -> Image:
        raise DataError("gone")

    assert render_figures([Thumbnail(read=fails, alt="")], workers=2) == [""]
    assert render_figures([], workers=2) == []


def test_a_photo_cut_short_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "cut.jpg"
    rows = np.linspace(60, 250, 256).astype(np.uint8)[:, None, None]
    noise = np.random.default_rng(0).integers(0, 6, (256, 256, 3), dtype=np.uint8)
    write_image(file, (np.broadcast_to(rows, (256, 256, 3)) - noise).astype(np.uint8))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    left = read_partial_image(file)
    assert left.shape == (256, 256, 3)
    assert abs(float(left[:32].mean()) - float(rows[:32].mean())) < 10
    assert left[-16:].mean() < 140


def test_a_photo_cut_anywhere_is_shown_or_named(tmp_path: Path) -> None:
    file = tmp_path / "cut.jpg"
    write_image(file, np.full((32, 32, 3), 200, dtype=np.uint8))
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):  # most of a small JPEG is its header
        file.write_bytes(whole[:length])
        with suppress(DataError):
            assert read_partial_image(file).shape == (32, 32, 3)


def test_a_long_photo_needs_no_square_of_its_length() -> None:
    photo = np.full((20, 40_000, 3), 90, dtype=np.uint8)
    tracemalloc.start()
    picture = develop_one(lambda: photo, around=(0, 0, 40_000, 20), side=128)
    assert tracemalloc.get_traced_memory()[1] < 4 * photo.nbytes
    tracemalloc.stop()
    assert pixels(picture).shape == (128, 128, 3)


@pytest.mark.parametrize("content", [b"<html>404</html>", b"", b"\xff\xd8\xff\xe0"])
def test_nothing_can_be_shown_of_what_is_no_photo(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "none.jpg"
    file.write_bytes(content)
    with pytest.raises(DataError):
        read_partial_image(file)
