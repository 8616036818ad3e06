"""Results of scanning image files, stored between runs so that only changed files are scanned again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import cv2
import PIL

from boxcrew.core.files import write_text
from boxcrew.data.checks.problem import Kind

_VERSION = [1, PIL.__version__, cv2.__version__]  # of the file format, and of the libraries that decoded
_MAX_SETS = 100

FileStamp = tuple[int, int, int]
"""(size in bytes, mtime, ctime), times in nanoseconds. The ctime reveals an edit that sets the mtime back."""


class ScanResult(NamedTuple):
    """The outcome of verifying one image file."""

    stamp: FileStamp
    kind: Kind | None = None  # None: the image can be read
    what: str = ""
    digest: str = ""  # of the content; empty where it was not needed yet


def file_stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file, or None if it does not exist or may not be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


class ScanCache:
    """The scan results of one data set, by image key.

    A cache that cannot be read counts as empty; failure to write one is ignored.
    """

    def __init__(self, root: Path, folder: Path | None) -> None:
        resolved = str(root.resolve()).encode(errors="surrogateescape")
        name = hashlib.blake2b(resolved, digest_size=16).hexdigest()
        self._file = folder / f"{name}.json" if folder else None
        self._results = self._read()

    def get(self, key: str, stamp: FileStamp | None) -> ScanResult | None:
        """Return the stored result of a file, if its stamp has not changed."""
        result = self._results.get(key)
        return result if result is not None and result.stamp == stamp else None

    def save(self, results: Mapping[str, ScanResult]) -> None:
        """Replace everything stored for the set by `results`."""
        if self._file is None or results == self._results:
            return
        content = {"version": _VERSION, "looks": results}  # results are written as lists
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._file, json.dumps(content, separators=(",", ":")))
            _delete_oldest(self._file.parent)
        except OSError:
            return

    def _read(self) -> dict[str, ScanResult]:
        if self._file is None:
            return {}
        try:
            content = json.loads(self._file.read_bytes())
            if content["version"] != _VERSION:
                return {}
            return {key: _from_row(*values) for key, values in content["looks"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}


def _from_row(stamp: list[int], kind: Kind | None, what: str, digest: str) -> ScanResult:
    size, mtime, ctime = stamp
    return ScanResult((size, mtime, ctime), kind, what, digest)


def _delete_oldest(folder: Path) -> None:
    """Delete all but the newest files, so that sets that are gone do not fill the disk."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[:-_MAX_SETS]:
        file.unlink(missing_ok=True)
