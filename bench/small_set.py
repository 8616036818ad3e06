"""Small data sets for benchmarks that are not about accuracy."""

from __future__ import annotations

from pathlib import Path

from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import write_source


def write_small(data: str | Path, out: Path, *, num_train: int, num_val: int) -> Path:
    """Write the first images of `train` and `val` as VOC into `out`, and return it."""
    source = open_source(data)
    source.splits = {"train": source.split("train")[:num_train], "val": source.split("val")[:num_val]}
    write_source(source, out, format="voc")
    return out
