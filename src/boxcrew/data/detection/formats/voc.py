"""Pascal VOC: one XML file for each image, in the layout of the devkit or beside the images.

Coordinates are taken as they stand, as edges of boxes. The devkit of 2007 counted pixels from one and
included the last; LabelImg and nearly every tool since write edges counted from zero, nothing in a file
says which, and half a pixel is below the care of most annotators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Self
from xml.etree import ElementTree as ET

import defusedxml.ElementTree
from defusedxml import DefusedXmlException, EntitiesForbidden, ExternalReferenceForbidden

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import Kind
from boxcrew.data.detection.annotations import Annotation, Gathering, Object, collector_paused
from boxcrew.data.detection.source import SOURCES, SPLITS, Source
from boxcrew.data.folders import (
    ImageFinder,
    files_below,
    names_in,
    read_lines,
    require_folder,
    split_of_folder,
    stem_of,
)
from boxcrew.data.images.reading import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ENCODING = re.compile(rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]*?encoding\s*=\s*["']([^"']*)""")
_PLAIN_ENCODINGS = frozenset({b"utf-8", b"us-ascii", b"iso-8859-1"})  # in which ASCII is itself
_IMAGE_FOLDERS = ("JPEGImages", "images", "Images")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Named:
    """One <object>."""

    at: str
    name: str
    box: Box
    difficult: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    """One XML file."""

    file: Path
    filename: str
    size: tuple[int, int] | None
    objects: tuple[_Named, ...]


@SOURCES.register("voc")
class VocSource(Source):
    """Splits come from `ImageSets/Main`, else from folders named train, val, test. Classes come from
    `classes.txt`, else they are the names met, sorted. `truncated` changes nothing in training or
    evaluation and is not kept.
    """

    format = "voc"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return bool(_roots(path))

    @classmethod
    def looked_for(cls) -> str:
        return "Annotations/*.xml with JPEGImages/, or an .xml beside each image"

    @classmethod
    @collector_paused()
    def open(cls, path: Path, *, seed: int = 0) -> Self:
        require_folder(path, "VOC")
        root = _only_root(path)
        gathering = Gathering(root)
        files = _files(root)
        pages = [(split, _parse(file, gathering)) for split, file in _divided(root, files, gathering)]
        found = [(split, page) for split, page in pages if page]
        classes = _classes(root, [page for _, page in found])
        finder = ImageFinder()
        for split, page in found:
            annotation = _annotation(page, classes, finder, gathering)
            if annotation:
                gathering.add(annotation, split)
        _report_images_without_page(root, files, gathering)
        splits, problems = gathering.finish(seed=seed)
        return cls(root=root, classes=classes, splits=splits, problems=problems)


def _roots(path: Path) -> list[Path]:
    """The data sets at `path`: itself, or those of a folder such as VOCdevkit that holds VOC2007."""
    if not path.is_dir():
        return []
    if any(_has_pages(folder) for folder in _page_folders(path)):
        return [path]
    below = [*path.iterdir(), *path.glob("VOCdevkit/*")]
    return sorted(folder for folder in below if folder.is_dir() and _has_pages(folder / "Annotations"))


def _only_root(path: Path) -> Path:
    roots = _roots(path)
    if len(roots) == 1:
        return roots[0]
    if roots:
        names = ", ".join(root.name for root in roots)
        raise DataError(
            f"{path}: holds several VOC data sets: {names}", advice="give the path of one of them"
        )
    raise DataError(f"{path}: has no VOC annotations", advice=f"looked for {VocSource.looked_for()}")


def _page_folders(root: Path) -> Iterator[Path]:
    yield from _annotation_folders(root)
    yield root
    for folder in (root / name for name in names_in(root) if split_of_folder(name)):
        if folder.is_dir():
            yield folder
            yield from _annotation_folders(folder)


def _annotation_folders(folder: Path) -> list[Path]:
    children = (folder / name for name in names_in(folder) if name.lower() == "annotations")
    return [child for child in children if child.is_dir()]


