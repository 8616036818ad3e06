"""Settings of the data that a run trains on."""

from __future__ import annotations

from boxcrew.core.config import Config


class DataConfig(Config):
    group = "data"
    shorthand = "path"

    path: str
    """Directory or file of the data set, or the name of an embedded one."""
    format: str = "auto"
    """Format of the data, such as voc, coco, yolo, cvat, csv, folder or text; auto detects it."""
    val: str = "val"
    """Split that is evaluated."""
    strict: bool = False
    """Stop if anything in the data has to be repaired or left out."""
