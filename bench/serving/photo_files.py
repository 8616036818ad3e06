"""Small photos of many formats, and files whose headers promise what is not there."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np


def good_photos() -> dict[str, bytes]:
    """Return a small photo in several formats."""
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3))
    pixels = np.kron(noise, np.ones((12, 12, 1))).astype(np.uint8)
    suffixes = (".jpg", ".png", ".webp", ".bmp", ".tiff")
    photos = {suffix: cv2.imencode(suffix, pixels)[1].tobytes() for suffix in suffixes}
    photos["progressive"] = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    return photos


def png_of(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def bmp_of(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 200, 0, 0, 54) + header + bytes(146)


def gif_of(width: int, height: int) -> bytes:
    size = struct.pack("<HH", min(width, 65535), min(height, 65535))
    return b"GIF89a" + size + b"\x80\0\0" + bytes(6) + b"," + bytes(4) + size + b"\0\x02\x02D\x01\0;"


def jpeg_of(width: int, height: int) -> bytes:
    photo = bytearray(good_photos()[".jpg"])
    at = photo.find(b"\xff\xc0")
    photo[at + 5 : at + 9] = struct.pack(">HH", min(height, 65535), min(width, 65535))
    return bytes(photo)


def webp_of(width: int, height: int) -> bytes:
    size = (min(width, 2**24) - 1) % 2**24, (min(height, 2**24) - 1) % 2**24
    body = (
        b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"".join(side.to_bytes(3, "little") for side in size)
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tiff_of(width: int, height: int) -> bytes:
    tags = (
        (256, width),
        (257, height),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, 1),
    )
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + bytes(4)


BOMBS = (png_of, bmp_of, gif_of, jpeg_of, webp_of, tiff_of)
"""Functions that return a file of a width and height."""
