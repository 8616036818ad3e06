"""Writers of detection data sets: source -> files of one format.

One file for each format, registered in `WRITERS`. What `write_source` writes, `open_source` reads back
unchanged, except for flags that the format cannot store, which are returned as problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import Registry
from boxcrew.data.checks.problem import Problem
from boxcrew.data.checks.threads import ProgressCallback
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.images.reading import IMAGE_SUFFIXES, write_image


class ImageWriter:
    """Writes the images of a set one after the other, under names that are unique in it."""

    def __init__(self, source: Source, progress: ProgressCallback | None = None) -> None:
        self.stems = file_stems(source)
        self._source = source
        self._progress = progress
        self._num_written = 0

    def write(self, record: Record, folder: Path) -> str:
        """Copy the image file unchanged, or write a drawn image as PNG. Return the file's name."""
        folder.mkdir(parents=True, exist_ok=True)
        name = self.stems[record.key] + ((record.path and record.path.suffix) or ".png")
        if record.path:
            (folder / name).write_bytes(record.path.read_bytes())
        else:
            write_image(folder / name, self._source.read(record))
        self._num_written += 1
        if self._progress:
            self._progress(self._num_written, len(self.stems))
        return name


Writer = Callable[[Source, Path, ImageWriter], tuple[Problem, ...]]
"""A function that writes a set into an existing empty folder and returns what the format cannot store."""

WRITERS: Registry[Writer] = Registry("data format to write", "boxcrew.data.detection.writers")


def write_source(
    source: Source, out: Path, *, format: str, progress: ProgressCallback | None = None
) -> tuple[Problem, ...]:
    """Write the set with its images into `out`, which must be new or empty. Return what was lost."""
    writer = WRITERS.get(format)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        message = f"{out}: exists already; nothing is overwritten"
        raise UsageError(message, advice="choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    return writer(source, out, ImageWriter(source, progress))


def file_stems(source: Source) -> dict[str, str]:
    """Return for each key the name of its files without suffix, unique in the set: the last component of the
    key if that is unique, else the whole key.
    """
    keys = [record.key for record in source.records]
    short = {key: _stem(PurePosixPath(key).name) for key in keys}
    counts = Counter(stem.casefold() for stem in short.values())
    taken, stems = set[str](), dict[str, str]()
    for key in keys:
        stem = short[key] if counts[short[key].casefold()] == 1 else _stem(key.replace("/", "_"))
        number, unique = 2, stem
        while unique.casefold() in taken:
            number, unique = number + 1, f"{stem}-{number}"
        taken.add(unique.casefold())
        stems[key] = unique
    return stems


def _stem(name: str) -> str:
    """Remove the suffix of an image and leading dots, which would hide the file."""
    suffix = PurePosixPath(name).suffix
    stem = name.removesuffix(suffix) if suffix.lower() in IMAGE_SUFFIXES else name
    return stem.strip().lstrip("._") or "image"


def write_classes(out: Path, classes: Iterable[str]) -> None:
    """Write `classes.txt`, for formats that have no other place for the order of classes and unused ones."""
    write_lines(out / "classes.txt", classes)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def lost_flags(source: Source, out: Path, *flags: str) -> tuple[Problem, ...]:
    """Return a problem for each of the `flags` (`difficult`, `crowd`), which a format cannot store, that is
    set on some target.
    """
    problems = []
    for flag in flags:
        if count := sum(int(getattr(record.target, flag).sum()) for record in source.records):
            message = f"{count} {flag} objects: the format has no such flag"
            problems.append(Problem("lost-flag", str(out), message, "noted", value=flag))
    return tuple(problems)
