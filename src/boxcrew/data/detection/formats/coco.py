"""COCO: JSON files that list images, categories and boxes, one for each split or one for the whole set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from boxcrew.core.errors import DataError
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import Kind
from boxcrew.data.detection.annotations import Annotation, Gathering, Object, collector_paused
from boxcrew.data.detection.source import SOURCES, Source
from boxcrew.data.folders import names_in, split_of_file, split_of_folder, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_KNOWN_NAMES = frozenset(
    {"annotations", "coco", "_annotations.coco"}
)  # stems, besides instances_* and splits
_PEEK_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class _Page:
    """One JSON file, parsed; its lists hold objects, of which nothing else is checked."""

    file: Path
    split: str | None
    images: list[dict[str, Any]]
    annotations: list[dict[str, Any]]
    categories: Mapping[int, str]  # by ascending id


@SOURCES.register("coco")
class CocoSource(Source):
    """Category ids become labels 0..C-1 in ascending order, unused ones included. Several files must agree
    on the categories. `iscrowd` is kept, and a `difficult` that our writer adds.
    """

    format = "coco"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return path.suffix.lower() == ".json"
        return any(_looks_like_coco(file) for file in _candidates(path))

    @classmethod
    def looked_for(cls) -> str:
        return "a .json file, annotations/instances_{train,val,test}*.json or train/_annotations.coco.json"

    @classmethod
    @collector_paused()
    def open(cls, path: Path, *, seed: int = 0) -> Self:
        root, files = _locate(path)
        gathering = Gathering(root)
        pages = [_parse(file, None if path.is_file() else _split(file, root), gathering) for file in files]
        if any(page.split for page in pages):
            for page in (page for page in pages if not page.split):
                what = "its name tells no split, but other files' do"
                gathering.leave_out("no-split", gathering.place(page.file), what)
            pages = [page for page in pages if page.split]
        categories = _shared_categories(pages)
        classes = tuple(dict.fromkeys(categories.values()))
        first = gathering.place(pages[0].file)
        if len(classes) < len(categories):
            gathering.note("duplicate-class", first, "categories of the same name are taken as one class")
        gathering.note_gaps(first, list(categories), "there are no categories")
        labels = {identity: classes.index(name) for identity, name in categories.items()}
        for page in pages:
            for annotation in _annotations(page, labels, gathering):
                gathering.add(annotation, page.split)
        if path.is_dir():  # a file given by itself speaks for its own images alone
            _report_unlisted(gathering)
        splits, problems = gathering.finish(seed=seed)
        return cls(root=root, classes=classes, splits=splits, problems=problems)


def _json_files(folder: Path) -> list[Path]:
    return [folder / name for name in names_in(folder) if name.endswith(".json")]


def _candidates(root: Path) -> list[Path]:
    """JSON files that may be COCO's, by their names alone."""
    if not root.is_dir():
        return []
    folders = [name for name in names_in(root) if name.lower() == "annotations" or split_of_folder(name)]
    inner = [file for name in folders for file in _json_files(root / name)]
    here = [file for file in _json_files(root) if _known_name(file) or split_of_file(file.stem)]
    files = [*inner, *here]
    instances = [file for file in files if file.stem.startswith("instances")]
    return instances or files  # beside instances, COCO itself has captions and keypoints


def _known_name(file: Path) -> bool:
    return file.stem in _KNOWN_NAMES or file.stem.startswith("instances")


def _looks_like_coco(file: Path) -> bool:
    with file.open("rb") as opened:
        start = opened.read(_PEEK_BYTES)
    return any(word in start for word in (b'"images"', b'"annotations"', b'"categories"'))


def _locate(path: Path) -> tuple[Path, list[Path]]:
    """The root of the set and its JSON files."""
    if path.is_file():
        folder = path.parent
        return (folder.parent if folder.name.lower() == "annotations" else folder), [path]
    files = [file for file in _candidates(path) if _looks_like_coco(file)]
    if not files:
        what = "has no COCO annotations" if path.is_dir() else "no such file or folder"
        raise DataError(f"{path}: {what}", advice=f"looked for {CocoSource.looked_for()}")
    return path, files


def _split(file: Path, root: Path) -> str | None:
    return split_of_file(file.stem) or (split_of_folder(file.parent.name) if file.parent != root else None)


def _parse(file: Path, split: str | None, gathering: Gathering) -> _Page:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be parsed as JSON: {error}", advice="export it again") from error
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise DataError(f"{file}: is not COCO: it has no list 'images'", advice="give a COCO detection file")
    lists = {name: content.get(name, []) for name in ("images", "annotations", "categories")}
    for name, items in lists.items():
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise DataError(f"{file}: is not COCO: '{name}' is not a list of objects")
    try:
        pairs = [(int(item["id"]), str(item["name"]).strip()) for item in lists.pop("categories")]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: a category has no id or name", advice="give each both") from error
    names = dict(reversed(pairs))
    for i, (identity, name) in enumerate(pairs):
        if name != names[identity]:
            what = f"category id {identity} is given again, to {name}; it stays {names[identity]}"
            place, at = gathering.place(file), f"category number {i}"
            gathering.leave_out("duplicate-id", place, what, at=at, value=str(identity))
    return _Page(file=file, split=split, categories=dict(sorted(names.items())), **lists)


