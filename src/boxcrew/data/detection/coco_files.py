"""Finds and parses the JSON files of a COCO set, which are recognized by their content, not their names."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.data.detection.annotations import Collector
from boxcrew.data.detection.coco_stream import CocoArrays
from boxcrew.data.folders import names_in, split_of_file, split_of_folder, suffix_of
from boxcrew.data.images.reading import read_start

_MAX_JSON_FILES = 16  # a folder with more of them has one for each image, which COCO never has
_START_BYTES = 65_536
_LISTS = frozenset({"images", "annotations", "categories"})
_KEY = re.compile(
    r'"(images|annotations|categories)"\s*:\s*\[|"(file_name|image_id|category_id|supercategory)"'
)


class Category(NamedTuple):
    name: str
    parent: str  # COCO's supercategory, empty if there is none


class CocoFile(NamedTuple):
    """A parsed JSON file. Its lists hold dictionaries whose content is not checked yet."""

    file: Path
    split: str | None
    images: list[dict[str, Any]]
    annotations: list[dict[str, Any]]
    categories: Mapping[int, Category]  # by ascending id


def looks_like_coco(file: Path) -> bool:
    """Return whether a file begins like a JSON object with COCO's lists. One key is not enough: files of
    other tools have some of that name too.
    """
    try:
        start = read_start(file, _START_BYTES)
    except OSError:
        return False
    text = start.decode(json.detect_encoding(start), errors="ignore").lstrip("\ufeff \t\r\n")
    keys = {key for match in _KEY.finditer(text) for key in match.groups() if key}
    return text.startswith("{") and len(keys) > 1 and not keys.isdisjoint(_LISTS)


def find_coco_files(root: Path) -> list[Path]:
    """Return the COCO files in a folder, in its `annotations` and in its split folders."""
    names = [name for name in names_in(root) if name.lower() == "annotations" or split_of_folder(name)]
    files = [file for parent in (*(root / name for name in names), root) for file in _json_files(parent)]
    # Next to instances, COCO itself has captions and keypoints.
    instances = [file for file in files if file.stem.startswith("instances")]
    return [file for file in instances or files if looks_like_coco(file)]


def _json_files(folder: Path) -> list[Path]:
    files = [folder / name for name in names_in(folder) if suffix_of(name) == ".json"]
    likely = [file for file in files if file.name.startswith("_annotations") or split_of_file(file.stem)]
    return files if len(files) <= _MAX_JSON_FILES else likely[:_MAX_JSON_FILES]


def split_of(file: Path, root: Path) -> str | None:
    """Return the split that the name of a file, or else of its folder, means."""
    return split_of_file(file.stem) or (split_of_folder(file.parent.name) if file.parent != root else None)


def select_files(parsed: list[CocoFile], collector: Collector) -> list[CocoFile]:
    """Return the files of splits if there are any, else the only file."""
    in_splits = [coco for coco in parsed if coco.split]
    others = [coco.file for coco in parsed if not coco.split]
    if not in_splits and len(others) > 1:
        names = ", ".join(map(collector.relative_path, others))
        message = f"{collector.root}: contains several COCO files, none named after a split: {names}"
        raise DataError(message, advice="give the path of one of them, or name them train.json and val.json")
    for file in others if in_splits else ():
        message = "its name says no split, but the names of other files do"
        collector.leave_out("no-split", collector.relative_path(file), message)
    return in_splits or parsed


def parse_coco(file: Path, split: str | None, collector: Collector) -> CocoFile:
    """Parse a file, or raise `DataError` if it is not COCO."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be parsed as JSON: {error}", advice="export it again") from error
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise DataError(f"{file}: is not COCO: it has no list 'images'", advice="use a COCO detection file")
    lists = {name: content.get(name, []) for name in ("images", "annotations", "categories")}
    for name, items in lists.items():
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise DataError(
                f"{file}: is not COCO: '{name}' is not a list of objects", advice="export it again"
            )
    categories = _parse_categories(file, lists.pop("categories"), collector)
    return CocoFile(file=file, split=split, categories=categories, **lists)


def without_lists(file: Path, split: str | None, arrays: CocoArrays, collector: Collector) -> CocoFile:
    """Return a file that was read into arrays, with an object of each category that is in use alone."""
    categories = _parse_categories(file, arrays.listed, collector)
    used = [{"category_id": number} for number in np.unique(arrays.categories).tolist()]
    return CocoFile(file=file, split=split, images=[], annotations=used, categories=categories)


def _parse_categories(
    file: Path, items: Iterable[dict[str, Any]], collector: Collector
) -> dict[int, Category]:
    categories: dict[int, Category] = {}
    for number, item in enumerate(items):
        category_id, name = category_number(item.get("id")), item.get("name")
        if category_id is None or not isinstance(name, str | int | float):
            advice = "give every category both"
            raise DataError(f"{file}: category number {number} has no id or name", advice=advice)
        category = Category(str(name).strip(), str(item.get("supercategory") or "").strip())
        first = categories.setdefault(category_id, category)
        if first.name != category.name:
            message = f"category id {category_id} is used again, for {category.name}; it stays {first.name}"
            where, at = collector.relative_path(file), f"category number {number}"
            collector.leave_out("duplicate-id", where, message, at=at, value=str(category_id))
    return dict(sorted(categories.items()))


def category_number(value: object) -> int | None:
    """Return the id of a category, which some tools write as text or with a fraction of zero."""
    if isinstance(value, int):
        return value
    try:
        number = float(value) if isinstance(value, str | float) else math.nan
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def shared_categories(parsed: list[CocoFile], collector: Collector) -> dict[int, str]:
    """Return the names of the categories, which all files must share, by ascending id. A category without
    objects that is only the parent of others is left out: Roboflow writes one.
    """
    first = parsed[0]
    names = {number: category.name for number, category in first.categories.items()}
    for coco in parsed[1:]:
        own = {number: category.name for number, category in coco.categories.items()}
        if differing := sorted(set(names.items()) ^ set(own.items())):
            message = f"its categories are not those of {first.file}: {differing[0]} is in only one"
            raise DataError(f"{coco.file}: {message}", advice="export all splits with the same categories")
    if not names:
        raise DataError(f"{first.file}: has no categories", advice="add the list 'categories'")
    groups = _groups(parsed, names)
    if len(groups) == len(names):
        return names
    for number, name in groups.items():
        message = f"category {number} ({name}) has no object and only groups others; it is not a class"
        collector.note("class-empty", collector.relative_path(first.file), message, value=name)
    return {number: name for number, name in names.items() if number not in groups}


def _groups(parsed: list[CocoFile], names: Mapping[int, str]) -> dict[int, str]:
    """Return the categories that no annotation of any file uses and that are the parents of others."""
    used = {category_number(item.get("category_id")) for coco in parsed for item in coco.annotations}
    children = defaultdict[str, set[int]](set)
    for coco in parsed:
        for number, category in coco.categories.items():
            children[category.parent].add(number)
    return {
        number: name
        for number, name in names.items()
        if number not in used and children.get(name, set()) - {number}
    }
