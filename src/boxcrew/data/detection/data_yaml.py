"""The data.yaml of Ultralytics: `path`, `train`, `val`, `test`, `names` or `nc`. Nothing in it is executed or
downloaded, and its paths are seen from the file itself, never from a folder named elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import Kind
from boxcrew.data.detection.annotations import Gathering
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.folders import files_below, read_lines
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_SUFFIXES = frozenset({".yaml", ".yml"})
_DATA_FILE = "data.yaml"
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where PyYAML was built with it


@dataclass(frozen=True, kw_only=True)
class Description:
    """One data.yaml, read."""

    file: Path
    root: Path  # what its paths are relative to
    classes: tuple[str, ...]
    entries: Mapping[str, tuple[str, ...]]  # split -> folders and lists of files, as written
    notes: tuple[tuple[Kind, str], ...]


def find_yamls(path: Path) -> list[Path]:
    """The data files at `path`: itself, or in that folder `data.yaml`, or else all that read like one."""
    if path.is_file():
        return [path] if _is_description(path) else []
    if _is_description(path / _DATA_FILE):
        return [path / _DATA_FILE]
    return [file for file in sorted(path.glob("*.y*ml")) if _is_description(file)]


def _is_description(file: Path) -> bool:
    if file.suffix.lower() not in _SUFFIXES or not file.is_file():
        return False
    try:
        content = _load(file)
    except DataError:
        return False
    return "train" in content and ("names" in content or "nc" in content)


def _load(file: Path) -> dict[str, Any]:
    try:
        content = yaml.load(file.read_text(encoding="utf-8-sig"), Loader=_SAFE_LOADER)  # noqa: S506
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise DataError(
            f"{file}: is not a data file: it has no keys", advice="give a file with train and names"
        )
    return content


def read_description(file: Path) -> Description:
    content = _load(file)
    root, notes = _root(file, content.get("path"))
    entries = {split: _entries(file, split, content[split]) for split in SPLITS if content.get(split)}
    classes, gaps = _classes(file, content)
    notes += [("class-id-gap", f"names has no {i}; the class is called {classes[i]}") for i in gaps]
    num_classes = content.get("nc", len(classes))
    if num_classes != len(classes):
        what = f"nc is {num_classes}, but there are {len(classes)} names; the names are taken"
        notes.append(("data-yaml", what))
    return Description(file=file, root=root, classes=classes, entries=entries, notes=tuple(notes))


def _root(file: Path, said: object) -> tuple[Path, list[tuple[Kind, str]]]:
    if not said:
        return file.parent, []
    root = file.parent / str(said)
    if root.is_dir():
        return root.resolve(), []
    return file.parent, [("data-yaml", f"its path {said} does not exist; the folder of the file is taken")]


def _entries(file: Path, split: str, value: object) -> tuple[str, ...]:
    entries = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(entry, str) for entry in entries):
        raise DataError(f"{file}: {split} is not a path or a list of paths: {value!r}")
    return tuple(map(str, entries))


def _classes(file: Path, content: Mapping[str, Any]) -> tuple[tuple[str, ...], list[int]]:
    """From a list, from a mapping of ids, or numbered where there is only `nc`; and the ids that a mapping
    leaves out, which are numbered too.
    """
    names = content.get("names")
    try:
        if isinstance(names, list):
            names = dict(enumerate(names))
        by_id = {int(key): str(name).strip() for key, name in (names or {}).items()}
        num_classes = max(by_id) + 1 if by_id else int(content.get("nc") or 0)
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{file}: names are neither a list nor numbered: {names!r}") from error
    if num_classes < 1 or min(by_id, default=0) < 0:
        raise DataError(f"{file}: has no class names", advice="add names: [first, second]")
    gaps = [i for i in range(num_classes) if by_id and i not in by_id]
    return tuple(by_id.get(i, f"class{i}") for i in range(num_classes)), gaps


def described_splits(description: Description, gathering: Gathering) -> list[tuple[str, Path]]:
    """Every image file with its split."""
    where = gathering.place(description.file)
    for kind, what in description.notes:
        gathering.note(kind, where, what)
    images: dict[str, list[Path]] = {}
    for split, entries in description.entries.items():
        found = [_resolve(entry, description) for entry in entries]
        missing = next((entry for entry, path in zip(entries, found, strict=True) if path is None), None)
        if missing is None:
            images[split] = [
                image for path in found if path for image in _images(path, description.root, gathering)
            ]
        elif split == "test":
            what = f"{split}: {missing} does not exist"
            gathering.leave_out("missing-file", where, what, value=missing)
        else:
            raise DataError(
                f"{description.file}: {split}: {missing} does not exist",
                advice=f"paths are relative to {description.root}",
            )
    if "val" in images and set(map(str, images["val"])) == set(map(str, images.get("train", ()))):
        what = "val has the same images as train, which would measure nothing; it is not used"
        gathering.note("leak", where, what)
        del images["val"]
    return [(split, image) for split, files in images.items() for image in files]


def _resolve(entry: str, description: Description) -> Path | None:
    """Some exporters write `../train/images` and mean `train/images`."""
    tries = [description.root / entry, description.file.parent / entry]
    tries += [description.root / entry.removeprefix("../")]
    return next((path for path in tries if path.exists()), None)


def _images(path: Path, root: Path, gathering: Gathering) -> Iterator[Path]:
    """Of a folder or an image, which may lie anywhere; or of a list, whose lines may not: they must stay
    in the set's folder or in the list's own.
    """
    if path.is_dir():
        yield from files_below(path, IMAGE_SUFFIXES)
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        yield path
    else:
        for number, line in enumerate(read_lines(path), 1):
            beside = path.parent / line
            image = beside if beside.exists() else root / line
            if any(_is_inside(image, folder) for folder in (root, path.parent)):
                yield image
            else:
                what = f"leaves the data set: {line}; name the folder as path: in {_DATA_FILE}"
                at = f"line {number}"
                gathering.leave_out("path-escape", gathering.place(path), what, at=at, value=line)


def _is_inside(path: Path, folder: Path) -> bool:
    """By their names: links may lead where they like."""
    return not os.path.relpath(path, folder).startswith(f"..{os.sep}")
