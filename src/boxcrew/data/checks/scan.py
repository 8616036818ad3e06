"""A scan of every image file before training: which cannot be read, and which are in two splits.

Results are stored between runs and while it is going on, so that only changed files are scanned again.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from boxcrew.core.cache import cache_folder
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.data.checks.scan_cache import SCAN_RESULT, Fault, ScanCache, ScanResults
from boxcrew.data.checks.threads import ProgressCallback, map_in_threads
from boxcrew.data.detection.records import CHUNK, Record, Records, key_hashes
from boxcrew.data.detection.source import Source
from boxcrew.data.images.packed import ImagePath, read_ends
from boxcrew.data.images.reading import ImageError, read_header, verify_image

_CHUNK = 32  # files that a thread scans at once
_QUICK_SECONDS = 1e-4  # per file; slower files are worth threads
_BATCH = 1024  # files that are scanned between two reports of progress
_STORE_SECONDS = 5.0  # results of so long are lost if the process is killed
_ENDING_BYTES = 64  # of compressed data: two images hardly ever share them
_NOTED: ProblemKind = "image-frames"  # of images that can be used all the same


Result = TypeVar("Result")


class ChangedImageError(Exception):
    """An image is not the one any more that the columns of its set were made of."""


def scan(
    source: Source, *, workers: int, cache: Path | None = None, progress: ProgressCallback | None = None
) -> Source:
    """Return the set without the images that cannot be used, and with the problems that say why. `workers`
    threads each hold one image at a time. Results are stored in the folder `cache`, by default the user's.
    Images that are drawn, not read from files, are not scanned. `ChangedImageError` if the source
    compares sizes and an image has another than its record. Images that were checked are not looked at again.
    """
    if source.is_checked:
        return source
    stored = ScanCache(source.root, cache or cache_folder("scan"))
    scanning = _Scan(
        source.splits, stored, workers=workers, progress=progress, compares=source.compares_sizes
    )
    problems = scanning.problems()
    left_out = {problem.file for problem in problems if problem.action == "left out"}
    return source.without(left_out, problems) if problems else source


def scan_records(root: Path, splits: Mapping[str, Sequence[Record]], *, workers: int) -> tuple[Problem, ...]:
    """Return the problems of the image files of the set at `root`; `Problem.file` is a record's key."""
    return _Scan(splits, ScanCache(root, cache_folder("scan")), workers=workers).problems()


