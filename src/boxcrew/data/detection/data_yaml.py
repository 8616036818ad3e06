"""Reader of Ultralytics' data.yaml: `path`, `train`, `val`, `test`, `names` or `nc`. Nothing in it is
executed or downloaded, and its paths are relative to the file itself, never to a folder configured elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.annotations import Collector
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.folders import files_below, read_lines
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_DATA_FILE = "data.yaml"
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast C version if PyYAML has it


@dataclass(frozen=True, kw_only=True)
class DataYaml:
    """The content of a data.yaml file."""

    file: Path
    root: Path  # its paths are relative to this folder
    classes: tuple[str, ...]
    entries: Mapping[str, tuple[str, ...]]  # split -> folders and lists of files, as written
    notes: tuple[tuple[ProblemKind, str], ...]


def find_yamls(path: Path) -> list[Path]:
    """Return the data files at `path`: the file itself, or `data.yaml` in the folder, or else all like it."""
    if path.is_file():
        return [path] if _is_data_yaml(path) else []
    if _is_data_yaml(path / _DATA_FILE):
        return [path / _DATA_FILE]
    return [file for file in sorted(path.glob("*.y*ml")) if _is_data_yaml(file)]


def _is_data_yaml(file: Path) -> bool:
    try:
        content = _load(file) if file.suffix.lower() in {".yaml", ".yml"} and file.is_file() else {}
    except DataError:
        return False
    return "train" in content and ("names" in content or "nc" in content)


def _load(file: Path) -> dict[str, Any]:
    try:
        content = yaml.load(file.read_text(encoding="utf-8-sig"), Loader=_SAFE_LOADER)  # noqa: S506
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        message = f"{file}: is not a data file: it has no keys"
        raise DataError(message, advice="use a file with train and names")
    return content


def read_data_yaml(file: Path) -> DataYaml:
    content = _load(file)
    notes: list[tuple[ProblemKind, str]] = []
    root, path = file.parent, content.get("path")
    if path and (file.parent / str(path)).is_dir():
        root = (file.parent / str(path)).resolve()
    elif path:
        notes.append(("data-yaml", f"its path {path} does not exist; the folder of the file is used"))
    entries = {split: _entries(file, split, content[split]) for split in SPLITS if content.get(split)}
    classes, gaps = _classes(file, content)
    notes += [("class-id-gap", f"names has no {i}; the class is called {classes[i]}") for i in gaps]
    if (nc := content.get("nc", len(classes))) != len(classes):
        notes.append(("data-yaml", f"nc is {nc}, but there are {len(classes)} names; the names are used"))
    return DataYaml(file=file, root=root, classes=classes, entries=entries, notes=tuple(notes))


def _entries(file: Path, split: str, value: object) -> tuple[str, ...]:
    entries = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(entry, str) for entry in entries):
        raise DataError(f"{file}: {split} is not a path or a list of paths: {value!r}")
    return tuple(map(str, entries))


def _classes(file: Path, content: Mapping[str, Any]) -> tuple[tuple[str, ...], list[int]]:
    """Return the class names, and the ids that a mapping leaves out. Names come from a list or a mapping of
    ids; classes without a name, or given by `nc`, are numbered.
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


def find_images(data: DataYaml, collector: Collector) -> list[tuple[str, Path]]:
    """Return every image file with its split."""
    file = collector.relative_path(data.file)
    for kind, message in data.notes:
        collector.note(kind, file, message)
    images: dict[str, list[Path]] = {}
    for split, entries in data.entries.items():
        paths = [_resolve(entry, data) for entry in entries]
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


def _resolve(entry: str, data: DataYaml) -> Path | None:
    # Some exporters mean `train/images` by `../train/images`.
    candidates = [data.root / entry, data.file.parent / entry, data.root / entry.removeprefix("../")]
    return next((path for path in candidates if path.exists()), None)


def _images(path: Path, root: Path, collector: Collector) -> Iterator[Path]:
    """Yield the image files of a folder, of a single image, or of a list of image paths. A folder or image
    may be anywhere; the lines of a list must stay in the set's folder or the list's own.
    """
    if path.is_dir():
        yield from files_below(path, IMAGE_SUFFIXES)
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        yield path
    else:
        for number, line in enumerate(read_lines(path), 1):
            beside = path.parent / line
            image = beside if beside.exists() else root / line
            relative = [os.path.relpath(image, folder) for folder in (root, path.parent)]
            if not all(name.startswith(f"..{os.sep}") for name in relative):  # links may point anywhere
                yield image
            else:
                file, at = collector.relative_path(path), f"line {number}"
                message = f"leaves the data set: {line}; name the folder as path: in {_DATA_FILE}"
                collector.leave_out("path-escape", file, message, at=at, value=line)
