"""Small sets of images with labels written by hand, and their objects as they were read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from boxcrew.data.detection.source import Source
from boxcrew.data.images.reading import write_image

NamedBox = tuple[str, tuple[float, ...]]


def draw(folder: Path, *names: str, width: int = 40, height: int = 30) -> None:
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        write_image(folder / name, pixels)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="")
    return file


def objects_of(source: Source) -> dict[str, list[NamedBox]]:
    """Return the classes and boxes of each image, rounded to a thousandth of a pixel."""
    return {
        record.key: [
            (source.classes[label], tuple(round(side, 3) for side in box))
            for label, box in zip(record.target.labels.tolist(), record.target.boxes.tolist(), strict=True)
        ]
        for record in source.records
    }


def kinds_of(source: Source) -> set[str]:
    harmless = {"made-split", "empty-annotation"}
    return {problem.kind for problem in source.problems if problem.kind not in harmless}
