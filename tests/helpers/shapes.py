"""A small YOLO set on disk whose images have many sizes and shapes."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

EXTENTS = ((100, 60), (60, 100), (98, 60), (80, 80), (130, 50), (64, 96), (90, 70), (70, 110))


def write_shapes(folder: Path) -> Path:
    """Write eight images to train on and eight for val, each with one bright rectangle; return the folder."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for number, (width, height) in enumerate(EXTENTS):
            image = rng.integers(0, 90, (height, width, 3), dtype=np.uint8)
            (x0, y0), (w, h) = rng.integers(2, 20, 2), rng.integers(16, 30, 2)
            image[y0 : y0 + h, x0 : x0 + w, number % 2] = 250
            cv2.imwrite(str(folder / "images" / split / f"{number}.png"), image)
            box = ((x0 + w / 2) / width, (y0 + h / 2) / height, w / width, h / height)
            line = f"{number % 2} " + " ".join(f"{value:.6f}" for value in box)
            (folder / "labels" / split / f"{number}.txt").write_text(line)
    names = "path: .\ntrain: images/train\nval: images/val\nnames: [blue, green]\n"
    (folder / "data.yaml").write_text(names)
    return folder
