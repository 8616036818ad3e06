"""Follows data.yaml and Darknet's .data files, which name folders or lists of images for each split."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.annotations import Collector
from boxcrew.data.folders import files_below, numbered_lines, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

MAX_CLASSES = 10_000
"""A set with more classes is a mistake: it would only use up the memory."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """The content of a file that describes a YOLO data set."""

    file: Path
    root: Path  # its paths are relative to this folder
    classes: tuple[str, ...]
    entries: Mapping[str, tuple[str, ...]]  # split -> folders and lists of files, as written
    notes: tuple[tuple[ProblemKind, str], ...] = ()
    names_files: tuple[Path, ...] = ()  # that the classes were read from, if not from the file itself


def find_images(data: DataFile, collector: Collector) -> list[tuple[str, Path]]:
    """Return every image file with its split."""
    file = collector.relative_path(data.file)
    collector.inputs += [data.file, *data.names_files]
    for kind, message in data.notes:
        collector.note(kind, file, message)
    images: dict[str, list[Path]] = {}
    for split, entries in data.entries.items():
        paths = [resolve(entry, data.root, data.file.parent) for entry in entries]
        missing = next((entry for entry, path in zip(entries, paths, strict=True) if path is None), None)
        message = f"{split}: {missing} does not exist"
        if missing is None:
            images[split] = [image for path in paths if path for image in _images(path, data.root, collector)]
        elif split == "test":
            collector.leave_out("missing-file", file, message, value=missing)
        else:
            raise DataError(f"{data.file}: {message}", advice=f"paths are relative to {data.root}")
    if "val" in images and set(map(str, images["val"])) == set(map(str, images.get("train", ()))):
        message = "val has the same images as train, which would measure nothing; it is not used"
        collector.note("leak", file, message)
        del images["val"]
    return [(split, image) for split, files in images.items() for image in files]


def resolve(entry: str, root: Path, folder: Path) -> Path | None:
    """Return what an entry means, relative to `root` or to the `folder` of the data file, or None."""
    # Some exporters mean `train/images` by `../train/images`.
    candidates = [root / entry, folder / entry, root / entry.removeprefix("../")]
    found = next((path for path in candidates if path.exists()), None)
    return found or (_find_end(entry, root) if suffix_of(entry) else None)


def _find_end(name: str, root: Path) -> Path | None:
    """Return the longest end of a path to a file that exists below `root`, or None. Paths may be those of
    another machine, and CVAT writes `data/` before all of them.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    ends = (root.joinpath(*parts[start:]) for start in range(1, len(parts)))
    return None if ".." in parts else next(filter(os.path.isfile, ends), None)


def _images(path: Path, root: Path, collector: Collector) -> Iterator[Path]:
    """Yield the image files of a folder, of a single image, or of a list of image paths. A folder or image
    may be anywhere; the lines of a list must stay in the set's folder or the list's own.
    """
    if path.is_dir():
        yield from files_below(path, IMAGE_SUFFIXES)
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        yield path
    else:
        collector.inputs.append(path)
        for number, line in numbered_lines(path).items():
            if image := _listed_image(line, root, path.parent):
                yield image
            else:
                file, at = collector.relative_path(path), f"line {number}"
                message = f"leaves the data set: {line}; name the folder as path: in data.yaml"
                collector.leave_out("path-escape", file, message, at=at, value=line)


def _listed_image(line: str, root: Path, folder: Path) -> Path | None:
    """Return the image that a line of a list in `folder` means, or None if it is outside of the set."""
    places = [path for path in (folder / line, root / line) if _is_inside(path, (root, folder))]
    existing = next(filter(os.path.isfile, places), None)
    return existing or _find_end(line, root) or next(reversed(places), None)


def _is_inside(path: Path, folders: tuple[Path, ...]) -> bool:
    """Return whether a path leads into one of the folders, by its name alone: links may point anywhere."""
    return any(not os.path.relpath(path, folder).startswith(f"..{os.sep}") for folder in folders)
