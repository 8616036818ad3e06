"""A JPEG that is called sound from its markers is one that decodes; everything else is left to a decoder."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.images.jpeg import TAIL_BYTES, JpegHeader, read_jpeg_header, verify_jpeg, verify_jpeg_ends
from boxcrew.data.images.reading import MAX_PIXELS, read_image, verify_image


def encoded(*, progressive: bool, subsampling: int, gray: bool, orientation: int = 1) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    image = Pillow.fromarray(cv2.GaussianBlur(noise, (0, 0), 2))
    exif = Pillow.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    saved = io.BytesIO()
    (image.convert("L") if gray else image).save(
        saved, "JPEG", progressive=progressive, subsampling=subsampling, exif=exif
    )
    return saved.getvalue()


ORDINARY = [
    encoded(progressive=progressive, subsampling=subsampling, gray=gray, orientation=6 if gray else 1)
    for progressive, subsampling, gray in itertools.product((False, True), (0, 1, 2), (False, True))
]


@pytest.mark.parametrize("data", ORDINARY, ids=range(len(ORDINARY)))
def test_ordinary_files_are_sound(data: bytes) -> None:
    header = verify_jpeg(data)
    assert header == read_jpeg_header(data[:700])
    assert header in {JpegHeader(56, 40, 1), JpegHeader(56, 40, 6)}


@pytest.mark.parametrize("data", ORDINARY, ids=range(len(ORDINARY)))
def test_a_cut_file_is_never_sound(data: bytes) -> None:
    assert not any(verify_jpeg(data[:length]) for length in range(len(data)))
    padded = (data[:length].ljust(len(data) + 2000, b"\0") for length in range(0, len(data), 7))
    assert not any(map(verify_jpeg, padded))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(ORDINARY)))
    header = data.find(b"\xff\xda") + 14
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(2, header - 1) | st.integers(0, len(data) - 1))
        new = draw(st.binary(min_size=0, max_size=4))
        data[at : at + draw(st.integers(0, 4))] = new
    return bytes(data)


@settings(max_examples=400)
@given(data=damaged())
def test_what_is_called_sound_decodes(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    header = verify_jpeg(data)
    if header is None or header.width * header.height > MAX_PIXELS:
        return
    path = tmp_path_factory.getbasetemp() / "damaged.jpg"
    path.write_bytes(data)
    height, width = read_image(path).shape[:2]
    assert (width, height) == (
        (header.width, header.height) if header.orientation < 5 else (header.height, header.width)
    )


def ends(data: bytes, head: int = 700) -> tuple[bytes, bytes, int]:
    return data[:head], data[-TAIL_BYTES:], len(data)


@pytest.mark.parametrize("data", ORDINARY, ids=range(len(ORDINARY)))
def test_both_ends_are_enough_for_a_single_scan_that_is_whole(data: bytes) -> None:
    assert verify_jpeg_ends(*ends(data)) in {verify_jpeg(data), None}
    assert (verify_jpeg_ends(*ends(data)) is None) == (b"\xff\xc2" in data)
    assert not any(verify_jpeg_ends(*ends(data[:length])) for length in range(len(data)))
    assert verify_jpeg_ends(*ends(data, head=100)) is None


LARGE = io.BytesIO()
Pillow.fromarray(np.random.default_rng(1).integers(0, 256, (90, 120, 3), dtype=np.uint8)).save(LARGE, "JPEG")


@settings(max_examples=300)
@given(where=st.floats(0, 1), new=st.binary(max_size=6), stray=st.integers(1, 255))
def test_what_is_sound_at_both_ends_decodes_whatever_is_between(
    where: float, new: bytes, stray: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = LARGE.getvalue()
    start = whole.find(b"\xff\xda") + 14
    at = start + int(where * (len(whole) - start - 10))
    data = whole[:at] + bytes([0xFF, stray]) + new + whole[at + 8 :]
    header = verify_jpeg_ends(*ends(data))
    assert header == JpegHeader(120, 90, 1)
    path = tmp_path_factory.getbasetemp() / "stray.jpg"
    path.write_bytes(data)
    assert read_image(path).shape == (90, 120, 3)


def test_photos_of_the_world_are_sound(shared_data: Path) -> None:
    photos = [
        photo
        for name in ("coco128_yolo", "bccd_voc", "fashion8_coco")
        for photo in sorted((shared_data / name).rglob("*.jpg"))[::20]
    ]
    assert len(photos) > 50
    assert all(verify_jpeg(photo.read_bytes()) for photo in photos)
    assert all(verify_jpeg_ends(*ends(photo.read_bytes(), head=4096)) for photo in photos)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        b"\xff\xd8\xff\xd9",
        b"\x89PNG\r\n\x1a\n",
        ORDINARY[0] + b"appended" * 1000,  # its end is nowhere near
        ORDINARY[0][:-2] + ORDINARY[1],  # two files in one
    ],
)
def test_the_unusual_is_left_to_a_decoder(data: bytes) -> None:
    assert verify_jpeg(data) is None


def test_verifying_agrees_with_reading(tmp_path: Path) -> None:
    """Also for a garbled one: errors in the compressed data stop no decoder, here as everywhere."""
    whole = encoded(progressive=False, subsampling=2, gray=False)
    middle = (whole.find(b"\xff\xda") + len(whole)) // 2
    garbled = whole[:middle] + b"\x55" * 20 + whole[middle + 20 :]
    for data in (whole, garbled, whole[:middle], whole[:300], b"text"):
        path = tmp_path / "a.jpg"
        path.write_bytes(data)
        class_matches = []
        for read in (read_image, verify_image):
            try:
                read(path)
                class_matches.append("")
            except DataError as error:
                class_matches.append(error.message)
        assert class_matches[0] == class_matches[1]
        assert bool(class_matches[0]) == (data not in {whole, garbled})
