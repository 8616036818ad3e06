"""Reads image files of many kinds into upright RGB arrays, and writes them."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import cv2
import numpy as np
from PIL import ExifTags, UnidentifiedImageError
from PIL import Image as Pillow

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Image
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.images.heic import HEAD_BYTES, is_heic, register_heic
from boxcrew.data.images.jpeg import TAIL_BYTES, read_jpeg_header, verify_jpeg, verify_jpeg_ends
from boxcrew.data.images.packed import ImagePath, PackedFile, read_ends, read_part

MAX_PIXELS = 100_000_000
"""Larger images are refused from their header: a few kilobytes of file can be gigabytes of pixels."""

IMAGE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
)
"""The suffixes of the files that are images of a folder, in lower case."""

_OPENCV_FORMATS = frozenset({"JPEG", "MPO", "PNG", "WEBP", "BMP"})
_ENDINGS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
_STARTS_AND_ENDS = ((b"\xff\xd8", _ENDINGS["JPEG"]), (b"\x89PNG", _ENDINGS["PNG"]))
_REDUCED = {1: cv2.IMREAD_COLOR} | {by: getattr(cv2, f"IMREAD_REDUCED_COLOR_{by}") for by in (2, 4, 8)}
_HEAD_BYTES = (4096, 65536)  # the first is enough for most JPEGs, the second if they have a preview
_MOST_EXIF = 256 * 1024  # bytes: a JPEG has room for 64 KiB, and millions of values would be read for seconds
DECODING_FAULTS = (
    OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error, zlib.error,
    AssertionError, RuntimeError,  # of a closed file; of damaged AVIF files
)  # fmt: skip

# Both libraries would print warnings about files that the errors here report.
warnings.filterwarnings("ignore", category=Pillow.DecompressionBombWarning)
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


class ImageError(DataError):
    """An image file cannot be used; `kind` is the kind of defect."""

    def __init__(self, message: str, *, kind: ProblemKind = "unreadable-image", advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.kind: ProblemKind = kind


@dataclass(frozen=True, slots=True)
class Header:
    width: int  # of the upright image
    height: int
    orientation: int = 1  # EXIF orientation of the stored image; from 5 on width and height were swapped


def read_image(path: ImagePath, *, reduction: int = 1) -> Image:
    """Return the first frame. Transparency is blended with white, 16 bits are scaled to 8. With a `reduction`
    of 2, 4 or 8 an ordinary JPEG is decoded with its sides divided by it, rounded up, which is several times
    as fast; other images are returned in full size. Ordinary images are decoded by OpenCV, which is faster;
    Pillow decodes the rest, and reports why an image cannot be decoded. A JPEG whose data is corrupt but
    complete is decoded as far as possible, as by every library.
    """
    return _decode(path, read_file(path), reduction=reduction)


def decode_image(data: bytes, *, name: str = "image data", reduction: int = 1) -> Image:
    """Return the image of a file whose content is in memory, as `read_image` does; errors call it `name`."""
    return _decode(Path(name), data, reduction=reduction)


def convert_pillow(image: Pillow.Image) -> Image:
    """Return a Pillow image as `read_image` returns that of a file: upright, without transparency, 8 bits."""
    path = Path(getattr(image, "filename", "") or "Pillow image")
    return _upright(_decode_with_pillow(path, image), _orientation(image))


def read_header(path: ImagePath) -> Header:
    """Return the header of an image without reading its pixels."""
    for num_bytes in _HEAD_BYTES:
        try:
            head = read_start(path, num_bytes)
        except OSError as error:
            raise _unreadable(path, error) from error
        header = read_jpeg_header(head)
        if header is not None:
            return _header(path, (header.width, header.height), header.orientation)
        if len(head) < num_bytes or not head.startswith(b"\xff\xd8"):
            break
    with _open(path, path if isinstance(path, Path) else io.BytesIO(read_file(path))) as opened:
        return _header(path, opened.size, _orientation(opened))


def decode_header(data: bytes, *, name: str = "image data") -> Header:
    """Return the header of a file whose content is in memory, as `read_header` does."""
    path = Path(name)
    if (header := read_jpeg_header(data[: _HEAD_BYTES[-1]])) is not None:
        return _header(path, (header.width, header.height), header.orientation)
    with _open(path, io.BytesIO(data)) as opened:
        return _header(path, opened.size, _orientation(opened))


def has_more_frames(data: bytes, *, name: str = "image data") -> bool:
    """Return whether a file whose content is in memory has more frames or pages than the first, without
    decoding one.
    """
    if read_jpeg_header(data[: _HEAD_BYTES[-1]]) is not None:
        return False
    path = Path(name)
    with _open(path, io.BytesIO(data)) as opened:
        try:
            return _is_animated(opened)
        except DECODING_FAULTS as error:
            raise _unreadable(path, error) from error


def verify_image(path: ImagePath) -> bool:
    """Raise an `ImageError` if `read_image` would; else return whether there are more frames or pages than
    the first, which alone is read. It is faster: a JPEG of ordinary structure need not be decoded, and mostly
    only its ends are read.
    """
    try:
        header = verify_jpeg_ends(*read_ends(path, _HEAD_BYTES[0], TAIL_BYTES))
    except OSError as error:
        raise _unreadable(path, error) from error
    if header or (header := verify_jpeg(data := read_file(path))):
        _header(path, (header.width, header.height), header.orientation)
        return False
    _decode(path, data)
    with _open(path, io.BytesIO(data)) as file:
        return _is_animated(file)


def read_start(path: str | ImagePath, num_bytes: int) -> bytes:
    """Return the first bytes of a file."""
    return path.read_part(0, num_bytes) if isinstance(path, PackedFile) else read_part(path, 0, num_bytes)


def read_file(path: ImagePath) -> bytes:
    """Return the content of a file; `ImageError` if it cannot be read."""
    try:
        if isinstance(path, PackedFile):
            return path.read_bytes()
        with path.open("rb", buffering=0) as file:
            return file.read()
    except OSError as error:
        raise _unreadable(path, error) from error


def _header(path: ImagePath, size: tuple[int, int], orientation: int) -> Header:
    width, height = size
    if width * height > MAX_PIXELS:
        raise _too_large(path, f"{width} x {height} pixels")
    if orientation >= 5:
        width, height = height, width
    return Header(width, height, orientation)


def _decode(path: ImagePath, data: bytes, *, reduction: int = 1) -> Image:
    ordinary = verify_jpeg_ends(data[: _HEAD_BYTES[0]], data[-TAIL_BYTES:], len(data))
    if ordinary is not None:  # Pillow need not look at it
        stored = (ordinary.width, ordinary.height)
        _header(path, stored, ordinary.orientation)
        pixels = _imdecode(data, stored, ordinary.orientation, reduction)
        if pixels is not None:
            return _upright(pixels, ordinary.orientation)
    try:
        with _open(path, io.BytesIO(data)) as file:
            pixels = _decode_with_opencv(file, data, reduction)
            if pixels is None:
                pixels = _decode_with_pillow(path, file)
            return _upright(pixels, _orientation(file))
    except ImageError as error:
        end = next((end for start, end in _STARTS_AND_ENDS if data.startswith(start)), b"")
        if error.kind == "unreadable-image" and end not in data[-TAIL_BYTES:]:
            raise ImageError(error.message, kind="truncated-image", advice=error.advice) from error
        raise


def write_image(path: Path, image: Image, *, quality: int = 95) -> None:
    """Write a JPEG (with `quality`, 1..100) or a lossless PNG, by the suffix of `path`."""
    suffix = path.suffix.lower()
    if suffix not in {".jpg", ".jpeg", ".png"}:
        raise UsageError(f"{path}: cannot write {suffix!r} images", advice="use .jpg or .png")
    path.write_bytes(encode_image(image, suffix=suffix, quality=quality))


def encode_image(image: Image, *, suffix: str = ".jpg", quality: int = 95) -> bytes:
    """Return the content of a JPEG file (with `quality`, 1..100) or of a lossless PNG, by the suffix."""
    options = [] if suffix == ".png" else [cv2.IMWRITE_JPEG_QUALITY, quality]
    _, encoded = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    return encoded.tobytes()


def _open(path: ImagePath, file: Path | IO[bytes]) -> Pillow.Image:
    """Return the image with its header checked and its pixels not read yet."""
    try:
        head = read_start(file, HEAD_BYTES) if isinstance(file, Path) else file.read(HEAD_BYTES)
        if is_heic(head) and not register_heic():
            needs = "which is read with an extra package: pip install 'boxcrew[heic]'"
            raise ImageError(f"{path}: is HEIC, {needs}", advice="install it, or convert the image to JPEG")
        opened = Pillow.open(file)  # from its beginning
    except (*DECODING_FAULTS, Pillow.DecompressionBombError) as error:
        raise _unreadable(path, error) from error
    try:
        _header(path, opened.size, orientation=1)
    except ImageError:
        opened.close()
        raise
    return opened


def _orientation(file: Pillow.Image) -> int:
    # Pillow returns TIFFs upright; of a PNG it would decode all to search for EXIF data behind it.
    if file.format == "TIFF" or (file.format == "PNG" and "exif" not in file.info):
        return 1
    if len(file.info.get("exif", b"")) > _MOST_EXIF:
        return 1
    try:
        orientation = file.getexif().get(ExifTags.Base.Orientation, 1)
    except DECODING_FAULTS:
        return 1  # broken EXIF data is ignored
    return orientation if orientation in range(1, 9) else 1


def _decode_with_opencv(file: Pillow.Image, data: bytes, reduction: int) -> Image | None:
    """Return None for an image that OpenCV cannot decode, or would decode wrongly."""
    if file.format not in _OPENCV_FORMATS or file.mode not in {"RGB", "L"} or "transparency" in file.info:
        return None
    # Some versions of OpenCV decode a truncated file to a half gray image, and its libraries print to stderr.
    if _is_animated(file) or _ENDINGS.get(str(file.format), b"") not in data[-TAIL_BYTES:]:
        return None
    # OpenCV would decode all of another kind of file, then skip pixels.
    return _imdecode(data, file.size, _orientation(file), reduction if file.format == "JPEG" else 1)


def _is_animated(file: Pillow.Image) -> bool:
    """Return whether there are more frames or pages than the first. Those of MPO are other views of it."""
    return bool(getattr(file, "is_animated", False)) and file.format != "MPO"


def _imdecode(data: bytes, size: tuple[int, int], orientation: int, reduction: int) -> Image | None:
    """Decode to `size` (width, height) as stored, divided by `reduction`; None if OpenCV cannot."""
    if orientation != 1 and any(side % reduction for side in size):
        reduction = 1  # the partial block of a rotated JPEG would come first and shift the others
    flags = _REDUCED[reduction] | cv2.IMREAD_IGNORE_ORIENTATION
    decoded = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    width, height = (-(-side // reduction) for side in size)
    if decoded is None or decoded.shape[:2] != (height, width):
        return None
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB, dst=decoded))


def _decode_with_pillow(path: ImagePath, file: Pillow.Image) -> Image:
    if file.mode in {"I", "F"}:
        message = f"{path}: has 32-bit pixels without a known range (mode {file.mode})"
        raise ImageError(message, advice="save the image with 8 or 16 bits")
    try:
        file.load()
        if file.mode in {"I;16", "I;16L", "I;16B"}:
            gray = np.asarray(file).astype(np.uint16)
            return np.repeat(((gray + np.uint32(128)) // 257).astype(np.uint8)[..., None], 3, axis=2)
        if file.has_transparency_data:
            white = Pillow.new("RGBA", file.size, "white")
            return np.array(Pillow.alpha_composite(white, file.convert("RGBA")).convert("RGB"))
        return np.array(file.convert("RGB"))
    except DECODING_FAULTS as error:
        raise _unreadable(path, error) from error


def _upright(pixels: Image, orientation: int) -> Image:
    """Undo the rotation and mirroring of an EXIF orientation."""
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in {2, 3, 6, 7}:
        pixels = pixels[:, ::-1]
    if orientation in {3, 4, 7, 8}:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _unreadable(path: ImagePath, error: Exception) -> ImageError:
    restore = "restore the file or remove it from the set"
    if isinstance(error, FileNotFoundError):
        return ImageError(f"{path}: no such image file", kind="missing-file", advice=restore)
    if isinstance(error, Pillow.DecompressionBombError):
        return _too_large(path, "a decompression bomb")
    if isinstance(error, UnidentifiedImageError):
        message, advice = f"{path}: not an image of a known kind", "convert it to JPEG or PNG"
        return ImageError(message, kind="not-an-image", advice=advice)
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    reason = text.strip() or type(error).__name__
    is_cut = any(words in reason.lower() for words in ("truncated", "end of file"))
    kind: ProblemKind = "truncated-image" if is_cut else "unreadable-image"
    return ImageError(f"{path}: cannot be read: {reason}", kind=kind, advice=restore)


def _too_large(path: ImagePath, size: str) -> ImageError:
    message = f"{path}: {size}, more than {MAX_PIXELS:,}"
    return ImageError(message, kind="image-bomb", advice="reduce the image")
