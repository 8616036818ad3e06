"""Images of every kind come out upright, RGB, 8 bit; what cannot be read is named."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageOps

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Image
from boxcrew.data.images.reading import (
    MAX_PIXELS,
    ImageError,
    read_header,
    read_image,
    verify_image,
    write_image,
)

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def exactly(suffix: str) -> dict[str, Any]:
    """Options to save with as little loss as the kind allows."""
    options: dict[str, dict[str, Any]] = {"webp": {"lossless": True}, "jpg": {"quality": 100}}
    return options.get(suffix, {})


def read_size(path: Path) -> tuple[int, int]:
    header = read_header(path)
    return header.width, header.height


def noise(width: int = 24, height: int = 16, channels: int = 3) -> Image:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def smooth(width: int = 64, height: int = 48) -> Image:
    """Survives JPEG nearly unharmed: no chroma edges."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([x, y, 255 - x], axis=-1).astype(np.uint8)


def test_lossless_kinds_are_exact(tmp_path: Path) -> None:
    pixels = noise()
    for suffix in ("png", "bmp", "tiff", "webp"):
        path = tmp_path / f"a.{suffix}"
        Pillow.fromarray(pixels).save(path, **exactly(suffix))
        np.testing.assert_array_equal(read_image(path), pixels, err_msg=suffix)
        assert read_size(path) == (24, 16)


def test_jpeg_is_rgb_not_bgr(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Pillow.fromarray(smooth()).save(path, quality=98)
    assert np.abs(read_image(path).astype(int) - smooth()).max() <= 8


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(suffix: str, orientation: int, tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{suffix}"
    Pillow.fromarray(smooth()).save(path, exif=exif, **exactly(suffix))
    with Pillow.open(path) as file:
        wanted = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))
    read = read_image(path)
    assert read.flags.c_contiguous
    assert read_size(path) == (read.shape[1], read.shape[0]) == (wanted.shape[1], wanted.shape[0])
    assert read_header(path).orientation == (orientation if suffix != "tiff" else 1)
    assert np.abs(read.astype(int) - wanted).max() <= (4 if suffix == "jpg" else 0)


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_exif_orientation_that_does_not_exist_is_none(orientation: int, tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.fromarray(noise()).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), noise())


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Pillow.fromarray(smooth()).save(path, exif=b"Exif\0\0MM\0*\xff\xff\xff\xff broken")
    assert read_image(path).shape == (48, 64, 3)
    assert read_size(path) == (64, 48)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tiff", "bmp"])
def test_gray_becomes_three_equal_channels(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    Pillow.fromarray(smooth()[..., 0]).save(path, **exactly(suffix))
    read = read_image(path)
    assert (read == read[..., :1]).all()
    assert np.abs(read[..., 0].astype(int) - smooth()[..., 0]).max() <= 2


def test_black_and_white_of_one_bit(tmp_path: Path) -> None:
    Pillow.fromarray(noise()[..., 0] > 127).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png")[..., 0], (noise()[..., 0] > 127) * 255)


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_transparency_is_laid_on_white(suffix: str, tmp_path: Path) -> None:
    rgba = np.zeros((8, 8, 4), dtype=np.uint8)
    rgba[:4] = (255, 0, 0, 255)
    rgba[6:] = (0, 0, 0, 128)
    path = tmp_path / f"a.{suffix}"
    Pillow.fromarray(rgba).save(path, **exactly(suffix))
    read = read_image(path)
    assert (read[:4] == RED).all()
    assert (read[4:6] == 255).all()
    assert (np.abs(read[6:].astype(int) - 127) <= 1).all()


def test_gray_with_transparency(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4, 2), dtype=np.uint8)
    pixels[:2, :, 1] = 255
    Pillow.fromarray(pixels, "LA").save(tmp_path / "a.png")
    read = read_image(tmp_path / "a.png")
    assert (read[:2] == 0).all()
    assert (read[2:] == 255).all()


def test_palette_with_and_without_transparent_color(tmp_path: Path) -> None:
    indices = np.array([[0, 1], [2, 0]], dtype=np.uint8)
    palette = Pillow.fromarray(indices, "P")
    palette.putpalette([*RED, *GREEN, *BLUE])
    palette.save(tmp_path / "plain.png")
    palette.save(tmp_path / "clear.png", transparency=1)
    palette.save(tmp_path / "a.gif")
    np.testing.assert_array_equal(read_image(tmp_path / "plain.png"), [[RED, GREEN], [BLUE, RED]])
    np.testing.assert_array_equal(read_image(tmp_path / "clear.png"), [[RED, (255,) * 3], [BLUE, RED]])
    np.testing.assert_array_equal(read_image(tmp_path / "a.gif"), [[RED, GREEN], [BLUE, RED]])


