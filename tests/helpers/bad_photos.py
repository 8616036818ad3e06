"""Files that are no photos, or none that a service should decode."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image as Pillow


def photo(
    size: tuple[int, int] = (64, 48), *, mode: str = "RGB", format: str = "JPEG", **options: Any
) -> bytes:
    """Return the content of an ordinary image file of noise."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).convert(mode).save(file, format=format, **options)
    return file.getvalue()


def frames(format: str, *, num: int = 3) -> bytes:
    """Return an animation, or a file of several pages."""
    images = [Pillow.new("RGB", (16, 16), (80 * i, 0, 0)) for i in range(num)]
    file = io.BytesIO()
    images[0].save(file, format=format, save_all=True, append_images=images[1:])
    return file.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, rows: bytes, *, more: bytes = b"") -> bytes:
    """Return a gray PNG that says it has this size, whatever its compressed rows are."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + more + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def jpeg_of_size(width: int, height: int) -> bytes:
    """Return a JPEG whose header says that it is larger than it is."""
    content = bytearray(photo())
    at = content.index(b"\xff\xc0") + 5
    content[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(content)


def many_scans(num: int = 1000) -> bytes:
    """Return a progressive JPEG whose last scan is repeated."""
    content = photo(progressive=True)
    last = content.rindex(b"\xff\xda")
    scan = content[last:-2]
    return content[:last] + scan * num + b"\xff\xd9"


def many_segments(num: int = 1_000_000) -> bytes:
    """Return a JPEG with so many empty comments."""
    content = photo()
    return content[:2] + b"\xff\xfe\0\x02" * num + content[2:]


def many_blocks(num: int = 1_000_000) -> bytes:
    """Return a GIF with so many empty extensions."""
    content = photo(format="GIF")
    at = 13 + (3 << ((content[10] & 7) + 1))
    return content[:at] + b"\x21\xfe\0" * num + content[at:]


def many_fractions(num: int = 1_000_000) -> bytes:
    """Return a TIFF with a tag of so many fractions."""
    tags = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    tags += [(278, 4, 1, 8), (279, 4, 1, 64), (700, 5, num, 122)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4) + b"\1" * 8 * num


def large_exif(num: int = 1_000_000) -> bytes:
    """Return a PNG that says how it is turned in so many fractions."""
    tag = struct.pack("<HHHII", 1, 0x112, 5, num, 26)
    return png(8, 8, bytes(72), more=_chunk(b"eXIf", b"II*\0\x08\0\0\0" + tag + bytes(4) + b"\1" * 8 * num))


def archive() -> bytes:
    """Return a ZIP file with a photo in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("photo.jpg", photo())
    return file.getvalue()


def _text_bomb() -> bytes:
    """Return a PNG with a text that is large only when it is unpacked."""
    return _chunk(b"zTXt", b"comment\0\0" + zlib.compress(bytes(64 * 1024 * 1024)))


REFUSED: Mapping[str, tuple[bytes, set[int]]] = {
    "empty": (b"", {400}),
    "text": (b"this is not a photo", {415}),
    "html": (b"<html><script>alert(1)</script></html>", {415}),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>', {415}),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n", {415}),
    "eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", {415}),
    "zip": (archive(), {415}),
    "noise": (np.random.default_rng(1).bytes(4096), {415}),
    "zeros": (bytes(4096), {415}),
    "one byte": (b"\xff", {415}),
    "jpeg signature alone": (b"\xff\xd8\xff", {415, 422}),
    "png signature alone": (b"\x89PNG\r\n\x1a\n", {415, 422}),
    "video": (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(512), {415}),
    "jpeg cut in the middle": (photo()[:-200], {422}),
    "jpeg cut in its header": (photo()[:100], {415, 422}),
    "png cut in the middle": (photo(format="PNG")[:-500], {422}),
    "webp cut in the middle": (photo(format="WEBP")[:-200], {415, 422}),
    "png with a wrong checksum": (
        photo(format="PNG")[:40] + b"\0\0\0\0" + photo(format="PNG")[44:],
        {415, 422},
    ),
    "png bomb in its header": (png(50_000, 50_000, b""), {413}),
    "png that says 0 x 0": (png(0, 0, b""), {415, 422}),
    "png with too few rows": (png(4000, 4000, bytes(100)), {422}),
    "png with a text bomb": (png(8, 8, bytes(72), more=_text_bomb())[:-12], {415, 422}),
    "jpeg bomb in its header": (jpeg_of_size(65_500, 65_500), {413, 422}),
    "jpeg of 60 megapixels in its header": (jpeg_of_size(10_000, 6_000), {413}),
    "jpeg with a thousand scans": (many_scans(), {413}),
    "bmp bomb in its header": (
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 60, 0, 0, 54, 40, 30_000, 30_000, 1, 24, 0, 0, 0, 0, 0, 0),
        {413, 415, 422},
    ),
    "jpeg with a million comments": (many_segments(), {413}),
    "jpeg that is filled up": (photo()[:2] + b"\xff" * 1_000_000 + photo()[2:], {413}),
    "png with a million chunks": (png(8, 8, bytes(72), more=_chunk(b"abCd", b"") * 1_000_000), {413}),
    "gif with a million extensions": (many_blocks(), {413}),
    "tiff with a million fractions": (many_fractions(), {413}),
    "gif that moves": (frames("GIF"), {415}),
    "webp that moves": (frames("WEBP"), {415}),
    "png that moves": (frames("PNG"), {415}),
    "tiff with pages": (frames("TIFF"), {415}),
    "script in a gif": (b"GIF89a/*\x01\x00\x01\x00*/=1;alert(1)//" + bytes(64), {413, 415, 422}),
    "float tiff": (photo(mode="F", format="TIFF"), {422}),
}
"""Files that are refused, and the codes that may say so."""

ANSWERED: Mapping[str, bytes] = {
    "one pixel": photo((1, 1)),
    "a line": photo((1, 30_000)),
    "cmyk": photo(mode="CMYK"),
    "gray": photo(mode="L"),
    "palette": photo(mode="P", format="PNG"),
    "one bit": photo(mode="1", format="PNG"),
    "gray with alpha": photo(mode="LA", format="PNG"),
    "16 bits": photo(mode="I;16", format="PNG"),
    "gif": photo(format="GIF"),
    "bmp": photo(format="BMP"),
    "tiff": photo(format="TIFF"),
    "webp": photo(format="WEBP"),
    "avif": photo(format="AVIF"),
    "progressive": photo(progressive=True),
    "with a zip behind it": photo() + archive(),
    "with a large profile": photo(icc_profile=bytes(2_000_000)),
    "with a comment": photo(format="GIF", comment=b"c" * 100_000),
    "with exif of a million fractions": large_exif(),
    "with broken exif": photo(exif=b"Exif\0\0MM\0*\xff\xff\xff\xff"),
}
"""Unusual files that are photos all the same."""
