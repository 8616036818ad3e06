"""Settings of the data that a run trains on."""

from __future__ import annotations

from boxcrew.core.config import Config


class DataConfig(Config):
    group = "data"
    shorthand = "path"

    path: str  # directory or file of a data set, or the name of an embedded one; default: the task's
    format: str = "auto"  # voc, coco, yolo; idx, csv, folder, crops, text
    val: str = "val"  # the split that is evaluated
    strict: bool = False  # stop if any data has to be repaired or left out
