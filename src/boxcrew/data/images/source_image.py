"""An image that is decoded when it is asked for, no larger than is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from boxcrew.core.input_size import Extent
from boxcrew.core.types import Image
from boxcrew.data.images.reading import decode_header, decode_image


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """The content of an image file. `ImageError` where its header or pixels cannot be read."""

    data: bytes
    name: str = "image data"  # for messages

    @cached_property
    def extent(self) -> Extent:
        """The (width, height) of the upright image, from its header."""
        header = decode_header(self.data, name=self.name)
        return header.width, header.height

    def read(self, *, reduction: int = 1) -> Image:
        """Return the pixels, as `read_image` does."""
        return decode_image(self.data, name=self.name, reduction=reduction)


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """An image whose pixels are in memory."""

    pixels: Image
    name: str = "image"  # for messages

    @property
    def extent(self) -> Extent:
        height, width = self.pixels.shape[:2]
        return width, height

    def read(self, *, reduction: int = 1) -> Image:  # noqa: ARG002  there is nothing to save
        """Return the pixels in full size."""
        return self.pixels


SourceImage = EncodedImage | DecodedImage
