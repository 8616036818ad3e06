"""Samples that are made of several images: mosaics, pasted objects and blends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Sample
from boxcrew.data.transforms.mosaic import Mixing, blend, join_tiles, mosaic_places, paste_objects
from boxcrew.data.transforms.pipeline import Pipeline

ReadSample = Callable[[Pipeline, int, np.random.Generator], Sample]
"""Reads and transforms the image of an index; `DataError` if it cannot be read."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixer:
    """Mixes an image of a data set with random others of it. An image that is to be mixed in, but cannot be
    read, is replaced in a mosaic by the sample's own, and otherwise left out: it is reported when its own
    turn comes.
    """

    mixing: Mixing
    num_images: int  # of the data set
    read: ReadSample

    def sample(
        self, pipeline: Pipeline, index: int, rng: np.random.Generator, mix_rng: np.random.Generator
    ) -> Sample:
        """Return the sample of an index, mixed or not; `DataError` if its own image cannot be read. `rng` is
        for this image alone, `mix_rng` for the mixing and the other images.
        """
        sample = self._mosaic_or_plain(pipeline, index, rng, mix_rng)
        if self.mixing.copy_paste and mix_rng.random() < self.mixing.copy_paste:
            with suppress(DataError):
                shown = self.read(pipeline, self._other(index, mix_rng), mix_rng)
                sample = paste_objects(sample, shown, mix_rng)
        if mix_rng.random() >= self.mixing.mixup:
            return sample
        other = self._other(index, mix_rng)
        try:
            return blend(sample, self._mosaic_or_plain(pipeline, other, mix_rng, mix_rng), mix_rng)
        except DataError:
            return sample

    def _mosaic_or_plain(
        self, pipeline: Pipeline, index: int, rng: np.random.Generator, mix_rng: np.random.Generator
    ) -> Sample:
        if mix_rng.random() >= self.mixing.mosaic:
            return self.read(pipeline, index, rng)
        canvas = pipeline.canvas
        assert canvas is not None, "the input of a step has one size"
        first, *others = places = mosaic_places(canvas, mix_rng)
        tiles = [self.read(pipeline.for_tile(first.extent), index, rng)]
        for place in others:
            tile, other = pipeline.for_tile(place.extent), self._other(index, mix_rng)
            try:
                tiles.append(self.read(tile, other, mix_rng))
            except DataError:
                tiles.append(self.read(tile, index, mix_rng))
        return join_tiles(tiles, places, canvas)

    def _other(self, index: int, rng: np.random.Generator) -> int:
        """Return the index of another image, or the same if there is no other."""
        distance = 1 + int(rng.integers(max(1, self.num_images - 1)))
        return (index + distance) % self.num_images
