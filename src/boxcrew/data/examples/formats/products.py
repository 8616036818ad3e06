"""The embedded set of product images: crops of the objects in `shelf` scenes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.examples.formats.crops import open_crops
from boxcrew.data.formats import EmbeddedFormat


class ProductScenes(ShelfSource):
    """A shorter `shelf` set: all scenes are drawn on opening, which takes seven seconds for a thousand."""

    num_images: ClassVar[Mapping[str, int]] = {"train": 320, "val": 80, "test": 80}


@EXAMPLE_FORMATS.register("products")
class ProductsFormat(EmbeddedFormat, ExampleFormat):
    """Color images of eight classes, 32 x 32 by default."""

    name = "products"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        return open_crops(ProductScenes.open(path), options, format=cls.name)
