"""A trained detector, which finds objects in images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import overload

from boxcrew.api.images import ImageLike, Warn, as_many, each_of, find_images, load_image, read_ahead
from boxcrew.api.model import Model
from boxcrew.core.errors import UsageError
from boxcrew.core.types import Image
from boxcrew.data.images.video import VideoFrame, is_video, open_video
from boxcrew.evaluate.detection.predictor import Predictor
from boxcrew.recipes import DEFAULT
from boxcrew.report.predictions import Result
from boxcrew.tasks.base import TASKS

BATCH = 8


class Detector(Model):
    """A trained detector.
    `Detector.load("runs/detect/train").predict("shelf.jpg").plot()`
    """

    predicts = "boxes"
    default_recipe = DEFAULT

    @overload  # a str, itself an iterable, is one image
    def predict(self, image: ImageLike, *, score: float = 0.25) -> Result: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, image: Iterable[ImageLike], *, score: float = 0.25) -> list[Result]: ...
    def predict(self, image: object, *, score: float = 0.25) -> Result | list[Result]:
        """Detect objects in an image, or in each of a list, generator or batch (N, C, H, W) of images.

        An image is a path, the content of a file (bytes, or a file opened in binary mode), a Pillow image,
        an array or a tensor; `boxcrew.api.image_arrays` has the rules for the last two. Detections with a
        score below `score` are left out.
        """
        many = as_many(image)
        if many is None:
            return self._detect([load_image(image)], score)[0]
        batches = read_ahead(many, load_image, batch=BATCH)
        return [result for images in batches for result in self._detect(images, score)]

    __call__ = predict

    def predict_many(
        self,
        source: str | Path | Iterable[ImageLike],
        *,
        score: float = 0.25,
        batch: int = BATCH,
        warn: Warn = warnings.warn,
    ) -> Iterator[Result]:
        """Yield the result of each image of a folder, glob pattern, .txt file of paths, list or generator, or
        of each frame of a video file, in order.

        While `batch` images are computed together, the next are read. Images that cannot be read are left
        out, and `warn` is called.
        """
        if isinstance(source, str | Path) and is_video(source):
            frames = open_video(Path(source)).frames(warn)
            yield from self.predict_frames(frames, score=score, batch=batch)
            return
        images = find_images(source) if isinstance(source, str | Path) else each_of(source)
        for loaded in read_ahead(images, load_image, batch=batch, warn=warn):
            yield from self._detect(loaded, score)

    def predict_frames(
        self, frames: Iterable[VideoFrame], *, score: float = 0.25, batch: int = BATCH
    ) -> Iterator[Result]:
        """Yield the result of each frame; `result.frame` has its number and its time."""
        for together in read_ahead(frames, lambda frame: frame, batch=batch):
            results = self._detect([(None, frame.image) for frame in together], score)
            for frame, result in zip(together, results, strict=True):
                yield replace(result, frame=frame)

    def _detect(self, images: Sequence[tuple[Path | None, Image]], score: float) -> list[Result]:
        if not 0 <= score <= 1:
            raise UsageError(f"score={score}: not between 0 and 1")
        with self.loaded.deployment:
            predictions, _ = self._predictor([image for _, image in images])
        return [
            Result(path=path, image=image, detections=detections.above(score), classes=self.classes)
            for (path, image), detections in zip(images, predictions, strict=True)
        ]

    @cached_property
    def _predictor(self) -> Predictor:
        kind, loaded = TASKS.get(self.loaded.config.name), self.loaded
        return kind.predictor(loaded.config, loaded.task, loaded.deployment.to_device)