@dataclass(eq=False)
class _Scan:
    """The n image files of a set, and what is found out about them."""

    splits: Mapping[str, Sequence[Record]]
    stored: ScanCache
    workers: int = 1
    progress: ProgressCallback | None = None
    compares: bool = False  # whether the sizes of images are compared with those of the records
    faults: dict[int, Fault] = field(default_factory=dict)  # by the numbers of files
    changed: list[int] = field(default_factory=list)  # files of which more is known than is stored
    num_changed: int = 0  # those that were stored meanwhile included
    stored_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        records = Records.joined(self.splits.values())
        is_file = records.columns.places[records.rows] >= 0
        self.files = records.select(is_file)
        numbers = np.repeat(np.arange(len(self.splits)), [*map(len, self.splits.values())])
        self.numbers: Ints = numbers[is_file]  # of each file's split
        self.results: ScanResults = np.zeros(len(self.files), dtype=SCAN_RESULT)

    def problems(self) -> tuple[Problem, ...]:
        if not len(self.files):
            return ()
        for start in range(0, len(self.files), CHUNK):
            self._look(start)
        usable = np.ones(len(self.files), dtype=np.bool_)
        usable[[number for number, (kind, _) in self.faults.items() if kind != _NOTED]] = False
        self._compare_contents(usable)
        self._save()
        faulty = sorted(self.faults.items())
        problems = [
            Problem(kind, self._key(number), message, "noted" if kind == _NOTED else "left out")
            for number, (kind, message) in faulty
        ]
        return (*problems, *self._leaks(usable))

    def _key(self, number: int) -> str:
        return self.files.columns.key(int(self.files.rows[number]))

    def _paths(self, numbers: Ints) -> list[ImagePath]:
        """Return the paths of the files with these numbers."""
        paths = (
            self.files.columns.path(row, self.files.columns.key(row))
            for row in self.files.rows[numbers].tolist()
        )
        return [path for path in paths if path is not None]

    def _look(self, start: int) -> None:
        """Look at the files from number `start` on that have no stored result."""
        part = self.files[start : start + CHUNK]
        # Stamps come before reading: a change meanwhile makes the next scan read the file again.
        results, known = self.stored.find(key_hashes(part.iter_keys()), part.stamps())
        self.results[start : start + len(part)] = results
        for number in np.flatnonzero(known & results["is_faulty"]).tolist():
            self.faults[start + number] = self.stored.fault(results[number])
        unknown = start + np.flatnonzero(~known)
        for first in range(0, len(unknown), _BATCH):
            self._verify(unknown[first : first + _BATCH])
            self._report(int(unknown[first]))
        self._report(start + len(part))

    def _report(self, num_done: int) -> None:
        if self.progress:
            self.progress(num_done, len(self.files))

    def _verify(self, numbers: Ints) -> None:
        """Read the files with these numbers."""
        paths = self._paths(numbers)
        if self.compares:
            self._require_sizes(paths, numbers)
        for number, fault in zip(numbers.tolist(), self._map(_fault_of, paths), strict=True):
            if fault is not None:
                self.faults[number] = fault
                self.results["is_faulty"][number] = True
        self._note_changed(numbers)

    def _require_sizes(self, paths: list[ImagePath], numbers: Ints) -> None:
        """Raise `ChangedImageError` if the images have not the sizes of their records."""
        sizes = self.files.columns.sizes[self.files.rows[numbers]].tolist()
        for size, real in zip(sizes, self._map(_size_of, paths), strict=True):
            if real is not None and real != tuple(size):
                raise ChangedImageError

    def _map(self, work: Callable[[ImagePath], Result], paths: Sequence[ImagePath]) -> list[Result]:
        return map_in_threads(
            work, paths, workers=self.workers, chunk_size=_CHUNK, quick_seconds=_QUICK_SECONDS
        )

    def _compare_contents(self, usable: Bools) -> None:
        """Find the digests of files that may be the same as one of another split. Only files of the same
        length and ending can be equal; reading all would take longer than the rest.
        """
        sizes = self.results["stamp"][:, 0]
        alike = self._in_several_splits(np.flatnonzero(usable), sizes[:, None])
        self._add("ending", alike, _ending_of)
        alike = self._in_several_splits(
            alike, np.stack([sizes, self.results["ending"].astype(np.int64)], axis=1)
        )
        self._add("digest", alike, _digest_of)

    def _in_several_splits(self, numbers: Ints, traits: Ints) -> Ints:
        """Return those of the numbers whose files share their traits (n, …) with a file of another split."""
        _, groups = np.unique(traits[numbers], axis=0, return_inverse=True)
        groups = groups.reshape(-1)
        lowest = np.full(len(numbers), len(self.splits))
        np.minimum.at(lowest, groups, self.numbers[numbers])
        highest = np.full(len(numbers), -1)
        np.maximum.at(highest, groups, self.numbers[numbers])
        several: Ints = numbers[(lowest != highest)[groups]]
        return several

    def _add(self, column: str, numbers: Ints, work: Callable[[ImagePath], bytes]) -> None:
        """Add what `work` finds out about the files with these numbers, where it is not known yet."""
        known = self.results[column][numbers]
        unknown = numbers[~(known.any(axis=1) if known.ndim > 1 else known != 0)]
        for first in range(0, len(unknown), _BATCH):
            some = unknown[first : first + _BATCH]
            found = np.frombuffer(b"".join(self._map(work, self._paths(some))), dtype=np.uint64)
            self.results[column][some] = found.reshape(self.results[column][some].shape)
            self._note_changed(some)

    def _note_changed(self, numbers: Ints) -> None:
        """Store what was found out since a while."""
        self.changed += numbers.tolist()
        self.num_changed += len(numbers)
        if time.monotonic() - self.stored_at > _STORE_SECONDS:
            self.stored.add(*self._found(np.array(self.changed)))
            self.changed.clear()
            self.stored_at = time.monotonic()

    def _found(self, numbers: Ints) -> tuple[ScanResults, dict[int, Fault]]:
        """Return the results of the files with these numbers, as the cache stores them, and their faults."""
        results = self.results[np.unique(numbers)]
        results = results[results["stamp"][:, 0] >= 0]
        wanted = set(numbers.tolist())
        keys = self.results["key"]
        return results, {
            int(keys[number]): fault for number, fault in self.faults.items() if number in wanted
        }

    def _save(self) -> None:
        if not self.num_changed:
            return
        if self.stored.has_many_segments or self.num_changed > len(self.files) // 8:
            self.stored.replace_all(*self._found(np.arange(len(self.files))))
        else:
            self.stored.add(*self._found(np.array(self.changed)))
        self.stored.forget_old_sets()

    def _leaks(self, usable: Bools) -> Iterator[Problem]:
        """Yield a problem for each image whose content an earlier split has too. It is left out of the later
        split, so that nothing is evaluated that was trained on; but a split of which nothing would remain is
        kept and only noted.
        """
        names, first = tuple(self.splits), dict[tuple[int, ...], int]()
        copies: dict[int, list[tuple[int, int]]] = defaultdict(list)
        digests = self.results["digest"]
        for number in np.flatnonzero(usable & digests.any(axis=1)).tolist():
            original = first.setdefault(tuple(digests[number].tolist()), number)
            if self.numbers[original] != self.numbers[number]:
                copies[int(self.numbers[number])].append((number, original))
        for split, pairs in copies.items():
            is_whole = len(pairs) == int((self.numbers[usable] == split).sum())
            action: Action = "noted" if is_whole else "left out"
            for number, original in pairs:
                key, earlier = self._key(original), names[int(self.numbers[original])]
                message = f"the image of {names[split]} is the same file as {key} of {earlier}"
                yield Problem("leak", self._key(number), message, action, value=key)


def _fault_of(path: ImagePath) -> Fault | None:
    try:
        has_more_frames = verify_image(path)
    except ImageError as error:
        return error.kind, error.message.removeprefix(f"{path}: ")
    return (_NOTED, "has several frames or pages; only the first is used") if has_more_frames else None


def _size_of(path: ImagePath) -> tuple[int, int] | None:
    """Return width and height of an image, or None if it cannot be read."""
    try:
        header = read_header(path)
    except ImageError:
        return None
    return header.width, header.height


def _ending_of(path: ImagePath) -> bytes:
    """Return 8 bytes that depend on the last bytes of a file; of none if it has vanished meanwhile."""
    try:
        ending = read_ends(path, 0, _ENDING_BYTES)[1]
    except OSError:
        ending = b""
    return hashlib.blake2b(ending, digest_size=8).digest()


def _digest_of(path: ImagePath) -> bytes:
    """Return a hash of the content; zeros if the file has vanished meanwhile."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
    except OSError:
        return bytes(16)