def _has_pages(folder: Path) -> bool:
    first = next((name for name in names_in(folder) if name.endswith(".xml")), None)
    if first is None:
        return False
    with (folder / first).open("rb") as file:
        return b"<annotation" in file.read(4096)


def _files(root: Path) -> list[Path]:
    folders = _annotation_folders(root)
    return files_below(folders[0] if folders else root, {".xml"})


def _divided(root: Path, files: list[Path], gathering: Gathering) -> list[tuple[str | None, Path]]:
    """The XML files with their splits."""
    folders, lists = _annotation_folders(root), _split_lists(root)
    if lists and folders:
        return list(_listed(folders[0], files, lists, gathering))
    return gathering.divide(files)


def _split_lists(root: Path) -> dict[str, list[str]]:
    """Split -> image names, from `ImageSets/Main`. `trainval` stands in for what is missing of its two
    parts; the lists of single classes are not read.
    """
    files = {name: root / "ImageSets" / "Main" / f"{name}.txt" for name in (*SPLITS, "trainval")}
    lists = {name: names for name, file in files.items() if file.is_file() and (names := read_lines(file))}
    both = lists.pop("trainval", [])
    for part, other in (("train", "val"), ("val", "train")):
        rest = set(both) - set(lists.get(other, []))
        if part not in lists and rest:
            lists[part] = [name for name in both if name in rest]
    return lists


def _listed(
    folder: Path, files: list[Path], lists: dict[str, list[str]], gathering: Gathering
) -> Iterator[tuple[str, Path]]:
    start = f"{folder.as_posix()}/"
    by_name = {stem_of(file.as_posix().removeprefix(start)): file for file in files}
    unlisted, finder = set(by_name), ImageFinder()
    for split in (split for split in SPLITS if split in lists):
        for number, name in enumerate(lists[split], 1):
            suffixed = Path(name).suffix.lower() in IMAGE_SUFFIXES and name not in by_name
            stem = name.removesuffix(Path(name).suffix) if suffixed else name
            unlisted.discard(stem)
            if stem in by_name:
                yield split, by_name[stem]
                continue
            place = folder / f"{stem}.xml"
            if finder.find(_image_folders(place.parent, gathering.root)[1:], place.stem):
                continue  # an image without a page, which is reported with all others
            what = f"{name} has no {folder.name}/{stem}.xml and no image"
            file, at = f"ImageSets/Main/{split}.txt", f"entry {number}"
            gathering.leave_out("missing-file", file, what, at=at, value=name)
    if unlisted:
        what = f"{len(unlisted)} files are in no list of ImageSets/Main"
        gathering.leave_out("no-split", folder.name, what, value=str(len(unlisted)))


def _report_images_without_page(root: Path, files: Iterable[Path], gathering: Gathering) -> None:
    annotated = {file.stem for file in files}
    folders = [root / name for name in _IMAGE_FOLDERS] if _annotation_folders(root) else [root]
    for image in (image for folder in folders for image in files_below(folder, IMAGE_SUFFIXES)):
        if image.stem not in annotated and not gathering.met(image):
            what = "has no .xml file: taken as not annotated yet"
            gathering.leave_out("image-without-annotation", gathering.place(image), what)


def _parse(file: Path, gathering: Gathering) -> _Page | None:
    place = gathering.place(file)
    try:
        tree = _parse_xml(file.read_bytes())
    except (OSError, ET.ParseError, DefusedXmlException, LookupError, ValueError) as error:
        gathering.leave_out(_kind_of(error), place, f"cannot be parsed: {error}")
        return None
    if tree.tag != "annotation":
        what = f"is no annotation: its first element is <{tree.tag}>"
        gathering.leave_out("unreadable-annotation", place, what, value=tree.tag)
        return None
    filename = (tree.findtext("filename") or "").strip()
    if ".." in filename and ".." in PureWindowsPath(filename).parts:
        what = f"its file name leaves the data set: {filename}"
        gathering.leave_out("path-escape", place, what, value=filename)
        return None
    objects = (_parse_object(i, item, place, gathering) for i, item in enumerate(tree.findall("object"), 1))
    return _Page(file=file, filename=filename, size=_size(tree), objects=tuple(filter(None, objects)))


