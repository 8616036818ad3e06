"""Small labeled sets on disk, one for each format, made for a test."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image
from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.data.images.reading import write_image


def make_idx(folder: Path) -> Path:
    """60 pictures to train on and 9 for test, 12 x 12: picture i has the value i, and i + 100 in its lower
    half; its label is i % 3.
    """
    for prefix, count in (("train", 60), ("t10k", 9)):
        numbers = np.arange(count, dtype=np.uint8)
        pictures = np.repeat(numbers, 144).reshape(count, 12, 12)
        pictures[:, 6:] += 100
        _write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", pictures)
        _write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", numbers % 3)
    return folder


def _write_idx(file: Path, array: npt.NDArray[np.uint8]) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    file.write_bytes(gzip.compress(header + array.tobytes()))


def make_csv(folder: Path) -> Path:
    """40 rows of two kinds."""
    rows = ["height,color,kind"]
    for index in range(40):
        color, kind = ("green", "brown", "red")[index % 3], ("oak", "elm")[index % 2]
        rows.append(f"{10 + 5 * (index % 2) + index / 20},{color},{kind}")
    file = folder / "trees.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


def draw_blocks(seed: int, *, width: int = 40, height: int = 30) -> Image:
    """5 x 5 blocks of colors; the sides can be divided by 5."""
    blocks = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return np.kron(blocks, np.ones((height // 5, width // 5, 1), dtype=np.uint8))


def write_classes(folder: Path, counts: Mapping[str, int]) -> None:
    """PNGs 0, 1, 2, … in a folder for each class, no two alike."""
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            write_image(folder / name / f"{index}.png", draw_blocks(1000 * number + index))


def make_folder(folder: Path) -> Path:
    """6 images of one class and 8 of another."""
    write_classes(folder, {"cup": 6, "bowl": 8})
    return folder


def make_crops(folder: Path) -> Path:
    """A VOC set of 8 scenes to train on and 4 for validation."""
    shelf = open_source("shelf")
    shelf.splits = {"train": shelf.splits["train"][:8], "val": shelf.splits["val"][:4]}
    write_source(shelf, folder / "photos", format="voc")
    return folder / "photos"


def make_text(folder: Path) -> Path:
    """1500 characters."""
    file = folder / "long.txt"
    file.write_text("one two three four five, " * 60)
    return file


MAKERS: Mapping[str, Callable[[Path], Path]] = {
    "idx": make_idx,
    "csv": make_csv,
    "folder": make_folder,
    "crops": make_crops,
    "text": make_text,
}
"""Each writes a set into an empty folder and gives its path."""
