"""One look at every image of a data set before training: what cannot be read, and what is in two splits."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from boxcrew.core.cache import cache_folder
from boxcrew.data.checks.problem import Action, Problem
from boxcrew.data.checks.scan_cache import Look, ScanCache, Stamp, stamp_of
from boxcrew.data.detection.source import Source
from boxcrew.data.images.reading import ImageError, verify_image

Progress = Callable[[int, int], None]
"""Told (done, total), in the thread that scans."""

_CHUNK = 32  # files a thread takes at once
_QUICK_SECONDS = 1e-4  # for a file
_ENDING_BYTES = 64  # of compressed data: two images hardly ever share them

Item = TypeVar("Item")
Result = TypeVar("Result")


class ScannedFile(NamedTuple):
    key: str  # unique in the set
    path: Path
    split: str


def scan(
    source: Source, *, workers: int, cache: Path | None = None, progress: Progress | None = None
) -> Source:
    """The set without the images that cannot be used, and with the problems that say why.

    `workers` threads each hold one image at a time. What was found is kept in the folder `cache`, by default
    the user's. Images that are drawn, not read, are not looked at.
    """
    files = [
        ScannedFile(record.key, record.path, split)
        for split, records in source.splits.items()
        for record in records
        if record.path
    ]
    problems = scan_files(source.root, files, workers=workers, cache=cache, progress=progress)
    left_out = {problem.file for problem in problems if problem.action == "left out"}
    return source.without(left_out, problems) if problems else source


def scan_files(
    root: Path,
    files: Sequence[ScannedFile],
    *,
    workers: int,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Problem, ...]:
    """What speaks against image files of the set at `root`, as `scan` says it; `file` is a key."""
    if not files:
        return ()
    known = ScanCache(root, cache or cache_folder("scan"))
    looks = dict(_looks(files, known, workers, progress))
    looks |= _digests([file for file in files if looks[file.key].kind is None], looks, workers)
    known.keep(looks)
    unusable = _unusable(files, looks)
    leaks = _leaks([file for file in files if file.key not in unusable], looks)
    return (*unusable.values(), *leaks.values())


def _looks(
    files: Sequence[ScannedFile], known: ScanCache, workers: int, progress: Progress | None
) -> Iterator[tuple[str, Look]]:
    def look(file: ScannedFile) -> Look:
        stamp = stamp_of(file.path)
        return known.get(file.key, stamp) or _look(file.path, stamp or (0, 0, 0))

    for done, (file, found) in enumerate(_in_threads(look, files, workers), 1):
        yield file.key, found
        if progress and (done % _CHUNK == 0 or done == len(files)):
            progress(done, len(files))


def _look(path: Path, stamp: Stamp) -> Look:
    """The stamp was taken before: a change in between makes the next scan look again."""
    try:
        verify_image(path)
    except ImageError as error:
        return Look(stamp, error.kind, error.message.removeprefix(f"{path}: "))
    return Look(stamp)


def _digests(files: Sequence[ScannedFile], looks: dict[str, Look], workers: int) -> dict[str, Look]:
    """Looks with a digest, for those files that may have the content of one in another split: those of other
    lengths or endings have not, and reading all of them would take longer than the rest.
    """
    alike = _in_several_splits(files, lambda file: looks[file.key].stamp[0])
    alike = _in_several_splits(alike, lambda file: (looks[file.key].stamp[0], _ending(file.path)))
    wanted = [file for file in alike if not looks[file.key].digest]
    found = _in_threads(lambda file: _digest(file.path), wanted, workers)
    return {file.key: replace(looks[file.key], digest=digest) for file, digest in found}


def _in_several_splits(
    files: Sequence[ScannedFile], trait: Callable[[ScannedFile], Hashable]
) -> list[ScannedFile]:
    """Those that share a trait with one of another split."""
    groups: dict[Hashable, list[ScannedFile]] = defaultdict(list)
    for file in files:
        groups[trait(file)].append(file)
    several = (group for group in groups.values() if len({file.split for file in group}) > 1)
    return list(itertools.chain.from_iterable(several))


def _ending(path: Path) -> bytes:
    """Empty where the file has vanished meanwhile."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_ENDING_BYTES, path.stat().st_size), os.SEEK_END)
            return file.read()
    except OSError:
        return b""


def _digest(path: Path) -> str:
    """Empty where the file has vanished meanwhile."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""


def _unusable(files: Iterable[ScannedFile], looks: dict[str, Look]) -> dict[str, Problem]:
    problems = {}
    for file in files:
        look = looks[file.key]
        if look.kind is not None:
            problems[file.key] = Problem(kind=look.kind, file=file.key, what=look.what, action="left out")
    return problems


def _leaks(files: Sequence[ScannedFile], looks: dict[str, Look]) -> dict[str, Problem]:
    """Images whose content an earlier split has too. They are left out of the later one, so that what is
    measured was never trained on; but a split of which nothing would remain is left as it is.
    """
    first: dict[str, ScannedFile] = {}
    twins: dict[str, list[tuple[ScannedFile, ScannedFile]]] = defaultdict(list)
    for file in files:
        digest = looks[file.key].digest
        other = first.setdefault(digest, file) if digest else file
        if other.split != file.split:
            twins[file.split].append((file, other))
    problems: dict[str, Problem] = {}
    for split, pairs in twins.items():
        whole = len(pairs) == sum(file.split == split for file in files)
        action: Action = "noted" if whole else "left out"
        for file, other in pairs:
            what = f"the image of {split} is the same file as {other.key} of {other.split}"
            problems[file.key] = Problem(
                kind="leak", file=file.key, what=what, value=other.key, action=action
            )
    return problems


def _in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in order. In threads, because reading, decoding and hashing release the
    interpreter's lock; but only from the first chunk on that takes longer than threads would take to get in
    each other's way, as files do not that the system has in memory.
    """
    chunks = iter([items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)])
    for chunk in chunks:
        begun = time.perf_counter()
        done = [work(item) for item in chunk]
        quick = time.perf_counter() - begun < _QUICK_SECONDS * len(chunk)
        yield from zip(chunk, done, strict=True)
        if not quick:
            break
    rest = list(chunks)
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        found = pool.map(lambda chunk: [work(item) for item in chunk], rest)
        for chunk, results in zip(rest, found, strict=True):
            yield from zip(chunk, results, strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # or Ctrl-C would wait for all that is left
