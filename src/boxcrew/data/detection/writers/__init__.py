"""Writers of detection data sets: source -> files of one format.

One file for each format, registered in `WRITERS`. What `write_source` writes, `open_source` reads back
unchanged, except for flags that the format cannot store, which are returned as problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import Registry
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.source import Record, Source
from boxcrew.data.images.reading import IMAGE_SUFFIXES, write_image

Writer = Callable[[Source, Path], tuple[Problem, ...]]
"""A function that writes a set into an existing empty folder and returns what the format cannot store."""

WRITERS: Registry[Writer] = Registry("data format to write", "boxcrew.data.detection.writers")


def write_source(source: Source, out: Path, *, format: str) -> tuple[Problem, ...]:
    """Write the set with its images into `out`, which must be new or empty. Return what was lost."""
    writer = WRITERS.get(format)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        message = f"{out}: exists already; nothing is overwritten"
        raise UsageError(message, advice="choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    return writer(source, out)


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


def write_record_image(source: Source, record: Record, folder: Path, stem: str) -> str:
    """Copy the image file unchanged, or write a drawn image as PNG. Return the file's name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = stem + (record.path.suffix if record.path else ".png")
    if record.path:
        (folder / name).write_bytes(record.path.read_bytes())
    else:
        write_image(folder / name, source.read(record))
    return name


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
