"""A trained detector, which finds objects in images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, overload

from boxcrew.api.images import ImageLike, Warn, as_many, each_of, find_images, open_image, read_ahead
from boxcrew.api.model import Model, Which, network_name
from boxcrew.core.errors import UsageError
from boxcrew.data.images.source_image import DecodedImage, SourceImage
from boxcrew.data.images.video import VideoFrame, is_video, open_video
from boxcrew.hardware.probe import usable_cores
from boxcrew.report.predictions import Result
from boxcrew.runtime.engine_facts import EngineFacts
from boxcrew.runtime.exported import Exported, ExportedPredictor, open_exported
from boxcrew.runtime.model_file import is_model_file
from boxcrew.runtime.predictor import DetectionPredictor, PreparedImage
from boxcrew.train.bucket.records import local_run, weights

if TYPE_CHECKING:
    from boxcrew.train.run.loading import Loaded  # noqa: F401  in the base's type

BATCH = 8

_Prepared = tuple[Path | None, SourceImage, PreparedImage]
"""The file of an image or None, the image, and what the detector sees of it."""


class Detector(Model["Loaded | Exported"]):
    """A trained detector.
    `Detector.load("runs/detect/train").predict("shelf.jpg").plot()`
    """

    predicts = "boxes"
    default_recipe = "starter"

    @classmethod
    def load(
        cls, run: str | Path, which: Which = "best", device: str = "auto", engine: str | None = None
    ) -> Self:
        """Load a run directory, of which the best or the last weights are used, a weight file of one, or an
        exported file, which an `engine` computes without torch.
        """
        path = local_run(run, weights)
        if not is_model_file(path):
            if engine is not None:
                raise UsageError(
                    f"engine={engine}: {run} is computed by torch; only exported files have engines"
                )
            return cls(cls._load_task(path, which, device), path, which, device)
        exported = open_exported(path, engine=engine, threads=max(1, int(usable_cores())))
        cls._require(f"{run} is", exported.info.predicts)
        return cls(exported, path, which, "cpu")

    @property
    def _engine(self) -> str | None:
        return self.loaded.engine_name if isinstance(self.loaded, Exported) else None

    @property
    def engine(self) -> EngineFacts:
        return self.loaded.engine_facts if isinstance(self.loaded, Exported) else self.loaded.engine

    @property
    def classes(self) -> tuple[str, ...]:
        loaded = self.loaded
        return loaded.info.classes if isinstance(loaded, Exported) else loaded.task.network.classes

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
            return self._detect([self._prepare(image)], score)[0]
        batches = read_ahead(many, self._prepare, batch=BATCH)
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
        for prepared in read_ahead(images, self._prepare, batch=batch, warn=warn):
            yield from self._detect(prepared, score)

    def predict_frames(
        self, frames: Iterable[VideoFrame], *, score: float = 0.25, batch: int = BATCH
    ) -> Iterator[Result]:
        """Yield the result of each frame; `result.frame` has its number and its time."""
        for together in read_ahead(frames, self._prepare_frame, batch=batch):
            results = self._detect([prepared for _, prepared in together], score)
            for (frame, _), result in zip(together, results, strict=True):
                yield replace(result, frame=frame)

    def _prepare(self, image: object) -> _Prepared:
        path, opened = open_image(image)
        return path, opened, self._predictor.prepare(opened)

    def _prepare_frame(self, frame: VideoFrame) -> tuple[VideoFrame, _Prepared]:
        image = DecodedImage(frame.image)
        return frame, (None, image, self._predictor.prepare(image))

    def _detect(self, images: Sequence[_Prepared], score: float) -> list[Result]:
        if not 0 <= score <= 1:
            raise UsageError(f"score={score}: not between 0 and 1")
        with nullcontext() if isinstance(self.loaded, Exported) else self.loaded.deployment:
            predictions, _ = self._predictor([prepared for _, _, prepared in images])
        return [
            Result(path=path, source=source, detections=detections.above(score), classes=self.classes)
            for (path, source, _), detections in zip(images, predictions, strict=True)
        ]

    @cached_property
    def _predictor(self) -> DetectionPredictor:
        loaded = self.loaded
        if isinstance(loaded, Exported):
            return ExportedPredictor.of(loaded)
        from boxcrew.tasks.base import TASKS

        kind = TASKS.get(loaded.config.name)
        return kind.predictor(loaded.config, loaded.task, loaded.deployment.to_device)

    @property
    def network_name(self) -> str:
        if isinstance(self.loaded, Exported):
            return f"{self.loaded.info.network} in {self.loaded.engine_name}"
        return network_name(self.loaded)
