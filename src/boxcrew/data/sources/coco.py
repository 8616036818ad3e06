"""COCO: JSON files that list images, categories and boxes, one for each split or one for the whole set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from boxcrew.core.errors import DataError
from boxcrew.data.annotations import Annotation, Box, Gathering, Object
from boxcrew.data.layout import split_of_file, split_of_folder
from boxcrew.data.source import SOURCES, Source

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
    def open(cls, path: Path, *, seed: int = 0) -> Self:
        root, files = _locate(path)
        gathering = Gathering(root)
        pages = [_parse(file, None if path.is_file() else _split(file, root)) for file in files]
        if any(page.split for page in pages):
            for page in (page for page in pages if not page.split):
                gathering.leave_out(
                    gathering.place(page.file), "its name tells no split, but other files' do"
                )
            pages = [page for page in pages if page.split]
        categories = _shared_categories(pages)
        classes = tuple(dict.fromkeys(categories.values()))
        if len(classes) < len(categories):
            gathering.note(
                gathering.place(pages[0].file), "categories of the same name are taken as one class"
            )
        labels = {identity: classes.index(name) for identity, name in categories.items()}
        for page in pages:
            for annotation in _annotations(page, labels, gathering):
                gathering.add(annotation, page.split)
        splits, problems = gathering.finish(seed=seed)
        return cls(root=root, classes=classes, splits=splits, problems=problems)


def _candidates(root: Path) -> list[Path]:
    """JSON files that may be COCO's, by their names alone."""
    if not root.is_dir():
        return []
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir()]
    inner = [
        file
        for folder in folders
        if folder.name.lower() == "annotations" or split_of_folder(folder.name)
        for file in sorted(folder.glob("*.json"))
    ]
    here = [file for file in sorted(root.glob("*.json")) if _known_name(file) or split_of_file(file.stem)]
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


def _parse(file: Path, split: str | None) -> _Page:
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
        names = {int(item["id"]): str(item["name"]).strip() for item in lists.pop("categories")}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: a category has no id or name", advice="give each both") from error
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
    where = gathering.place(page.file)
    images: dict[Any, dict[str, Any]] = {}
    for image in page.images:
        identity = image.get("id")
        if not isinstance(identity, int | str) or not isinstance(image.get("file_name"), str):
            gathering.leave_out(where, f"an image has no id or file_name: {image}")
        elif identity in images:
            gathering.note(where, f"image id {identity} is given again; the first is kept")
        else:
            images[identity] = image
    objects = _objects_by_image(page, images, labels, gathering)
    folders = list(_image_folders(page.file, gathering.root))
    for identity, image in images.items():
        place = f"{where} image {identity}"
        file = _find(image["file_name"], folders, place, gathering)
        if file:
            things = tuple(objects.get(identity, ()))
            yield Annotation(where=place, image=file, objects=things, size=_size(image))


def _objects_by_image(
    page: _Page, images: Mapping[Any, object], labels: Mapping[int, int], gathering: Gathering
) -> dict[Any, list[Object]]:
    objects: dict[Any, list[Object]] = {}
    for number, item in enumerate(page.annotations):
        where = f"{gathering.place(page.file)} annotation {item.get('id', f'number {number}')}"
        image, category, box = item.get("image_id"), item.get("category_id"), _corners(item.get("bbox"))
        if not isinstance(image, int | str) or image not in images:
            gathering.leave_out(where, f"there is no image {image}")
        elif not isinstance(category, int) or category not in labels:
            gathering.leave_out(where, f"there is no category {category}")
        elif box is None:
            gathering.leave_out(where, f"bbox is not four numbers: {item.get('bbox')}")
        else:
            thing = Object(
                where=where,
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
        children = sorted(parent.iterdir()) if parent.is_dir() else []
        yield from (child for child in children if split and split_of_folder(child.name) == split)
    yield root / "images"
    yield file.parent / "images"
    yield file.parent
    yield root


def _find(name: str, folders: Iterable[Path], where: str, gathering: Gathering) -> Path | None:
    """The image file, which must lie inside the data set."""
    relative = Path(name.replace("\\", "/"))
    inside = paths = [folder / relative for folder in folders]
    if relative.is_absolute() or ".." in relative.parts:
        paths = [Path(os.path.normpath(path)) for path in paths]
        inside = [path for path in paths if not gathering.place(path).startswith("../")]
    found = next((path for path in inside if path.is_file()), None)
    if found is None:
        leaves = len(inside) < len(paths)
        what = "its file name leaves the data set:" if leaves else "there is no image file"
        gathering.leave_out(where, f"{what} {name}")
    return found