def test_transparent_color_of_an_rgb_png(tmp_path: Path) -> None:
    pixels = np.array([[RED, GREEN]], dtype=np.uint8)
    Pillow.fromarray(pixels).save(tmp_path / "a.png", transparency=GREEN)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), [[RED, (255, 255, 255)]])


def test_cmyk_of_adobe_is_not_inverted(tmp_path: Path) -> None:
    flat = np.full((16, 16, 3), (230, 60, 40), dtype=np.uint8)
    for suffix in ("jpg", "tiff"):
        path = tmp_path / f"a.{suffix}"
        Pillow.fromarray(flat).convert("CMYK").save(path)
        assert np.abs(read_image(path).astype(int) - flat).max() <= 6, suffix
    assert b"Adobe" in (tmp_path / "a.jpg").read_bytes()


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_scaled_not_wrapped(suffix: str, tmp_path: Path) -> None:
    values = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    Pillow.fromarray(values).save(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(read_image(tmp_path / f"a.{suffix}")[0, :, 0], [0, 1, 1, 128, 255])


def test_sixteen_bit_color(tmp_path: Path) -> None:
    rows = b"".join(b"\0" + struct.pack(">6H", 65535, 32768, 0, 0, 256, 65535) for _ in range(2))
    (tmp_path / "a.png").write_bytes(_png(2, 2, depth=16, color=2, data=rows))
    assert np.abs(read_image(tmp_path / "a.png")[0].astype(int) - [[255, 128, 0], [0, 1, 255]]).max() <= 1


@pytest.mark.parametrize("suffix", ["gif", "tiff", "png", "webp"])
def test_first_of_several_frames(suffix: str, tmp_path: Path) -> None:
    frames = [Pillow.new("RGB", (8, 8), color) for color in (RED, BLUE)]
    path = tmp_path / f"a.{suffix}"
    frames[0].save(path, save_all=True, append_images=frames[1:], **exactly(suffix))
    assert (read_image(path) == RED).all()


@pytest.mark.parametrize("suffix", ["gif", "tiff", "webp", "png", "avif"])
def test_further_frames_and_pages_are_told(suffix: str, tmp_path: Path) -> None:
    first, second = Pillow.fromarray(smooth()), Pillow.fromarray(smooth()[::-1].copy())
    first.save(tmp_path / f"one.{suffix}")
    first.save(tmp_path / f"two.{suffix}", save_all=True, append_images=[second])
    assert verify_image(tmp_path / f"one.{suffix}") is False
    assert verify_image(tmp_path / f"two.{suffix}") is True


@pytest.mark.parametrize("orientation", range(1, 9))
def test_avif_is_upright(orientation: int, tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.fromarray(smooth()).save(tmp_path / "a.avif", exif=exif, quality=100)
    with Pillow.open(tmp_path / "a.avif") as stored:
        upright = np.asarray(ImageOps.exif_transpose(stored).convert("RGB"))
    image = read_image(tmp_path / "a.avif")
    np.testing.assert_array_equal(image, upright)
    assert read_size(tmp_path / "a.avif") == image.shape[1::-1]
    assert image.shape[:2] == ((64, 48) if orientation >= 5 else (48, 64))


def test_phone_jpeg_with_several_pictures(tmp_path: Path) -> None:
    frames = [Pillow.new("RGB", (8, 8), (gray,) * 3) for gray in (200, 20)]
    frames[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=frames[1:])
    assert np.abs(read_image(tmp_path / "a.jpg").astype(int) - 200).max() <= 2


def test_numbers_of_no_known_range_are_refused(tmp_path: Path) -> None:
    Pillow.fromarray(np.ones((4, 4), dtype=np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff: .*32-bit"):
        read_image(tmp_path / "a.tiff")


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "tiff", "gif"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_truncated_files_are_named(
    suffix: str, part: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = io.BytesIO()
    Pillow.fromarray(noise(200, 160)).save(whole, {"jpg": "JPEG", "gif": "GIF"}.get(suffix, suffix.upper()))
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(whole.getvalue()[: int(len(whole.getvalue()) * part)])
    for read in (read_image, verify_image):
        with pytest.raises(ImageError, match=rf"a\.{suffix}: ") as caught:
            read(path)
        assert caught.value.advice
        if suffix in {"jpg", "png"} and part > 0.1:
            assert caught.value.kind == "truncated-image"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"])
def test_no_image_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    for read in (read_image, read_size, verify_image):
        with pytest.raises(DataError, match=r"a\.jpg: ") as caught:
            read(path)
        assert caught.value.advice


def test_absent_file_and_folder_are_named(tmp_path: Path) -> None:
    for path, kind in ((tmp_path / "absent.jpg", "missing-file"), (tmp_path, "unreadable-image")):
        for read in (read_image, read_size, verify_image):
            with pytest.raises(ImageError, match=path.name) as caught:
                read(path)
            assert caught.value.kind == kind


@pytest.mark.parametrize("side", [10_001, 40_000])
def test_bomb_is_refused_from_its_header(side: int, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    assert side * side > MAX_PIXELS
    path = tmp_path / "bomb.png"
    path.write_bytes(_png(side, side, depth=8, color=0, data=b""))
    for read in (read_image, read_size, verify_image):
        with pytest.raises(ImageError, match=r"bomb\.png: .*more than 100,000,000") as caught:
            read(path)
        assert caught.value.kind == "image-bomb"


def test_a_bomb_of_a_jpeg_is_refused_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jpg"
    Pillow.fromarray(noise()).save(path)
    sides = struct.pack(">HH", 16, 24)
    assert path.read_bytes().count(sides) == 1
    path.write_bytes(path.read_bytes().replace(sides, struct.pack(">HH", 40_000, 40_000)))
    for read in (read_image, read_size, verify_image):
        with pytest.raises(ImageError, match="more than 100,000,000"):
            read(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", noise())
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), noise())
    for name in ("a.jpg", "a.JPEG"):
        write_image(tmp_path / name, smooth(), quality=95)
        assert np.abs(read_image(tmp_path / name).astype(int) - smooth()).max() <= 12
    write_image(tmp_path / "small.jpg", noise(64, 64), quality=20)
    write_image(tmp_path / "large.jpg", noise(64, 64), quality=95)
    assert (tmp_path / "small.jpg").stat().st_size < (tmp_path / "large.jpg").stat().st_size
    with pytest.raises(UsageError, match=r"\.xyz"):
        write_image(tmp_path / "a.xyz", noise())


def _png(width: int, height: int, *, depth: int, color: int, data: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("reduction", [2, 4, 8])
@pytest.mark.parametrize("size", [(64, 48), (61, 43)])
def test_a_jpeg_can_be_read_smaller(reduction: int, size: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    write_image(path, smooth(*size))
    full, small = read_image(path).astype(float), read_image(path, reduction=reduction).astype(float)
    width, height = size
    assert small.shape == (-(-height // reduction), -(-width // reduction), 3)
    rows, columns = height // reduction, width // reduction
    blocks = full[: rows * reduction, : columns * reduction].reshape(rows, reduction, columns, reduction, 3)
    assert np.abs(blocks.mean(axis=(1, 3)) - small[:rows, :columns]).mean() < 2


def test_a_turned_jpeg_read_smaller_is_upright(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    exif = Pillow.Exif()
    exif[0x0112] = 6
    Pillow.fromarray(smooth(64, 48)).save(path, exif=exif)
    assert read_image(path, reduction=2).shape == (32, 24, 3)


def test_other_kinds_come_in_full(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    write_image(path, smooth())
    np.testing.assert_array_equal(read_image(path, reduction=4), smooth())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_jpeg_of_odd_size_read_smaller_is_not_shifted(orientation: int, tmp_path: Path) -> None:
    """Its last block is not whole, and would come first."""
    path = tmp_path / "photo.jpg"
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.fromarray(smooth(61, 43)).save(path, exif=exif, quality=95)
    full, small = read_image(path).astype(float), read_image(path, reduction=2).astype(float)
    if small.shape != full.shape:
        rows, columns = full.shape[0] // 2, full.shape[1] // 2
        blocks = full[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2, 3)
        assert np.abs(blocks.mean(axis=(1, 3)) - small[:rows, :columns]).mean() < 1
    assert (small.shape == full.shape) == (orientation != 1)
