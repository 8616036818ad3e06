"""Image files, read into upright RGB whatever their kind, and written."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import IO

import cv2
import numpy as np
from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Image

MAX_PIXELS = 100_000_000
"""Larger images are refused from their header: a few kilobytes of file can be gigabytes of pixels."""

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
"""Lower case; what is looked for where a folder stands for its images."""

_ORIENTATION = 0x0112  # the EXIF tag; 1 is upright, 5 to 8 swap width and height
_OPENCV_FORMATS = frozenset({"JPEG", "MPO", "PNG", "WEBP", "BMP"})
_ENDINGS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
_ENDING_BYTES = 1024  # where an ending is looked for: some cameras append a little
_SIXTEEN_BIT_MODES = frozenset({"I;16", "I;16L", "I;16B"})
_UNSUPPORTED_MODES = frozenset({"I", "F"})  # of no known range
_FAULTS = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error, zlib.error)

# Both libraries would print about files that the errors here name.
warnings.filterwarnings("ignore", category=Pillow.DecompressionBombWarning)
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def read_image(path: Path) -> Image:
    """The first frame. Transparency is laid on white, 16 bits are scaled to 8.

    Ordinary images are decoded by OpenCV, which is faster; Pillow decodes the rest, and tells why an
    image cannot be decoded. A JPEG whose body is garbled but whole is decoded as far as it goes, as in
    every library.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    with _open(path, io.BytesIO(data)) as file:
        pixels = _decode_with_opencv(file, data)
        if pixels is None:
            pixels = _decode_with_pillow(path, file)
        return _upright(pixels, _orientation(file))


def read_size(path: Path) -> tuple[int, int]:
    """(width, height) of the upright image, from the header alone."""
    with _open(path, path) as file:
        width, height = file.size
        return (height, width) if _orientation(file) >= 5 else (width, height)


def write_image(path: Path, image: Image, *, quality: int = 95) -> None:
    """As JPEG (with `quality`, 1..100) or PNG (without loss), by the suffix of `path`."""
    suffix = path.suffix.lower()
    if suffix not in {".jpg", ".jpeg", ".png"}:
        raise UsageError(f"{path}: cannot write images of the kind {suffix!r}", advice="use .jpg or .png")
    options = [] if suffix == ".png" else [cv2.IMWRITE_JPEG_QUALITY, quality]
    _, encoded = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    path.write_bytes(encoded.tobytes())


def _open(path: Path, file: Path | IO[bytes]) -> Pillow.Image:
    """The header, checked; the pixels are not read yet."""
    try:
        opened = Pillow.open(file)
    except (*_FAULTS, Pillow.DecompressionBombError) as error:
        raise _unreadable(path, error) from error
    width, height = opened.size
    if width * height > MAX_PIXELS:
        opened.close()
        raise _too_large(path, f"{width} x {height} pixels")
    return opened


def _orientation(file: Pillow.Image) -> int:
    if file.format == "TIFF":
        return 1  # Pillow gives size and pixels of these upright
    if file.format == "PNG" and "exif" not in file.info:
        return 1  # Pillow would decode the whole image to look for EXIF behind it
    try:
        orientation = file.getexif().get(_ORIENTATION, 1)
    except _FAULTS:
        return 1  # broken EXIF says nothing
    return orientation if orientation in range(1, 9) else 1


def _decode_with_opencv(file: Pillow.Image, data: bytes) -> Image | None:
    """None for what OpenCV would not get right, or cannot decode."""
    ordinary = (
        file.format in _OPENCV_FORMATS and file.mode in {"RGB", "L"} and "transparency" not in file.info
    )
    animated = getattr(file, "is_animated", False) and file.format != "MPO"
    # Of a file cut short, some versions of OpenCV make a half grey image, and its libraries print to stderr.
    whole = _ENDINGS.get(str(file.format), b"") in data[-_ENDING_BYTES:]
    if animated or not (ordinary and whole):
        return None
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    decoded = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    if decoded is None or decoded.shape[:2] != (file.height, file.width):
        return None
    rgb: Image = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB, dst=decoded)
    return rgb


def _decode_with_pillow(path: Path, file: Pillow.Image) -> Image:
    if file.mode in _UNSUPPORTED_MODES:
        raise DataError(
            f"{path}: pixels are 32 bit numbers of no known range (mode {file.mode})",
            advice="save the image with 8 or 16 bits",
        )
    try:
        file.load()
        if file.mode in _SIXTEEN_BIT_MODES:
            grey = np.asarray(file).astype(np.uint16)
            return np.repeat(((grey + np.uint32(128)) // 257).astype(np.uint8)[..., None], 3, axis=2)
        if file.has_transparency_data:
            file = _on_white(file)
        return np.array(file.convert("RGB"))
    except _FAULTS as error:
        raise _unreadable(path, error) from error


def _on_white(file: Pillow.Image) -> Pillow.Image:
    rgba = file.convert("RGBA")
    return Pillow.alpha_composite(Pillow.new("RGBA", rgba.size, "white"), rgba)


def _upright(pixels: Image, orientation: int) -> Image:
    """Undoes the turn and mirroring that EXIF names: (transposed, left to right, top to bottom)."""
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in {2, 3, 6, 7}:
        pixels = pixels[:, ::-1]
    if orientation in {3, 4, 7, 8}:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such image file", advice="restore the file or remove it from the set")
    if isinstance(error, Pillow.DecompressionBombError):
        return _too_large(path, "a bomb of pixels")
    if isinstance(error, UnidentifiedImageError):
        return DataError(f"{path}: not an image of a known kind", advice="convert it to JPEG or PNG")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return DataError(f"{path}: cannot be read: {reason}", advice="restore the file or remove it from the set")


def _too_large(path: Path, size: str) -> DataError:
    return DataError(f"{path}: {size}, more than {MAX_PIXELS:,}", advice="reduce the image")
