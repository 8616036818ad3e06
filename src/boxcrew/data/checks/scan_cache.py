"""What looking at image files found, kept between runs: only files that changed are looked at again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import PIL

from boxcrew.core.files import write_text
from boxcrew.data.checks.problem import Kind

_VERSION = [1, PIL.__version__, cv2.__version__]  # of what is kept, and of who judged
_MAX_SETS = 100

Stamp = tuple[int, int, int]
"""(bytes, time of the last change of the content, time of the last change at all), in nanoseconds. The last
cannot be set back, so an edit that hides itself is seen too.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a file found."""

    stamp: Stamp
    kind: Kind | None = None  # None: the image can be read
    what: str = ""
    digest: str = ""  # of the content; empty where nobody has asked yet


def stamp_of(path: Path) -> Stamp | None:
    """None for a file that is not there or may not be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class ScanCache:
    """The looks at one data set, by key. A cache that cannot be read counts as empty, and one that cannot be
    written is not: no run fails for it.
    """

    def __init__(self, root: Path, folder: Path | None) -> None:
        name = hashlib.blake2b(
            str(root.resolve()).encode(errors="surrogateescape"), digest_size=16
        ).hexdigest()
        self._file = folder / f"{name}.json" if folder else None
        self._looks = self._read()

    def get(self, key: str, stamp: Stamp | None) -> Look | None:
        """What is known of a file, if it is still as it was."""
        look = self._looks.get(key)
        return look if look is not None and look.stamp == stamp else None

    def keep(self, looks: Mapping[str, Look]) -> None:
        """In place of all that was known."""
        if self._file is None or looks == self._looks:
            return
        rows = {key: [look.stamp, look.kind, look.what, look.digest] for key, look in looks.items()}
        content = {"version": _VERSION, "looks": rows}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._file, json.dumps(content, separators=(",", ":")))
            _forget_oldest(self._file.parent)
        except OSError:
            return

    def _read(self) -> dict[str, Look]:
        if self._file is None:
            return {}
        try:
            content = json.loads(self._file.read_bytes())
            if content["version"] != _VERSION:
                return {}
            return {key: _look(*values) for key, values in content["looks"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}


def _look(stamp: list[int], kind: Kind | None, what: str, digest: str) -> Look:
    size, changed, touched = stamp
    return Look((size, changed, touched), kind, what, digest)


def _forget_oldest(folder: Path) -> None:
    """Sets that are gone must not fill the disk for ever."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[:-_MAX_SETS]:
        file.unlink(missing_ok=True)
