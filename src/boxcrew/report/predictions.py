"""The predictions of networks as values and files: those of a detector as images, JSON, COCO and YOLO."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_json
from boxcrew.core.types import Detections, Floats, Image, Ints
from boxcrew.data.images.drawing import draw_boxes
from boxcrew.data.images.reading import write_image
from boxcrew.tasks.drawing import enlarged
from boxcrew.tasks.gan import contact_sheet


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The detections in one image, best first; boxes are in pixels of the image."""

    path: Path | None  # None for an array
    image: Image
    detections: Detections
    classes: tuple[str, ...]

    @property
    def boxes(self) -> Floats:
        """The boxes (N, 4) as xyxy."""
        return self.detections.boxes.numpy()

    @property
    def scores(self) -> npt.NDArray[Any]:
        return self.detections.scores.numpy()

    @property
    def labels(self) -> Ints:
        """The class indices (N,) into `classes`."""
        return self.detections.labels.numpy()

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
        height, width = self.image.shape[:2]
        rows = zip(self.names, self.scores.tolist(), self.boxes.tolist(), strict=True)
        detections = [
            {"class": name, "score": round(score, 4), "box": [round(edge, 2) for edge in box]}
            for name, score, box in rows
        ]
        path = str(self.path) if self.path else None
        return {"image": path, "width": width, "height": height, "detections": detections}

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


@dataclass(frozen=True, kw_only=True, eq=False)
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

    def to_json(self, *, num: int = 5) -> dict[str, Any]:
        """Return the `num` most probable classes, best first."""
        order = np.argsort(-self.probabilities, kind="stable")[:num]
        classes = [{"name": self.classes[i], "probability": float(self.probabilities[i])} for i in order]
        return {"source": self.source, "classes": classes}


@dataclass(frozen=True, eq=False)
class GeneratedImages:
    """Images of a generator."""

    pixels: Tensor  # uint8 (n, C, H, W), C 1 or 3

    @property
    def images(self) -> list[Image]:
        return [enlarged(image, side=1) for image in self.pixels]

    def save(self, folder: str | Path) -> Path:
        """Write `images/0000.png` and so on, and all of them as `sheet.png`; return the folder."""
        folder = Path(folder)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(self.images):
            write_image(folder / "images" / f"{number:04}.png", image)
        write_image(folder / "sheet.png", contact_sheet(self.pixels))
        return folder


class PredictionFolder:
    """A folder of predictions: `images/` and `labels/` (YOLO, with scores) are written by `add`,
    `predictions.json` and `coco.json` by `close`.
    """

    def __init__(self, folder: Path, classes: Sequence[str]) -> None:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"out={folder}: not empty", advice="give a directory that does not exist yet")
        for name in ("images", "labels"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._classes = classes
        self._records: list[dict[str, Any]] = []
        self._names: set[str] = set()

    def add(self, result: Result) -> None:
        stem = name = result.path.stem if result.path else "image"
        numbers = itertools.count(2)
        while name in self._names:  # images from several folders may share theirs
            name = f"{stem}-{next(numbers)}"
        self._names.add(name)
        result.save(self.folder / "images" / f"{name}.jpg")
        (self.folder / "labels" / f"{name}.txt").write_text(_yolo_lines(result), encoding="utf-8")
        self._records.append(result.to_json())

    def close(self) -> None:
        write_json(self.folder / "predictions.json", self._records)
        write_json(self.folder / "coco.json", self._coco())

    def _coco(self) -> dict[str, Any]:
        numbers = {name: i for i, name in enumerate(self._classes)}
        images, annotations = [], list[dict[str, Any]]()
        for image_id, record in enumerate(self._records):
            size = {"width": record["width"], "height": record["height"]}
            images.append({"id": image_id, "file_name": record["image"], **size})
            for detection in record["detections"]:
                x0, y0, x1, y1 = detection["box"]
                annotation = {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": numbers[detection["class"]],
                    "bbox": [x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)],
                    "area": round((x1 - x0) * (y1 - y0), 2),
                    "iscrowd": 0,
                    "score": detection["score"],
                }
                annotations.append(annotation)
        categories = [{"id": i, "name": name} for name, i in numbers.items()]
        return {"images": images, "categories": categories, "annotations": annotations}


def _yolo_lines(result: Result) -> str:
    """Return lines of `class x y w h score`; x, y, w and h are shares of the image size."""
    height, width = result.image.shape[:2]
    lines = []
    for label, box, score in zip(result.labels, result.boxes, result.scores, strict=True):
        x0, y0, x1, y1 = (float(edge) for edge in box)
        shares = ((x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height)
        lines.append(f"{label} {' '.join(f'{share:.6f}' for share in shares)} {score:.4f}\n")
    return "".join(lines)
