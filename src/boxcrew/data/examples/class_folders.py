"""Sets that lie in a folder for each class, be it below folders of splits or not."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Kind, Problem
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import names_in, split_of_file, split_of_folder, suffix_of, walk

_NAMED = 3  # files that a message names


@dataclass(frozen=True, kw_only=True)
class ClassFolder:
    split: str | None  # None where the set has no splits
    label: str
    path: Path


def class_folders(root: Path) -> list[ClassFolder]:
    """`root/<class>`, or `root/<split>/<class>` where a folder named like a split holds folders itself: a
    class may well be called 'train'.
    """
    folders = _folders_in(root)
    divided = [
        ClassFolder(split=split, label=inner.name, path=inner)
        for folder in folders
        if (split := split_of_folder(folder.name))
        for inner in _folders_in(folder)
    ]
    return divided or [ClassFolder(split=None, label=folder.name, path=folder) for folder in folders]


def strays(root: Path, folders: Collection[ClassFolder]) -> list[Problem]:
    """What lies beside the splits, where there are splits."""
    if all(folder.split is None for folder in folders):
        return []
    what = "lies in none of the set's split folders"
    return [
        Problem(kind="no-split", file=folder.name, what=what, action="left out")
        for folder in _folders_in(root)
        if split_of_folder(folder.name) is None
    ]


def loose(root: Path, folders: Collection[ClassFolder], suffixes: Collection[str]) -> list[Path]:
    """Files of one of the suffixes (lower case) that lie beside the folders of classes, in none of them."""
    beside = [root]
    if any(folder.split for folder in folders):
        beside += [folder for folder in _folders_in(root) if split_of_folder(folder.name)]
    holders = {folder.path for folder in folders}
    return [
        place / name
        for place in beside
        if place not in holders
        for name in names_in(place)
        if suffix_of(name) in suffixes and not name.startswith(".")
    ]


def without_class(root: Path, files: Sequence[Path], noun: str) -> list[Problem]:
    """That these are left out, if there are any."""
    if not files:
        return []
    names = [file.relative_to(root).as_posix() for file in files]
    listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    what = f"no folder of a class holds {counted(len(names), noun)}: {listed}"
    return [
        Problem(
            kind="label-missing", file=names[0], what=what, value=listed, action="left out", count=len(names)
        )
    ]


def has_classes_of(root: Path, suffixes: Collection[str]) -> bool:
    """Whether class folders hold files of one of the suffixes (lower case): one right in it, or several at
    any depth. One alone that has them deeper down is rather a folder around a set.
    """
    right_in = (suffix_of(name) for folder in class_folders(root) for name in names_in(folder.path))
    return any(suffix in suffixes for suffix in right_in) or has_several_of(root, suffixes)


def has_several_of(root: Path, suffixes: Collection[str]) -> bool:
    """Whether several classes have files of one of the suffixes (lower case), at any depth. Folders such as
    `test_set` are taken for parts of a set, not for classes.
    """
    likely = (folder for folder in class_folders(root) if split_of_file(folder.label) is None)
    labels = (folder.label for folder in likely if _holds(folder.path, suffixes))
    first = next(labels, None)
    return any(label != first for label in labels)


def _holds(folder: Path, suffixes: Collection[str]) -> bool:
    """At any depth, but for what lies in splits of its own, as in `images/train`."""
    for _, folders, names in walk(folder):
        if any(suffix_of(name) in suffixes for name in names):
            return True
        folders[:] = [name for name in folders if split_of_folder(name) is None]
    return False


def unlisted(root: Path, kind: Kind) -> list[Problem]:
    """Folders that cannot be listed, be it that they are another user's."""
    errors: list[OSError] = []
    for _ in walk(root, on_error=errors.append):
        pass
    return [
        Problem(
            kind=kind,
            file=Path(error.filename).relative_to(root).as_posix(),
            what=f"cannot be listed: {error.strerror}",
            action="left out",
        )
        for error in sorted(errors, key=lambda error: str(error.filename))
    ]


def is_annotated(path: Path) -> bool:
    """Whether it is a set of images with boxes. Such sets have folders of images and texts too."""
    return any(SOURCES.get(name).detect(path) for name in SOURCES.names())


def _folders_in(folder: Path) -> list[Path]:
    visible = (folder / name for name in names_in(folder) if not name.startswith((".", "__")))
    return [path for path in visible if os.path.isdir(path)]  # noqa: PTH112 - a Path's raises where it may not look
