"""Settings of the data that a run trains on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field

from boxcrew.core.config import Config, NamesLocation
from boxcrew.core.errors import UsageError

DISK_BYTES = 50 * 2**30
"""The disk space, unless another is given, for what is read from packed sets in object storage."""

Coordinates = Literal["pixels", "fractions", "percent"]
"""The unit of the numbers of a box. Fractions and percent are those of the width and height of the image."""

BoxOrder = Literal["xyxy", "xywh", "cxcywh", "yxyx", "yxhw", "cycxhw"]
"""The four numbers of a box: two corners, a corner and the size, or the center and the size."""


class BoxOptions(Config):
    """The options of reading boxes and classes, for files that are not written as their format says."""

    coordinates: Literal["auto", Coordinates] = "auto"
    """Unit of the numbers of a box: pixels, fractions or percent of the image; auto: as the format says."""
    boxes: Literal["auto", BoxOrder] = "auto"
    """Order of the four numbers of a box (c: center, w: width, h: height); auto: as the format says."""
    first_class: int = Field(default=0, ge=0)
    """Number of the first class in label files that number their classes (YOLO)."""
    rescale: bool = False
    """Scale the boxes of an image whose size is not the one in its annotation."""

    def box_options(self) -> BoxOptions:
        """Return these options alone, if this is a larger group of settings."""
        return BoxOptions(**{name: getattr(self, name) for name in BoxOptions.model_fields})

    def changed_keys(self) -> tuple[str, ...]:
        """Return the keys of the options that are not at their defaults."""
        fields = BoxOptions.model_fields.items()
        return tuple(f"data.{name}" for name, field in fields if getattr(self, name) != field.default)

    def require_default(self, path: str) -> None:
        """Raise `UsageError` if an option is set, for data that has no files of boxes."""
        if keys := self.changed_keys():
            message = f"{keys[0]}: {path} has no annotation files of boxes"
            raise UsageError(message, advice="leave it out")


AS_THE_FORMAT_SAYS = BoxOptions()


class _PathConfig(Config):
    path: Annotated[str, NamesLocation]
    """Directory or file of the data set, the name of an embedded one, or a URL such as s3://bucket/photos."""
    format: str = "auto"
    """Format of the data, such as voc, coco, yolo, cvat, csv, folder or text; auto detects it."""
    val: str = "val"
    """Split that is evaluated."""
    strict: bool = False
    """Stop if anything in the data has to be repaired or left out."""
    order: Literal["global", "blocks"] = "global"
    """Order of training: any sample may follow any, or those of a few shards at a time, for cold buckets."""
    disk: ByteSize = ByteSize(DISK_BYTES)
    """Disk space for images read from packed sets in object storage, such as 200GiB."""


class DataConfig(BoxOptions, _PathConfig):  # the settings of the last base are listed first
    group = "data"
    shorthand = "path"
