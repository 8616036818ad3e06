"""Finds class folders: `root/<class>` or `root/<split>/<class>`, and reports what lies beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Problem, ProblemKind
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import names_in, split_of_file, split_of_folder, suffix_of, walk

_NUM_NAMED = 3  # files that a message names


class ClassFolder(NamedTuple):
    split: str | None  # None if the set has no split folders
    label: str
    path: Path


def class_folders(root: Path) -> list[ClassFolder]:
    """List the folders `root/<split>/<class>`, or `root/<class>` if no folder named like a split holds
    folders: a class may be called 'train'.
    """
    folders = _folders_in(root)
    in_splits = [
        ClassFolder(split, inner.name, inner)
        for folder in folders
        if (split := split_of_folder(folder.name))
        for inner in _folders_in(folder)
    ]
    return in_splits or [ClassFolder(None, folder.name, folder) for folder in folders]


def outside_problems(
    root: Path,
    folders: Collection[ClassFolder],
    suffixes: Collection[str],
    noun: str,
    *,
    ignored: Callable[[str], bool] = lambda _: False,
) -> list[Problem]:
    """Report what is left out because it lies beside the class folders: folders beside the split folders, if
    there are any, and files with one of the suffixes (lower case) whose names are not `ignored`.
    """
    beside = _folders_in(root) if any(folder.split for folder in folders) else []
    message = "lies in none of the set's split folders"
    stray = [folder.name for folder in beside if not split_of_folder(folder.name)]
    problems = [Problem("no-split", name, message, "left out") for name in stray]
    names = [
        (parent / name).relative_to(root).as_posix()
        for parent in [root, *(folder for folder in beside if split_of_folder(folder.name))]
        if all(parent != folder.path for folder in folders)
        for name in names_in(parent)
        if suffix_of(name) in suffixes and not name.startswith(".") and not ignored(name)
    ]
    if names:
        count, listed = len(names), list_names(names)
        message = f"{counted(count, noun)} outside of every class folder: {listed}"
        problems.append(Problem("label-missing", names[0], message, "left out", value=listed, count=count))
    return problems


def list_names(names: Sequence[str]) -> str:
    """Return the first few names, for a message."""
    return ", ".join(names[:_NUM_NAMED]) + (", …" if len(names) > _NUM_NAMED else "")


def has_class_folders(root: Path, suffixes: Collection[str]) -> bool:
    """Return whether class folders hold files with one of the suffixes (lower case): directly in any folder,
    or at any depth in several. A single folder with files deeper down is more likely a wrapper around a set.
    """
    direct = (suffix_of(name) for folder in class_folders(root) for name in names_in(folder.path))
    return any(suffix in suffixes for suffix in direct) or has_several_classes(root, suffixes)


def has_several_classes(root: Path, suffixes: Collection[str]) -> bool:
    """Return whether several classes have files with one of the suffixes (lower case), at any depth. Folders
    such as `test_set` count as splits, not as classes.
    """
    candidates = (folder for folder in class_folders(root) if split_of_file(folder.label) is None)
    labels = (folder.label for folder in candidates if _holds(folder.path, suffixes))
    first = next(labels, None)
    return any(label != first for label in labels)


def _holds(folder: Path, suffixes: Collection[str]) -> bool:
    """Search at any depth, except in split folders such as `images/train`."""
    for _, folders, names in walk(folder):
        if any(suffix_of(name) in suffixes for name in names):
            return True
        folders[:] = [name for name in folders if split_of_folder(name) is None]
    return False


def unlistable_problems(root: Path, kind: ProblemKind) -> list[Problem]:
    """Report folders that cannot be listed, for example for lack of permission."""
    errors: list[OSError] = []
    for _ in walk(root, on_error=errors.append):
        pass
    problems = []
    for error in sorted(errors, key=lambda error: str(error.filename)):
        folder = Path(error.filename).relative_to(root).as_posix()
        problems.append(Problem(kind, folder, f"cannot be listed: {error.strerror}", "left out"))
    return problems


def is_annotated(path: Path) -> bool:
    """Return whether `path` is a set of images with boxes, which also has folders of images and texts."""
    return any(SOURCES.get(name).detect(path) for name in SOURCES.names())


def _folders_in(folder: Path) -> list[Path]:
    visible = (folder / name for name in names_in(folder) if not name.startswith((".", "__")))
    return [path for path in visible if os.path.isdir(path)]  # noqa: PTH112 - Path.is_dir raises without permission
