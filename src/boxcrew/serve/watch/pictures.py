"""The pictures that a run has drawn: batches, labels, predictions and plots."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from boxcrew.serve.watch.reading import opened

MAX_PICTURES = 24
MAX_BYTES = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,80}\.(?:jpg|png)")
_FIRST = ("val_batch0_pred.jpg", "val_batch0_labels.jpg", "made.jpg", "photos.jpg", "train_batch0.jpg")
_KINDS = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture in a folder of a run."""

    name: str
    version: int  # another one whenever it was drawn anew

    def tree(self) -> dict[str, object]:
        return {"name": self.name, "version": str(self.version)}


def list_pictures(folder: Path) -> list[Picture]:
    """Return the pictures in a folder: predictions first, then other images of samples, then plots."""
    try:
        with os.scandir(folder) as entries:
            pictures = [
                Picture(name=entry.name, version=entry.stat().st_mtime_ns)
                for entry in entries
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:  # there is none, or it is being removed
        return []
    return sorted(pictures, key=_rank)[:MAX_PICTURES]


def _rank(picture: Picture) -> tuple[int, bool, str]:
    place = _FIRST.index(picture.name) if picture.name in _FIRST else len(_FIRST)
    return place, picture.name.endswith(".png"), picture.name


def read_picture(folder: Path, name: str) -> tuple[bytes, str] | None:
    """Return the content and the media type of one of the listed pictures; None if it is none of them."""
    if name not in {picture.name for picture in list_pictures(folder)}:
        return None
    with opened(folder / name) as file:
        content = b"" if file is None else file.read(MAX_BYTES + 1)
    kind = next((kind for start, kind in _KINDS.items() if content.startswith(start)), None)
    return None if kind is None or len(content) > MAX_BYTES else (content, kind)
