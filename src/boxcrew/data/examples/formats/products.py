"""The embedded set of product pictures: the objects of `shelf`, cut out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.examples.formats.crops import open_crops


class ProductScenes(ShelfSource):
    """Fewer scenes: all of them are drawn when the set is opened, which takes seven seconds a thousand."""

    num_images: ClassVar[Mapping[str, int]] = {"train": 320, "val": 80, "test": 80}


@EXAMPLE_FORMATS.register("products")
class ProductsFormat(ExampleFormat):
    """Eight classes, 32 x 32 in colour if nothing else is wanted."""

    name = "products"

    @classmethod
    def detect(cls, path: Path) -> bool:  # noqa: ARG003  no path leads to it, only its name
        return False

    @classmethod
    def looked_for(cls) -> str:
        return "the word 'products' (an embedded set)"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        return open_crops(ProductScenes.open(path), options, format=cls.name)
