"""Reader of Ultralytics' data.yaml: `path`, `train`, `val`, `test`, `names` or `nc`. Nothing in it is
executed or downloaded, and its paths are relative to the file itself, never to a folder configured elsewhere.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.data_file import MAX_CLASSES, DataFile
from boxcrew.data.detection.source import SPLITS

_DATA_FILE = "data.yaml"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast C version if PyYAML has it
_TEXT_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # keeps every value as the text that is written
_YAML_FAULTS = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    RecursionError,
)  # all seen


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
    """Return the content. Class names stay as they are written: YAML itself would make `yes` a truth value
    and `007` the number 7.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        content, as_text = (yaml.load(text, Loader=loader) for loader in (_LOADER, _TEXT_LOADER))  # noqa: S506
    except (*_YAML_FAULTS, OSError) as error:
        raise DataError(f"{file}: cannot be read as YAML: {error}", advice="correct it") from error
    if not isinstance(content, dict):
        message = f"{file}: is not a data file: it has no keys"
        raise DataError(message, advice="use a file with train and names")
    if content.get("names") is not None:
        content["names"] = as_text.get("names", content["names"])
    return content


def read_data_yaml(file: Path) -> DataFile:
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
    return DataFile(file=file, root=root, classes=classes, entries=entries, notes=tuple(notes))


def _entries(file: Path, split: str, value: object) -> tuple[str, ...]:
    entries = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(entry, str) for entry in entries):
        message = f"{file}: {split} is not a path or a list of paths: {reprlib.repr(value)}"
        raise DataError(message, advice=f"write {split}: images/{split}")
    return tuple(map(str, entries))


def _classes(file: Path, content: Mapping[str, Any]) -> tuple[tuple[str, ...], list[int]]:
    """Return the class names, and the ids that a mapping leaves out. Names come from a list or a mapping of
    ids; classes without a name, or given by `nc`, are numbered.
    """
    names = content.get("names")
    try:
        if isinstance(names, list):
            names = dict(enumerate(names))
        by_id = {int(key): name.strip() for key, name in (names or {}).items()}
        num_classes = max(by_id) + 1 if by_id else int(content.get("nc") or 0)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        message = f"{file}: names are neither a list nor numbered: {reprlib.repr(names)}"
        raise DataError(message, advice="write names: [first, second]") from error
    if not 0 < num_classes <= MAX_CLASSES or min(by_id, default=0) < 0:
        message = f"{file}: has no class names, or ids of classes beyond 0 to {MAX_CLASSES - 1}"
        raise DataError(message, advice="write names: [first, second]")
    gaps = [i for i in range(num_classes) if by_id and not by_id.get(i)]
    return tuple(by_id.get(i) or f"class{i}" for i in range(num_classes)), gaps
