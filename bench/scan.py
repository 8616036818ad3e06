"""How fast a data set is looked at: images of a usual size, and very many annotations of tiny ones."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from bench.row import Row
from boxcrew.data.scan import scan
from boxcrew.data.source import open_source

PHOTOS, PHOTO_SIZE, PHOTO_BOXES = 5_000, (640, 480), 7
TINY, TINY_SIZE, TINY_BOXES = 10_000, (48, 48), 10


@dataclass(frozen=True)
class Times:
    """Seconds."""

    opening: float
    scanning: float

    @property
    def total(self) -> float:
        return self.opening + self.scanning


def _write(root: Path, *, images: int, size: tuple[int, int], boxes: int) -> None:
    """A YOLO set of noisy images, of different contrast and so of different lengths, as photos are."""
    width, height = size
    rng = np.random.default_rng(0)
    noise = cv2.GaussianBlur(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), (0, 0), 2)
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
    for i in range(images):
        split = "val" if i % 5 == 0 else "train"
        picture = (noise * rng.uniform(0.1, 1)).astype(np.uint8)
        _, encoded = cv2.imencode(
            ".jpg", cv2.putText(picture, str(i), (2, height // 2), 0, 0.5, (255, 255, 255))
        )
        (root / "images" / split / f"{i}.jpg").write_bytes(encoded.tobytes())
        lines = np.column_stack([rng.uniform(0.2, 0.8, (boxes, 2)), rng.uniform(0.05, 0.3, (boxes, 2))])
        text = "".join(f"0 {x:.5f} {y:.5f} {w:.5f} {h:.5f}\n" for x, y, w, h in lines)
        (root / "labels" / split / f"{i}.txt").write_text(text)
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [thing]\n")


def _measure(root: Path, cache: Path) -> Times:
    start = time.perf_counter()
    source = open_source(root)
    opened = time.perf_counter()
    assert not scan(source, workers=os.cpu_count() or 1, cache=cache).problems
    return Times(opened - start, time.perf_counter() - opened)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "photos", images=PHOTOS, size=PHOTO_SIZE, boxes=PHOTO_BOXES)
        _write(folder / "tiny", images=TINY, size=TINY_SIZE, boxes=TINY_BOXES)
        first, second = (_measure(folder / "photos", folder / "cache") for _ in range(2))
        tiny = _measure(folder / "tiny", folder / "cache")
    command, detail = "python -m bench scan", "files in the page cache; opening reads the annotations"
    return [
        Row(
            what=f"first scan of {PHOTOS:,} photos of {PHOTO_SIZE[0]} x {PHOTO_SIZE[1]}",
            ours=f"{PHOTOS / first.scanning:,.0f} images/s",
            theirs="",
            verdict=f"{PHOTOS / first.total:,.0f} images/s with opening the set",
            command=command,
            detail=detail,
        ),
        Row(
            what=f"second scan of {PHOTOS:,} unchanged photos",
            ours=f"{second.scanning:.2f} s",
            theirs="aim: under 1 s",
            verdict=f"{_met(second.scanning < 1)}; {second.total:.2f} s with opening the set",
            command=command,
            detail=detail,
        ),
        Row(
            what=f"{TINY * TINY_BOXES:,} annotations of {TINY:,} tiny images, opened and scanned",
            ours=f"{tiny.total:.1f} s",
            theirs="aim: under 60 s",
            verdict=_met(tiny.total < 60),
            command=command,
            detail=detail,
        ),
    ]


def _met(reached: object) -> str:
    return "met" if reached else "missed"
