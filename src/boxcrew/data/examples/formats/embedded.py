"""The embedded sets: product images, which are crops of the objects in `shelf` scenes, and running text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.embedded.shop_talk import write_shop_talk
from boxcrew.data.examples.corpus import open_corpus
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


@EXAMPLE_FORMATS.register("shop_talk")
class ShopTalkFormat(EmbeddedFormat, ExampleFormat):
    """Generated running text, the same for every seed of a run."""

    name = "shop_talk"
    num_characters: ClassVar[Mapping[str, int]] = {"train": 160_000, "val": 20_000, "test": 20_000}

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        counts = cls.num_characters
        texts = {split: write_shop_talk(counts[split], seed=SPLITS.index(split)) for split in counts}
        return open_corpus(path, texts, options, format=cls.name, problems=[])
