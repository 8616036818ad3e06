"""Opens a data set and looks at its images as training does it. What a large set holds is stored as columns
beside the results of scans: as long as none of its files has changed, it is not parsed again, and all
processes of the machine share the memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxcrew.core.cache import cache_folder
from boxcrew.core.files import write_text
from boxcrew.core.storage.address import is_url
from boxcrew.core.types import Ints
from boxcrew.core.version import VERSION
from boxcrew.data.checks.scan import ChangedImageError, scan
from boxcrew.data.checks.stamps import stamp_array
from boxcrew.data.checks.threads import ProgressCallback
from boxcrew.data.config import AS_THE_FORMAT_SAYS, DISK_BYTES, BoxOptions
from boxcrew.data.detection.column_files import DAMAGED, read_array, read_source, write_source
from boxcrew.data.detection.source import SOURCES, Source, open_source
from boxcrew.data.folders import listing_once, suffix_of, walk
from boxcrew.data.formats import format_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES
from boxcrew.data.stored import local_or_packed

LEAST_IMAGES = 2048
"""A set with fewer images is opened in a moment, and not stored."""

_MAX_SETS = 20
_WRITING_SECONDS = 3600.0  # a folder that is older and not in use was left by a process that was killed
_FILES = "files"
_LAYOUT = 2  # of the stored files
_TICK = 100_000_000  # nanoseconds: two changes of a file within it may have the same time


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """A data set that is to be opened, and how."""

    path: str
    format: str = "auto"
    seed: int = 0
    options: BoxOptions = AS_THE_FORMAT_SAYS
    disk: int = DISK_BYTES  # for images of buckets

    def on_this_computer(self) -> OpenRequest:
        """Return the request for a copy of the set, if it is in a bucket and not packed."""
        return replace(self, path=str(local_or_packed(self.path))) if is_url(self.path) else self

    def open_quickly(self) -> Source | None:
        """Return a large set with the sizes of images as annotated, if there is a way to do so."""
        if is_url(self.path):
            return None
        with listing_once():
            kind = format_of(self.path, SOURCES, named=self.format)
            return kind.open_quickly(Path(self.path), seed=self.seed, options=self.options)

    def open(self) -> Source:
        return open_source(
            self.path, format=self.format, seed=self.seed, options=self.options, disk=self.disk
        )

    def name(self) -> str:
        """Return what columns of this are stored as. Other versions may read a set differently."""
        parts = [_LAYOUT, VERSION, self.path, _absolute(self.path), self.format, self.seed]
        text = json.dumps([*parts, self.options.tree()])
        return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def open_scanned(
    request: OpenRequest,
    *,
    workers: int,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> Source:
    """Return a data set without the images that cannot be used, with the problems that say why. Columns and
    results of scans are stored in folders of `cache`, by default the user's.
    """
    request = request.on_this_computer()
    columns = cache_folder("columns") if cache is None else cache / "columns"
    looks = cache and cache / "scan"
    try:
        return scan(open_columns(request, columns), workers=workers, cache=looks, progress=progress)
    except ChangedImageError:
        return scan(_open_anew(request, columns), workers=workers, cache=looks, progress=progress)


def open_columns(request: OpenRequest, folder: Path | None) -> Source:
    """Return the set from the columns in `folder`, if none of its files has changed since they were written;
    else open it anew. Images are not looked at: a scan does that.
    """
    with suppress(*DAMAGED):
        if folder is not None:
            pointer = folder / f"{request.name()}.json"
            stored = folder / str(json.loads(pointer.read_bytes())["folder"])
            if _is_unchanged(stored):
                source = replace(read_source(stored), compares_sizes=True)
                os.utime(pointer)  # the sets that were not used for longest are forgotten first
                return source
    return _open_anew(request, folder, is_quick=True)


def _is_unchanged(stored: Path) -> bool:
    files = (stored / _FILES).read_bytes().decode(errors="surrogateescape").split("\0")
    return np.array_equal(stamp_array(files), read_array(stored, "stamps"))


def _open_anew(request: OpenRequest, folder: Path | None, *, is_quick: bool = False) -> Source:
    """Parse the set and store its columns, from which it is then opened. Failure to store it is ignored."""
    began = time.time_ns()
    source = (request.open_quickly() if is_quick else None) or request.open()
    if folder is None or source.is_checked or sum(map(len, source.splits.values())) < LEAST_IMAGES:
        return source
    files = _files_of(request.path, source)
    stamps = stamp_array(files)
    # A file that was changed while it was read would be taken for the one that was read.
    if not files or stamps[:, -1].max() >= began - _TICK or stamps.min() < 0:
        return source
    with suppress(*DAMAGED):
        stored = read_source(_store(request, source, folder, files=files, stamps=stamps))
        return replace(stored, compares_sizes=source.compares_sizes)
    return source


def _files_of(path: str, source: Source) -> list[str]:
    """Return the folders of a set and all files in them but the images; none if not all that the set is made
    of is below one folder.
    """
    prefixes = (place.prefix for place in source.records.columns.names)
    inside = [_absolute(each) for each in (str(source.root), path, *map(str, source.inputs), *prefixes)]
    base = inside[1] if os.path.commonpath(inside[:2]) == inside[1] else inside[0]
    if any(os.path.commonpath([base, each]) != base for each in inside):
        return []
    files = list[str]()
    for folder, _, names in walk(Path(base)):
        files.append(folder)
        files += [f"{folder}{os.sep}{name}" for name in names if suffix_of(name) not in IMAGE_SUFFIXES]
    return files


def _absolute(path: str) -> str:
    """Return a path from the root of the file system. Links are not followed: they may lead anywhere."""
    return os.path.abspath(path)  # noqa: PTH100


def _store(request: OpenRequest, source: Source, folder: Path, *, files: list[str], stamps: Ints) -> Path:
    """Write the columns into a new folder, which takes the place of an older one. Return it."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = Path(tempfile.mkdtemp(prefix=f"{request.name()}.", dir=folder))
    try:
        (stored / _FILES).write_bytes("\0".join(files).encode(errors="surrogateescape"))
        write_source(stored, source, stamps=stamps)
        write_text(folder / f"{request.name()}.json", json.dumps({"folder": stored.name}))
    except OSError:
        shutil.rmtree(stored, ignore_errors=True)
        raise
    _forget_old_sets(folder, keep=stored)
    return stored


def _forget_old_sets(folder: Path, *, keep: Path) -> None:
    """Remove what no pointer names, and the sets that were not used for longest. Who has mapped files that
    are removed keeps their memory.
    """
    pointers = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    replaced = {keep.stem, *(pointer.stem for pointer in pointers[:-_MAX_SETS])}
    for pointer in pointers[:-_MAX_SETS]:
        pointer.unlink(missing_ok=True)
    names = {keep.name, *(json.loads(pointer.read_bytes())["folder"] for pointer in pointers[-_MAX_SETS:])}
    for old in set(folder.iterdir()) - set(pointers):
        is_left = time.time() - old.stat().st_mtime > _WRITING_SECONDS
        if old.name not in names and (old.stem in replaced or is_left):
            shutil.rmtree(old, ignore_errors=True)
