"""The embedded product set `shelf`, drawn by code: nothing to download, the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Self

from boxcrew.core.types import Image
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import SOURCES, Source
from boxcrew.data.embedded.shelf.layout import CLASSES
from boxcrew.data.embedded.shelf.scene import draw_scene, make_scene
from boxcrew.data.formats import EmbeddedFormat


@SOURCES.register("shelf")
class ShelfSource(EmbeddedFormat, Source):
    """Eight classes of products on shelves, tables, rails and floors. Opening computes the boxes; reading a
    record draws its image.
    """

    format = "shelf"
    seed: ClassVar[int] = 2024  # of the data; a run's seed does not change them
    size: ClassVar[int] = 320  # side of the images, in pixels
    num_images: ClassVar[Mapping[str, int]] = {"train": 480, "val": 160, "test": 160}

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        seed: int = 0,  # noqa: ARG003  the set is always the same
        options: BoxOptions = AS_THE_FORMAT_SAYS,
    ) -> Self:
        options.require_default(str(path))
        splits = {split: _records(split, count) for split, count in cls.num_images.items()}
        return cls(root=path, classes=CLASSES, splits=splits)

    def read(self, record: Record, *, reduction: int = 1) -> Image:  # noqa: ARG002  always drawn in full
        _, split, index = record.key.split("/")
        image, _ = draw_scene(seed=self.seed, split=split, index=int(index), size=self.size)
        return image


@lru_cache(maxsize=8)
def _records(split: str, count: int) -> tuple[Record, ...]:
    """Return the records of a split. Cached: computing the boxes of the whole set takes a second or two."""
    size, records = ShelfSource.size, list[Record]()
    for index in range(count):
        target = make_scene(seed=ShelfSource.seed, split=split, index=index, size=size).target
        key = f"shelf/{split}/{index:04d}"
        records.append(Record(key=key, path=None, width=size, height=size, target=target))
    return tuple(records)
