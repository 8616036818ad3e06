"""Reader of Pascal VOC: one XML file for each image, in the layout of the devkit or next to the images.

Coordinates are read as edges of boxes, without an offset. The devkit of 2007 counted pixels from one and
included the last; LabelImg and nearly every tool since write edges counted from zero. Nothing in a file
says which, and half a pixel is less than the precision of most annotators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.units import counted
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector, Object
from boxcrew.data.detection.safe_xml import XML_ERRORS, parse_xml, xml_problem_kind
from boxcrew.data.detection.source import SOURCES, SPLITS
from boxcrew.data.folders import ImageFinder, files_below, names_in, read_lines, split_of_folder, stem_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_start

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_START_TAG = re.compile(rb"<annotation[\s>/]")  # the first element of CVAT is <annotations>
_IMAGE_FOLDERS = ("JPEGImages", "images", "Images")


class _XmlFile(NamedTuple):
    """A parsed annotation file."""

    file: Path
    filename: str
    size: tuple[int, int] | None
    objects: tuple[tuple[str, Object], ...]  # with the names of their classes; labels are not known yet


@SOURCES.register("voc")
class VocSource(AnnotatedSource):
    """A Pascal VOC data set. Splits come from `ImageSets/Main`, else from folders named train, val, test.
    Classes come from `classes.txt`, else they are the names in use, sorted. `truncated` is ignored.
    """

    format = "voc"
    expects = "Annotations/*.xml with JPEGImages/, or an .xml next to each image"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return bool(_roots(path))

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        root = _only_root(path)
        collector, folders = Collector(root), _annotation_folders(root)
        files = files_below(folders[0] if folders else root, {".xml"})
        if folders and (lists := _split_lists(root)):
            assigned: list[tuple[str | None, Path]] = [*_by_split_lists(folders[0], files, lists, collector)]
        else:
            assigned = collector.assign_splits(files)
        parsed = [(split, xml) for split, file in assigned if (xml := _parse(file, collector))]
        if (root / "classes.txt").is_file():
            classes = tuple(dict.fromkeys(read_lines(root / "classes.txt")))
        else:
            classes = tuple(sorted({name for _, xml in parsed for name, _ in xml.objects}))
        finder = ImageFinder()
        for split, xml in parsed:
            if annotation := _annotation(xml, classes, finder, collector):
                collector.add(annotation, split)
        _report_unannotated_images(root, files, collector)
        return collector, classes


def _roots(path: Path) -> list[Path]:
    """Return the data sets at `path`: the folder itself, or several in a folder such as VOCdevkit."""
    if not path.is_dir():
        return []
    if any(_has_annotations(folder) for folder in _candidate_folders(path)):
        return [path]
    below = [*path.iterdir(), *path.glob("VOCdevkit/*")]
    return sorted(folder for folder in below if folder.is_dir() and _has_annotations(folder / "Annotations"))


def _only_root(path: Path) -> Path:
    roots = _roots(path)
    if len(roots) == 1:
        return roots[0]
    if roots:
        message = f"{path}: contains several VOC data sets: {', '.join(root.name for root in roots)}"
        raise DataError(message, advice="give the path of one of them")
    problem = "has no VOC annotations" if path.is_dir() else "no such folder"
    raise DataError(f"{path}: {problem}", advice=f"looked for {VocSource.expects}")


def _candidate_folders(root: Path) -> Iterator[Path]:
    yield from _annotation_folders(root)
    yield root
    for folder in (root / name for name in names_in(root) if split_of_folder(name)):
        yield from (folder, *_annotation_folders(folder))


def _annotation_folders(folder: Path) -> list[Path]:
    children = (folder / name for name in names_in(folder) if name.lower() == "annotations")
    return [child for child in children if child.is_dir()]


def _has_annotations(folder: Path) -> bool:
    first = next((name for name in names_in(folder) if name.endswith(".xml")), None)
    return first is not None and _START_TAG.search(read_start(folder / first, 4096)) is not None


def _split_lists(root: Path) -> dict[str, list[str]]:
    """Return the image names of each split, from `ImageSets/Main`. A missing train or val list is the rest of
    `trainval`; lists of single classes are not read.
    """
    files = {name: root / "ImageSets" / "Main" / f"{name}.txt" for name in (*SPLITS, "trainval")}
    lists = {name: names for name, file in files.items() if file.is_file() and (names := read_lines(file))}
    both = lists.pop("trainval", [])
    for split, counterpart in (("train", "val"), ("val", "train")):
        rest = set(both) - set(lists.get(counterpart, []))
        if split not in lists and rest:
            lists[split] = [name for name in both if name in rest]
    return lists


def _by_split_lists(
    folder: Path, files: list[Path], lists: dict[str, list[str]], collector: Collector
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
            xml = folder / f"{stem}.xml"
            if finder.find(_image_folders(xml.parent, collector.root)[1:], xml.stem):
                continue  # an image without annotation, which is reported with all others
            message = f"{name} has no {folder.name}/{stem}.xml and no image"
            file, at = f"ImageSets/Main/{split}.txt", f"entry {number}"
            collector.leave_out("missing-file", file, message, at=at, value=name)
    if unlisted:
        message = f"{counted(len(unlisted), 'file')} not listed in ImageSets/Main"
        collector.leave_out("no-split", folder.name, message, value=str(len(unlisted)))


def _report_unannotated_images(root: Path, files: Iterable[Path], collector: Collector) -> None:
    annotated = {file.stem for file in files}
    folders = [root / name for name in _IMAGE_FOLDERS] if _annotation_folders(root) else [root]
    for image in (image for folder in folders for image in files_below(folder, IMAGE_SUFFIXES)):
        if image.stem not in annotated and not collector.has_image(image):
            message = "has no .xml file; assumed to be not annotated yet"
            collector.leave_out("image-without-annotation", collector.relative_path(image), message)


def _parse(file: Path, collector: Collector) -> _XmlFile | None:
    relative = collector.relative_path(file)
    try:
        tree = parse_xml(file.read_bytes())
    except XML_ERRORS as error:
        collector.leave_out(xml_problem_kind(error), relative, f"cannot be parsed: {error}")
        return None
    if tree.tag != "annotation":
        message = f"is not an annotation: its first element is <{tree.tag}>"
        collector.leave_out("unreadable-annotation", relative, message, value=tree.tag)
        return None
    filename = (tree.findtext("filename") or "").strip()
    if ".." in filename and ".." in PureWindowsPath(filename).parts:
        message = f"its file name leaves the data set: {filename}"
        collector.leave_out("path-escape", relative, message, value=filename)
        return None
    items = enumerate(tree.findall("object"), 1)
    objects = (_parse_object(number, item, relative, collector) for number, item in items)
    return _XmlFile(file=file, filename=filename, size=_size(tree), objects=tuple(filter(None, objects)))


def _parse_object(number: int, item: Element, file: str, collector: Collector) -> tuple[str, Object] | None:
    children = {child.tag: child for child in reversed(item)}  # the first of several with one tag
    name = _text(children, "name")
    at = f"object {number} ({name or 'no name'})"
    sides = {side.tag: side for side in reversed(children.get("bndbox", ()))}
    texts = [_text(sides, side) for side in ("xmin", "ymin", "xmax", "ymax")]
    try:
        x0, y0, x1, y1 = map(float, texts)
    except ValueError:
        message = f"box is not four numbers: {texts}"
        collector.leave_out("box-malformed", file, message, at=at, value=str(texts))
        return None
    if not name:
        collector.leave_out("unknown-class", file, "has no <name>", at=at)
        return None
    difficult = _text(children, "difficult").lower() not in {"", "0", "false"}
    return name, Object(at=at, box=(x0, y0, x1, y1), label=-1, difficult=difficult)


def _text(children: Mapping[str, Element], tag: str) -> str:
    return (children[tag].text or "").strip() if tag in children else ""


def _size(tree: Element) -> tuple[int, int] | None:
    try:
        width, height = (int(float(tree.findtext(f"size/{side}") or "0")) for side in ("width", "height"))
    except (ValueError, OverflowError):
        return None
    return width, height


def _annotation(
    xml: _XmlFile, classes: tuple[str, ...], finder: ImageFinder, collector: Collector
) -> Annotation | None:
    file = collector.relative_path(xml.file)
    name = PureWindowsPath(xml.filename).name  # handles forward slashes too
    folders = _image_folders(xml.file.parent, collector.root)
    image = finder.find(folders, xml.file.stem, name) or finder.find(folders, Path(name).stem, name)
    if image is None:
        message = f"no image {xml.file.stem}.* or {name or 'of another name'} belongs to it"
        collector.leave_out("annotation-without-image", file, message, value=xml.filename)
        return None
    objects = []
    for class_name, obj in xml.objects:
        if class_name in classes:
            objects.append(obj._replace(label=classes.index(class_name)))
        else:
            message = f"class {class_name!r} is not in classes.txt; {suggest(class_name, list(classes))}"
            collector.leave_out("unknown-class", file, message, at=obj.at, value=class_name)
    return Annotation(file=file, image=image, objects=tuple(objects), size=xml.size)


@lru_cache(maxsize=1024)
def _image_folders(folder: Path, root: Path) -> tuple[Path, ...]:
    """Return the folders that may hold the images of a folder's XML files, the folder itself first."""
    folders, inside = [folder], folder.relative_to(root).parts
    for i in reversed(range(len(inside))):
        if inside[i].lower() == "annotations":
            folders += [root.joinpath(*inside[:i], name, *inside[i + 1 :]) for name in _IMAGE_FOLDERS]
    return tuple(folders)
