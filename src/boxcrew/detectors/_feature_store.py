"""Features of regions on disk, while SVMs are solved: too many for memory, and too dear to compute twice.

    features.bin    the features of all regions of all images, float32, one image after the other
    images.jsonl    a line for each image: its key, the digest of its input and regions, and their number

A store that was left half-written is continued. It is started anew for another network, and an image
whose pixels or regions have changed is computed again.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.files import write_text
from boxcrew.core.types import Floats
from boxcrew.core.units import format_bytes

_DATA, _INDEX = "features.bin", "images.jsonl"
_ITEM = np.dtype(np.float32).itemsize  # half the size would do for scores, but not for their gradients


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredImage:
    """The place of an image's features in the store."""

    digest: str  # of what they were computed from
    start: int  # rows before it
    num_rows: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureStore:
    """The features (N, width) of the regions of images, one image after the other."""

    folder: Path
    identity: str  # of the network that computes them
    width: int
    images: dict[str, StoredImage] = field(default_factory=dict)  # by key

    @classmethod
    def open(cls, folder: Path, *, identity: str, width: int, num_rows: int) -> FeatureStore:
        """Open the store in a folder, or begin a new one. `BoxcrewError` if the disk has no room for about
        `num_rows` regions.
        """
        folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder=folder, identity=identity, width=width, images=_stored_images(folder, identity))
        require_room(folder, num_rows=num_rows - store.num_rows, width=width)
        if not store.images:
            (folder / _INDEX).write_text(json.dumps({"identity": identity}) + "\n", encoding="utf-8")
        return store

    @property
    def num_rows(self) -> int:
        return max((image.start + image.num_rows for image in self.images.values()), default=0)

    def has(self, key: str, digest: str) -> bool:
        """Return whether the store has the features of an image, computed from what has that digest."""
        return key in self.images and self.images[key].digest == digest

    def append(self, key: str, digest: str, features: Floats) -> None:
        """Add the features of an image; those of the same key are not used any more."""
        image = StoredImage(digest=digest, start=self.num_rows, num_rows=len(features))
        begin = image.start * self.width * _ITEM
        with (self.folder / _DATA).open("r+b" if begin else "wb") as file:
            file.truncate(begin)  # of what a killed process wrote after its last line
            file.seek(begin)
            file.write(np.ascontiguousarray(features, dtype=np.float32).tobytes())
            file.flush()
            os.fsync(file.fileno())
        with (self.folder / _INDEX).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **vars(image)}) + "\n")
        self.images[key] = image

    def all_rows(self) -> dict[str, Floats]:
        """Return the features of each image, which are read from the disk where they are used."""
        shape = (self.num_rows, self.width)
        data = np.memmap(self.folder / _DATA, dtype=np.float32, mode="r", shape=shape)
        return {key: data[at.start : at.start + at.num_rows] for key, at in self.images.items()}


def require_room(folder: Path, *, num_rows: int, width: int) -> None:
    """Raise `BoxcrewError` if the disk of a folder has no room for the features of so many regions."""
    needed, free = num_rows * width * _ITEM, shutil.disk_usage(folder).free
    if needed > free:
        raise BoxcrewError(
            f"{folder}: features of {num_rows} regions need {format_bytes(needed)}, "
            f"and {format_bytes(free)} are free",
            advice="free some disk space, or use fewer detector.proposals",
        )


def _stored_images(folder: Path, identity: str) -> dict[str, StoredImage]:
    """Return the images that a folder has features of; none if they are of another network. A line that was
    cut off, and what follows it, is ignored.
    """
    images: dict[str, StoredImage] = {}
    try:
        head, *lines = (folder / _INDEX).read_text(encoding="utf-8").splitlines()
        if json.loads(head) != {"identity": identity}:
            return {}
        for line in lines:
            record = json.loads(line)
            key = record.pop("key")
            images[key] = StoredImage(**record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    if images:  # without the line that was cut off, so that others can follow
        records = [{"key": key, **vars(image)} for key, image in images.items()]
        text = "".join(json.dumps(record) + "\n" for record in ({"identity": identity}, *records))
        write_text(folder / _INDEX, text)
    return images
