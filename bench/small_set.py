"""A part of a data set, written as a set of its own: benchmarks that are not about accuracy need no more."""

from __future__ import annotations

from pathlib import Path

from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import write_source


def write_small(data: str | Path, out: Path, *, num_train: int, num_val: int) -> Path:
    """The first images of `train` and `val`, as VOC; gives `out`."""
    source = open_source(data)
    source.splits = {"train": source.split("train")[:num_train], "val": source.split("val")[:num_val]}
    write_source(source, out, format="voc")
    return out
