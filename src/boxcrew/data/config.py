"""Which data a run learns from."""

from __future__ import annotations

from boxcrew.core.config import Config


class DataConfig(Config):
    group = "data"
    shorthand = "path"

    path: str  # a data set's directory or file, or the name of an embedded one; by itself, the task's own
    format: str = "auto"  # voc, coco, yolo; idx, csv, folder, crops, text
    val: str = "val"  # the split that is evaluated
    strict: bool = False  # stop at data that has to be repaired or left out
