"""The embedded running text, for language models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from boxcrew.data.detection.source import SPLITS
from boxcrew.data.embedded.shop_talk import write_shop_talk
from boxcrew.data.examples.corpus import open_corpus
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.formats import EmbeddedFormat


@EXAMPLE_FORMATS.register("shop_talk")
class ShopTalkFormat(EmbeddedFormat, ExampleFormat):
    """Generated running text, the same for every seed of a run."""

    name = "shop_talk"
    num_characters: ClassVar[Mapping[str, int]] = {"train": 160_000, "val": 20_000, "test": 20_000}

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        texts = {
            split: write_shop_talk(count, seed=SPLITS.index(split))
            for split, count in cls.num_characters.items()
        }
        return open_corpus(path, texts, options, format=cls.name)
