"""Predictions as values, without torch; `predictions_folder` and `predictions_video` write them to files."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Detections, Floats, Image, Ints
from boxcrew.data.images.drawing import draw_boxes
from boxcrew.data.images.reading import write_image
from boxcrew.data.images.source_image import SourceImage
from boxcrew.data.images.video import VideoFrame


class Detection(NamedTuple):
    """One object that was found."""

    box: tuple[float, float, float, float]  # xyxy in pixels of the image
    score: float
    label: int  # the class index
    name: str  # of the class


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """The detections in one image, best first; boxes are in pixels of the image.

    `len(result)` is their number, and iterating yields a `Detection` for each.
    """

    path: Path | None  # None for an image from memory
    source: SourceImage
    detections: Detections
    classes: tuple[str, ...]
    name: str | None = None  # of an image that has one without being a file, such as a URL
    frame: VideoFrame | None = None  # of a video or camera

    @cached_property
    def image(self) -> Image:
        """The pixels of the image in full size."""
        return self.source.read()

    def __len__(self) -> int:
        return len(self.detections)

    def __iter__(self) -> Iterator[Detection]:
        for box, score, label in zip(self.boxes, self.scores, self.labels, strict=True):
            x0, y0, x1, y1 = map(float, box)
            yield Detection((x0, y0, x1, y1), float(score), int(label), self.classes[label])

    def __repr__(self) -> str:
        return f"Result({self.title}, {_size(self.source.extent)}, {self.summary()})"

    @property
    def title(self) -> str:
        """The name of the image in messages: its path, its URL, or the number of its frame."""
        if self.frame is not None:
            return f"frame {self.frame.number}"
        return self.name or (str(self.path) if self.path else "image")

    def summary(self) -> str:
        """Return the number of detections of each class, such as `2 phone, 1 books`."""
        counts = Counter(self.names).most_common()
        return ", ".join(f"{num} {name}" for name, num in counts) or "nothing found"

    @property
    def boxes(self) -> Floats:
        """The boxes (N, 4) as xyxy."""
        return self.detections.boxes

    @property
    def scores(self) -> npt.NDArray[Any]:
        return self.detections.scores

    @property
    def labels(self) -> Ints:
        """The class indices (N,) into `classes`."""
        return self.detections.labels

    @property
    def names(self) -> list[str]:
        return [self.classes[label] for label in self.labels]

    def plot(self) -> Image:
        """Return a copy of the image with the boxes drawn on it."""
        return draw_boxes(self.image, self.boxes, self.labels, self.classes, self.scores)

    def save(self, path: str | Path) -> Path:
        """Write the plot as a JPEG or PNG file, and return its path."""
        write_image(Path(path), self.plot())
        return Path(path)

    def to_json(self) -> dict[str, Any]:
        width, height = self.source.extent
        rows = zip(self.names, self.scores.tolist(), self.boxes.tolist(), strict=True)
        detections = [
            {"class": name, "score": round(score, 4), "box": [round(edge, 2) for edge in box]}
            for name, score, box in rows
        ]
        return {**self._origin(), "width": width, "height": height, "detections": detections}

    def _origin(self) -> dict[str, Any]:
        if self.frame is not None:
            return {"frame": self.frame.number, "seconds": round(self.frame.seconds, 3)}
        return {"image": self.name or (str(self.path) if self.path else None)}

    def to_supervision(self) -> Any:
        """Return `supervision.Detections` with class names; only here is that package imported."""
        try:
            supervision = importlib.import_module("supervision")
        except ModuleNotFoundError as error:
            raise UsageError(f"to_supervision: {error}: pip install supervision") from None
        names = {"class_name": np.array(self.names, dtype=np.str_)}
        return supervision.Detections(
            xyxy=self.boxes, confidence=self.scores, class_id=self.labels, data=names
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClassResult:
    """The probabilities (C,) of one sample's classes, in the order of `classes`."""

    source: str | None  # FILE or FILE:LINE; None for a sample from memory
    probabilities: Floats
    classes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The most probable class."""
        return self.classes[int(self.probabilities.argmax())]

    @property
    def probability(self) -> float:
        """The probability of the most probable class."""
        return float(self.probabilities.max())

    def __repr__(self) -> str:
        return f"ClassResult({self.source or 'sample'}, {self.name} {self.probability:.2f})"

    def to_json(self, *, num: int = 5) -> dict[str, Any]:
        """Return the `num` most probable classes, best first."""
        order = np.argsort(-self.probabilities, kind="stable")[:num]
        classes = [{"name": self.classes[i], "probability": float(self.probabilities[i])} for i in order]
        return {"source": self.source, "classes": classes}


def _size(extent: Extent) -> str:
    width, height = extent
    return f"{width} x {height}"
