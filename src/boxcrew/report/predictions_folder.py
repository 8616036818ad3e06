"""Folders of predictions, written while they are made: images, JSON, COCO and YOLO."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from boxcrew.report.json_array import JsonArray
from boxcrew.report.predicted_labels import PredictedLabels
from boxcrew.report.predictions import ClassResult, Result

_MAX_STEM = 100  # characters; names of files may have 255 bytes, of up to four for a character


class PredictionFolder:
    """The files about detections: `images/`, `labels/` (YOLO, with scores), `predictions.json` and
    `coco.json`. They grow with each result, and are complete after `close`, at any number of results. With
    a `format`, a data set in that format for labeling tools is added at the end.
    """

    def __init__(self, folder: Path, classes: tuple[str, ...], *, format: str | None = None) -> None:
        self._folder = folder
        self._labels = None if format is None else PredictedLabels(folder / format, classes, format=format)
        named = "" if format is None else f", {format}/"
        self.contents = f"images/, labels/, predictions.json, coco.json{named}"
        self._numbers: dict[str, int] = {}  # by stem, of images that share it; most do not
        for name in ("images", "labels"):
            (folder / name).mkdir(parents=True)
        self._predictions = _ArrayFile(folder / "predictions.json")
        self._coco = _CocoFile(folder / "coco.json", classes)

    def add(self, result: Result) -> None:
        name = self._free_name(_stem(result))
        (self._folder / "labels" / f"{name}.txt").write_text(_yolo_lines(result), encoding="utf-8")
        result.save(self._folder / "images" / f"{name}.jpg")
        record = result.to_json()
        self._predictions.add(record)
        self._coco.add(record)
        if self._labels is not None:
            self._labels.add(result)

    def close(self) -> None:
        with closing(self._predictions), closing(self._coco):
            if self._labels is not None:
                self._labels.close()

    def _free_name(self, stem: str) -> str:
        """Return the stem, with a number if images of several folders share it."""
        name = stem
        while (self._folder / "labels" / f"{name}.txt").exists():
            number = self._numbers[stem] = self._numbers.get(stem, 1) + 1
            name = f"{stem}-{number}"
        return name


class ClassFile:
    """The file `predictions.json` about classes. It grows with each result, and is complete after `close`."""

    contents = "predictions.json"

    def __init__(self, folder: Path) -> None:
        self._predictions = _ArrayFile(folder / "predictions.json")

    def add(self, result: ClassResult) -> None:
        self._predictions.add(result.to_json())

    def close(self) -> None:
        self._predictions.close()


class _ArrayFile:
    """A JSON file with one array."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        self._array = JsonArray(self._file.write)

    def add(self, record: dict[str, Any]) -> None:
        self._array.add(record)

    def close(self) -> None:
        with self._file:
            self._array.close()


class _CocoFile:
    """A COCO file of detections with scores. The annotations, which come after all images, wait in a
    temporary file.
    """

    def __init__(self, path: Path, classes: Sequence[str]) -> None:
        self._labels = {name: label for label, name in enumerate(classes)}
        self._num_images = self._num_annotations = 0
        self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        self._waiting = tempfile.TemporaryFile("w+", encoding="utf-8", dir=path.parent)  # noqa: SIM115 - closed by close
        categories = [{"id": label, "name": name} for name, label in self._labels.items()]
        start = f'{{"categories": {json.dumps(categories, ensure_ascii=False)},\n"images": ['
        self._images = JsonArray(self._file.write, start=start, end="],\n")
        self._annotations = JsonArray(self._waiting.write, start='"annotations": [', end="]}\n")

    def close(self) -> None:
        with self._file, self._waiting:
            self._images.close()
            self._annotations.close()
            self._waiting.seek(0)
            while text := self._waiting.read(1 << 20):
                self._file.write(text)

    def add(self, record: dict[str, Any]) -> None:
        size = {"width": record["width"], "height": record["height"]}
        self._images.add({"id": self._num_images, "file_name": record["image"], **size})
        for detection in record["detections"]:
            x0, y0, x1, y1 = detection["box"]
            self._num_annotations += 1
            annotation = {
                "id": self._num_annotations,
                "image_id": self._num_images,
                "category_id": self._labels[detection["class"]],
                "bbox": [x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)],
                "area": round((x1 - x0) * (y1 - y0), 2),
                "iscrowd": 0,
                "score": detection["score"],
            }
            self._annotations.add(annotation)
        self._num_images += 1


def _stem(result: Result) -> str:
    """Return the name of an image's files, without suffix. That of a URL has only plain characters."""
    if result.name is None:
        return result.path.stem if result.path else "image"
    return re.sub(r"[^\w.-]", "_", Path(result.name).stem)[:_MAX_STEM] or "image"


def _yolo_lines(result: Result) -> str:
    """Return lines of `class x y w h score`; x, y, w and h are shares of the image size."""
    width, height = result.source.extent
    lines = []
    for (x0, y0, x1, y1), score, label, _ in result:
        shares = ((x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height)
        lines.append(f"{label} {' '.join(f'{share:.6f}' for share in shares)} {score:.4f}\n")
    return "".join(lines)