def _parse_xml(data: bytes) -> Element:
    """Without a document type there are no entities, and the parser of the library, several times faster,
    is as safe as the guarded one. In encodings where ASCII is something else that cannot be seen.
    """
    declared = _ENCODING.match(data)
    plain = (declared[1].lower() in _PLAIN_ENCODINGS) if declared else True
    if plain and b"\0" not in data and b"<!DOCTYPE" not in data:
        return ET.fromstring(data)  # noqa: S314
    guarded: Element = defusedxml.ElementTree.fromstring(data)
    return guarded


def _kind_of(error: Exception) -> Kind:
    if isinstance(error, ExternalReferenceForbidden) or getattr(error, "sysid", None):
        return "xml-external-entity"
    return "xml-bomb" if isinstance(error, EntitiesForbidden) else "unreadable-annotation"


def _parse_object(number: int, item: Element, file: str, gathering: Gathering) -> _Named | None:
    parts = {part.tag: part for part in reversed(item)}  # of several with one name, the first
    name = _text(parts, "name")
    at = f"object {number} ({name or 'no name'})"
    sides = {side.tag: side for side in reversed(parts.get("bndbox", ()))}
    texts = [_text(sides, side) for side in ("xmin", "ymin", "xmax", "ymax")]
    try:
        x0, y0, x1, y1 = map(float, texts)
    except ValueError:
        what = f"box is not four numbers: {texts}"
        gathering.leave_out("box-malformed", file, what, at=at, value=str(texts))
        return None
    if not name:
        gathering.leave_out("unknown-class", file, "has no <name>", at=at)
        return None
    difficult = _text(parts, "difficult").lower() not in {"", "0", "false"}
    return _Named(at=at, name=name, box=(x0, y0, x1, y1), difficult=difficult)


def _text(parts: Mapping[str, Element], tag: str) -> str:
    return (parts[tag].text or "").strip() if tag in parts else ""


def _size(tree: Element) -> tuple[int, int] | None:
    try:
        width, height = (int(float(tree.findtext(f"size/{side}") or "0")) for side in ("width", "height"))
    except (ValueError, OverflowError):
        return None
    return width, height


def _classes(root: Path, pages: Iterable[_Page]) -> tuple[str, ...]:
    listed = root / "classes.txt"
    if listed.is_file():
        return tuple(dict.fromkeys(read_lines(listed)))
    return tuple(sorted({item.name for page in pages for item in page.objects}))


def _annotation(
    page: _Page, classes: tuple[str, ...], finder: ImageFinder, gathering: Gathering
) -> Annotation | None:
    file = gathering.place(page.file)
    name = PureWindowsPath(page.filename).name  # also right for forward slashes
    folders = _image_folders(page.file.parent, gathering.root)
    image = finder.find(folders, page.file.stem, name) or finder.find(folders, Path(name).stem, name)
    if image is None:
        what = f"no image {page.file.stem}.* or {name or 'other'} belongs to it"
        gathering.leave_out("annotation-without-image", file, what, value=page.filename)
        return None
    objects = []
    for item in page.objects:
        if item.name in classes:
            label = classes.index(item.name)
            objects.append(Object(at=item.at, box=item.box, label=label, difficult=item.difficult))
        else:
            what = f"class {item.name!r} is not in classes.txt; {suggest(item.name, list(classes))}"
            gathering.leave_out("unknown-class", file, what, at=item.at, value=item.name)
    return Annotation(file=file, image=image, objects=tuple(objects), size=page.size)


@lru_cache(maxsize=1024)
def _image_folders(folder: Path, root: Path) -> tuple[Path, ...]:
    """Where the images of a folder's XML files may lie: in the same folder, or in one that stands for it."""
    folders, inside = [folder], folder.relative_to(root).parts
    for i in reversed(range(len(inside))):
        if inside[i].lower() == "annotations":
            folders += [root.joinpath(*inside[:i], name, *inside[i + 1 :]) for name in _IMAGE_FOLDERS]
    return tuple(folders)