def _shared_categories(pages: list[_Page]) -> Mapping[int, str]:
    first = pages[0]
    for other in pages[1:]:
        differing = sorted(set(first.categories.items()) ^ set(other.categories.items()))
        if differing:
            raise DataError(
                f"{other.file}: its categories are not those of {first.file}: {differing[0]} is in only one",
                advice="export all splits with the same categories",
            )
    if not first.categories:
        raise DataError(f"{first.file}: has no categories", advice="add the list 'categories'")
    return first.categories


def _annotations(page: _Page, labels: Mapping[int, int], gathering: Gathering) -> Iterator[Annotation]:
    file = gathering.place(page.file)
    images: dict[Any, dict[str, Any]] = {}
    for number, image in enumerate(page.images):
        identity = image.get("id")
        if not isinstance(identity, int | str) or not isinstance(image.get("file_name"), str):
            what = f"an image has no id or file_name: {image}"
            gathering.leave_out("unreadable-annotation", file, what, at=f"image number {number}")
        elif identity in images:
            what = f"image id {identity} is given again; the first is kept"
            gathering.leave_out("duplicate-id", file, what, at=f"image number {number}", value=str(identity))
        else:
            images[identity] = image
    objects = _objects_by_image(page, images, labels, gathering)
    folders = list(_image_folders(page.file, gathering.root))
    for identity, image in images.items():
        at = f"image {identity}"
        found = _find(image["file_name"], folders, gathering)
        if isinstance(found, Path):
            things = tuple(objects.get(identity, ()))
            yield Annotation(file=file, at=at, image=found, objects=things, size=_size(image))
        else:
            kind, what = found
            gathering.leave_out(kind, file, what, at=at, value=image["file_name"])


def _objects_by_image(
    page: _Page, images: Mapping[Any, object], labels: Mapping[int, int], gathering: Gathering
) -> dict[Any, list[Object]]:
    file, seen = gathering.place(page.file), set[Any]()
    objects: dict[Any, list[Object]] = {}
    for number, item in enumerate(page.annotations):
        identity = item.get("id")
        at = f"annotation number {number}" if identity is None else f"annotation {identity}"
        image, category, box = item.get("image_id"), item.get("category_id"), _corners(item.get("bbox"))
        if isinstance(identity, int | str):
            if identity in seen:
                gathering.note("duplicate-id", file, "its id is given again", at=at, value=str(identity))
            seen.add(identity)
        if not isinstance(image, int | str) or image not in images:
            what = f"there is no image {image}"
            gathering.leave_out("annotation-without-image", file, what, at=at, value=str(image))
        elif not isinstance(category, int) or category not in labels:
            what = f"there is no category {category}"
            gathering.leave_out("unknown-class", file, what, at=at, value=str(category))
        elif box is None:
            what = f"bbox is not four numbers: {item.get('bbox')}"
            gathering.leave_out("box-malformed", file, what, at=at, value=str(item.get("bbox")))
        else:
            thing = Object(
                at=at,
                box=box,
                label=labels[category],
                difficult=bool(item.get("difficult", 0)),
                crowd=bool(item.get("iscrowd", 0)),
            )
            objects.setdefault(image, []).append(thing)
    return objects


def _corners(xywh: object) -> Box | None:
    """None if it is not four numbers."""
    if not isinstance(xywh, list) or len(xywh) != 4:
        return None
    try:
        x, y, width, height = (float(value) for value in xywh)
    except (TypeError, ValueError, OverflowError):
        return None
    return x, y, x + width, y + height


def _size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = image.get("width"), image.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _image_folders(file: Path, root: Path) -> Iterator[Path]:
    """Where images may lie, the most likely first: folders named like the split, then `images`, then beside
    the file and at the root.
    """
    split = _split(file, root)
    for parent in (root / "images", root):
        yield from (parent / name for name in names_in(parent) if split and split_of_folder(name) == split)
    yield root / "images"
    yield file.parent / "images"
    yield file.parent
    yield root


def _find(name: str, folders: Iterable[Path], gathering: Gathering) -> Path | tuple[Kind, str]:
    """The image file, which must lie inside the data set; or what is wrong."""
    relative = Path(name.replace("\\", "/"))
    may_leave, has_left = relative.is_absolute() or ".." in relative.parts, False
    for folder in folders:
        path = folder / relative
        if may_leave:
            path = Path(os.path.normpath(path))
            if gathering.place(path).startswith("../"):
                has_left = True
                continue
        if path.is_file():
            return path
    if has_left:
        return "path-escape", f"its file name leaves the data set: {name}"
    return "missing-file", f"there is no image file {name}"


def _report_unlisted(gathering: Gathering) -> None:
    """Images that lie among the listed ones, and that no file lists."""
    for folder in gathering.image_folders():
        for name in names_in(folder):
            if suffix_of(name) in IMAGE_SUFFIXES and not gathering.met(folder / name):
                what = "is listed in no annotation file"
                gathering.leave_out("image-without-annotation", gathering.place(folder / name), what)
