"""Reader of Darknet's .data files, which CVAT writes as `obj.data`: `train`, `valid`, `names`, `classes`."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.data_file import MAX_CLASSES, DataFile, resolve
from boxcrew.data.folders import names_in, numbered_lines, read_lines, suffix_of

_SPLIT_KEYS = {"train": "train", "valid": "val", "val": "val", "test": "test"}


def find_darknet(path: Path) -> list[Path]:
    """Return the .data files at `path`: the file itself, or those in the folder."""
    files = [path] if path.is_file() else [path / name for name in names_in(path)]
    return [file for file in files if suffix_of(file.name) == ".data" and _is_darknet(file)]


def _is_darknet(file: Path) -> bool:
    try:
        keys = _load(file)
    except DataError:
        return False
    return "train" in keys and not keys.keys().isdisjoint({"names", "classes"})


def _load(file: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in numbered_lines(file).values() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip()}


def read_darknet(file: Path) -> DataFile:
    keys, root = _load(file), file.parent
    entries = {split: (keys[key],) for key, split in _SPLIT_KEYS.items() if key in keys}
    listed = resolve(keys["names"], root, root) if "names" in keys else None
    names, stated = read_lines(listed) if listed else [], keys.get("classes", "")
    notes: list[tuple[ProblemKind, str]] = []
    if names and stated and stated != str(len(names)):
        notes.append(("data-yaml", f"classes is {stated}, but there are {len(names)} names; they are used"))
    if not names:
        count = int(stated) if stated.isdecimal() else 0
        if not 0 < count <= MAX_CLASSES:
            raise DataError(
                f"{file}: has no class names", advice="name a file with a class in each line: names="
            )
        names = [f"class{i}" for i in range(count)]
        notes.append(("data-yaml", f"its file of names is missing; {count} classes are numbered"))
    return DataFile(
        file=file,
        root=root,
        classes=tuple(names),
        entries=entries,
        notes=tuple(notes),
        names_files=(listed,) if listed else (),
    )
