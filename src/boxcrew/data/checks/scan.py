"""A scan of every image file before training: which cannot be read, and which are in two splits.

Results are stored between runs, so that only changed files are scanned again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import PIL

from boxcrew.core.cache import cache_folder
from boxcrew.core.files import write_text
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.data.checks.threads import ProgressCallback, map_in_threads
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.images.packed import ImagePath, PackedFile, read_ends
from boxcrew.data.images.reading import ImageError, verify_image

_CHUNK = 32  # files that a thread scans at once
_QUICK_SECONDS = 1e-4  # per file; slower files are worth threads
_ENDING_BYTES = 64  # of compressed data: two images hardly ever share them
_NOTED: ProblemKind = "image-frames"  # of images that can be used all the same


class _ScannedFile(NamedTuple):
    key: str  # unique in the set
    path: ImagePath
    split: str


def scan(
    source: Source, *, workers: int, cache: Path | None = None, progress: ProgressCallback | None = None
) -> Source:
    """Return the set without the images that cannot be used, and with the problems that say why. `workers`
    threads each hold one image at a time. Results are stored in the folder `cache`, by default the user's.
    Images that are drawn, not read from files, are not scanned.
    """
    problems = scan_records(source.root, source.splits, workers=workers, cache=cache, progress=progress)
    left_out = {problem.file for problem in problems if problem.action == "left out"}
    return source.without(left_out, problems) if problems else source


def scan_records(
    root: Path,
    splits: Mapping[str, Sequence[Record]],
    *,
    workers: int,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Problem, ...]:
    """Return the problems of the image files of the set at `root`; `Problem.file` is a record's key."""
    files = [
        _ScannedFile(record.key, record.path, split)
        for split, records in splits.items()
        for record in records
        if record.path
    ]
    if not files:
        return ()
    stored = ScanCache(root, cache or cache_folder("scan"))
    map_files = partial(map_in_threads, workers=workers, chunk_size=_CHUNK, quick_seconds=_QUICK_SECONDS)
    scanned = map_files(partial(_scan_file, stored), files, progress=progress)
    results = {file.key: result for file, result in zip(files, scanned, strict=True)}
    usable = [file for file in files if results[file.key].kind in {None, _NOTED}]
    # Only files of the same length and ending can be equal; reading all would take longer than the rest.
    alike = _in_several_splits(usable, lambda file: results[file.key].stamp[0])
    alike = _in_several_splits(alike, lambda file: (results[file.key].stamp[0], _ending(file.path)))
    missing = [file for file in alike if not results[file.key].digest]
    for file, digest in zip(missing, map_files(_digest, missing), strict=True):
        results[file.key] = results[file.key]._replace(digest=digest)
    stored.save(results)
    checked = [(file.key, results[file.key]) for file in files]
    problems = [
        Problem(scan.kind, key, scan.message, "noted" if scan.kind == _NOTED else "left out")
        for key, scan in checked
        if scan.kind
    ]
    return (*problems, *_leaks(usable, results))


def _scan_file(stored: ScanCache, file: _ScannedFile) -> ScanResult:
    stamp = file_stamp(file.path)  # before reading: a change meanwhile makes the next scan read it again
    if known := stored.get(file.key, stamp):
        return known
    try:
        has_more_frames = verify_image(file.path)
    except ImageError as error:
        return ScanResult(stamp or (0, 0, 0), error.kind, error.message.removeprefix(f"{file.path}: "))
    if has_more_frames:
        return ScanResult(stamp or (0, 0, 0), _NOTED, "has several frames or pages; only the first is used")
    return ScanResult(stamp or (0, 0, 0))


def _in_several_splits(
    files: Sequence[_ScannedFile], trait: Callable[[_ScannedFile], Hashable]
) -> list[_ScannedFile]:
    """Return the files that share a trait with a file of another split."""
    groups: dict[Hashable, list[_ScannedFile]] = defaultdict(list)
    for file in files:
        groups[trait(file)].append(file)
    several = (group for group in groups.values() if len({file.split for file in group}) > 1)
    return list(itertools.chain.from_iterable(several))


def _ending(path: ImagePath) -> bytes:
    """Return the last bytes of a file; none if it has vanished meanwhile."""
    try:
        return read_ends(path, 0, _ENDING_BYTES)[1]
    except OSError:
        return b""


def _digest(file: _ScannedFile) -> str:
    """Return a hash of the content; an empty string if the file has vanished meanwhile."""
    try:
        return hashlib.blake2b(file.path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""


def _leaks(files: Sequence[_ScannedFile], results: dict[str, ScanResult]) -> Iterator[Problem]:
    """Yield a problem for each image whose content an earlier split has too. It is left out of the later
    split, so that nothing is evaluated that was trained on; but a split of which nothing would remain is
    kept and only noted.
    """
    first: dict[str, _ScannedFile] = {}
    copies: dict[str, list[tuple[_ScannedFile, _ScannedFile]]] = defaultdict(list)
    for file in files:
        digest = results[file.key].digest
        original = first.setdefault(digest, file) if digest else file
        if original.split != file.split:
            copies[file.split].append((file, original))
    for split, pairs in copies.items():
        action: Action = "noted" if len(pairs) == sum(file.split == split for file in files) else "left out"
        for file, original in pairs:
            message = f"the image of {split} is the same file as {original.key} of {original.split}"
            yield Problem("leak", file.key, message, action, value=original.key)


_VERSION = [2, PIL.__version__, cv2.__version__]  # of the file format, and of the libraries that decoded
_MAX_SETS = 100

FileStamp = tuple[int, int, int]
"""(size in bytes, mtime, ctime), times in nanoseconds. The ctime reveals an edit that sets the mtime back."""


class ScanResult(NamedTuple):
    """The outcome of verifying one image file."""

    stamp: FileStamp
    kind: ProblemKind | None = None  # None: the image can be read, and there is nothing to note
    message: str = ""
    digest: str = ""  # of the content; empty where it was not needed yet


def file_stamp(path: ImagePath) -> FileStamp | None:
    """Return the stamp of a file, or None if it does not exist or may not be read. A file in an archive has
    the times of the archive.
    """
    try:
        status = (path.archive if isinstance(path, PackedFile) else path).stat()
    except OSError:
        return None
    size = path.size if isinstance(path, PackedFile) else status.st_size
    return size, status.st_mtime_ns, status.st_ctime_ns


class ScanCache:
    """The scan results of one data set, by image key. A cache that cannot be read counts as empty; failure to
    write one is ignored.
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
            by_age = sorted(self._file.parent.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
            for file in by_age[:-_MAX_SETS]:  # so that sets that are gone do not fill the disk
                file.unlink(missing_ok=True)
        except OSError:
            return

    def _read(self) -> dict[str, ScanResult]:
        try:
            content = json.loads(self._file.read_bytes() if self._file else b"{}")
            rows = content["looks"].items() if content["version"] == _VERSION else ()
            return {key: ScanResult((size, time, ctime), *rest) for key, ((size, time, ctime), *rest) in rows}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}
