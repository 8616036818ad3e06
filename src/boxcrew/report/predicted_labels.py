"""Predictions as a data set for labeling tools, so that people correct boxes instead of drawing them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Image, Target
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, write_source
from boxcrew.data.images.source_image import SourceImage
from boxcrew.report.predictions import Result


@dataclass(kw_only=True, eq=False)
class _Predicted(Source):
    """Images with their detections as objects."""

    format: ClassVar[str] = "predictions"
    images: dict[str, SourceImage] = field(default_factory=dict)  # by key, of those that are not files

    @classmethod
    def detect(cls, path: Path) -> bool:  # noqa: ARG003  it is made, not found
        return False

    @classmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        del seed, options
        raise UsageError(f"{path}: predictions are written, not read")

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        if record.key in self.images:
            return self.images[record.key].read(reduction=reduction)
        return super().read(record, reduction=reduction)


class PredictedLabels:
    """A data set of predictions, which is written on `close`."""

    def __init__(self, folder: Path, classes: tuple[str, ...], *, format: str) -> None:
        WRITERS.get(format)  # is there one?
        self._folder, self._classes, self._format = folder, classes, format
        self._records: list[Record] = []
        self._images: dict[str, SourceImage] = {}

    def add(self, result: Result) -> None:
        width, height = result.source.extent
        key = f"{len(self._records)}/{Path(result.title).name}"
        if result.path is None:
            self._images[key] = result.source
        target = Target.of(result.boxes, result.labels)
        self._records.append(Record(key=key, path=result.path, width=width, height=height, target=target))

    def close(self) -> None:
        source = _Predicted(
            root=self._folder,
            classes=self._classes,
            splits={"train": tuple(self._records)},
            images=self._images,
        )
        write_source(source, self._folder, format=self._format)
