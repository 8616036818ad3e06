"""A photo as a client has sent it, and what it must be before it is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from boxcrew.core.types import Image
from boxcrew.data.images.heic import HEAD_BYTES, is_heic
from boxcrew.data.images.reading import has_more_frames
from boxcrew.data.images.source_image import DecodedImage, EncodedImage, SourceImage
from boxcrew.serve.file_structure import has_countless_parts, num_scans
from boxcrew.serve.refusals import RefusedError

MAX_PIXELS = 50_000_000
"""Larger photos are refused from their header."""

_MOST_SCANS = 100  # of a progressive JPEG: ordinary ones have about ten, and each is a pass over all pixels
_KNOWN = "send JPEG, PNG, WebP, AVIF, HEIC, BMP, or a GIF or TIFF with one image"


class NamedPhoto(Protocol):
    """A photo with a name, in whatever form it has come."""

    @property
    def name(self) -> str:
        """The file name that the client sent."""
        ...

    def open(self) -> SourceImage:
        """Return the photo, ready to be decoded."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Photo:
    """The content of one file, with the name that the client sent."""

    name: str
    data: bytes

    def open(self) -> EncodedImage:
        """Return the photo, ready to be decoded; `RefusedError` or `ImageError` unless its header tells
        what it will cost.
        """
        if not self.data:
            raise RefusedError(
                400, "bad_request", f"{self.name}: is empty", advice="send the bytes of a photo"
            )
        if not _is_known(self.data[:HEAD_BYTES]):
            raise RefusedError(415, "unsupported", f"{self.name}: not a photo of a known kind", advice=_KNOWN)
        if has_countless_parts(self.data):
            message = f"{self.name}: is made of countless parts"
            raise RefusedError(413, "too_large", message, advice="save it with another program")
        image = EncodedImage(self.data, name=self.name)
        width, height = image.extent
        if width * height > MAX_PIXELS:
            raise RefusedError(
                413,
                "too_large",
                f"{self.name}: {width} x {height} pixels, more than {MAX_PIXELS:,}",
                advice="reduce the photo",
            )
        if has_more_frames(self.data, name=self.name):
            message = f"{self.name}: has several frames or pages"
            raise RefusedError(415, "unsupported", message, advice="send one of them")
        if num_scans(self.data) > _MOST_SCANS:
            message = f"{self.name}: a JPEG of more than {_MOST_SCANS} scans"
            raise RefusedError(413, "too_large", message, advice="save it as an ordinary JPEG")
        return image


@dataclass(frozen=True, kw_only=True, eq=False)
class PixelPhoto:
    """A photo that has come as pixels."""

    name: str
    pixels: Image

    def open(self) -> DecodedImage:
        """Return the photo; nothing has to be decoded."""
        return DecodedImage(self.pixels, name=self.name)


def _is_known(head: bytes) -> bool:
    """Return whether a file begins as a photo of a kind that is decoded here: other decoders are not reached
    at all.
    """
    if head.startswith(
        (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
    ):
        return True
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return True
    return head[4:8] == b"ftyp" and (is_heic(head) or b"avif" in head)
