"""Image folders: a folder for each class, or one for all, below folders of splits or not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image, Target
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Problem
from boxcrew.data.checks.scan import ScannedFile, scan_files
from boxcrew.data.detection.source import SPLITS, Record
from boxcrew.data.examples.class_folders import (
    ClassFolder,
    class_folders,
    files_outside_classes,
    has_class_folders,
    is_annotated,
    stray_problems,
    unclassified_problems,
    unlistable_problems,
)
from boxcrew.data.examples.crops import ImageCrops, labels_of, lazy_crops, resolve_crops
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.examples.labelled import hold_out_mask, made_split_problem
from boxcrew.data.examples.shapes import Shape, choose_shape
from boxcrew.data.folders import files_below, names_in, require_folder, split_of_folder, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES, ImageError, read_header, read_image

_NAMED = 3  # files that a message names
_NO_BOXES = Target.of([], [])
Splits = dict[str, list[ImageCrops]]


@EXAMPLE_FORMATS.register("folder")
class FolderFormat(ExampleFormat):
    """Images may be of any size: all are brought to one, their proportions not kept."""

    name = "folder"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if not path.is_dir() or is_annotated(path):
            return False
        return has_class_folders(path, IMAGE_SUFFIXES) or _holds_images(path)

    @classmethod
    def looked_for(cls) -> str:
        return "images in a folder, or in one for each class, below train/ and val/ or not"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        require_folder(path, "image folder")
        names, splits, problems = _find(path)
        if not splits:
            advice = f"the first problem: {problems[0]}" if problems else f"looked for {cls.looked_for()}"
            raise DataError(f"{path}: has no usable image in a folder of its class", advice=advice)
        splits, made = _hold_out(path, splits, seed=options.seed)
        splits, unusable = _readable(path, splits, workers=options.workers)
        splits, made_late = _hold_out(path, splits, seed=options.seed)
        problems += (*made, *unusable, *made_late)
        settled, left = resolve_crops(path, names, splits, problems, eval_only=options.eval_only)
        sizes = Counter((cut.record.height, cut.record.width) for cuts in left.values() for cut in cuts)
        shape = choose_shape(options, (*next(iter(sizes)), 3) if len(sizes) == 1 else None)
        if options.size is None and options.shape is None:
            problems += _resized(path, sizes, shape)
        return ExampleSet(
            root=path,
            format=cls.name,
            kind="pictures",
            classes=settled.classes,
            shape=shape,
            splits=lazy_crops(_Files(), left, shape),
            problems=(*problems, *settled.problems),
        )


class _Files:
    """Reads what records name."""

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        assert record.path is not None
        return read_image(record.path, reduction=reduction)


def _find(root: Path) -> tuple[list[str], Splits, list[Problem]]:
    """The names of the classes, and the images whose header can be read: as training, if there are no
    splits.
    """
    folders = _folders(root)
    names = sorted({folder.label for folder in folders})
    splits: Splits = {}
    problems = [*unlistable_problems(root, "unreadable-image"), *stray_problems(root, folders)]
    problems += unclassified_problems(root, files_outside_classes(root, folders, IMAGE_SUFFIXES), "image")
    for folder in folders:
        problems += _others(root, folder)
        for file in files_below(folder.path, IMAGE_SUFFIXES):
            key = file.relative_to(root).as_posix()
            try:
                cut = _whole(file, key, names.index(folder.label))
            except ImageError as error:
                what = error.message.removeprefix(f"{file}: ")
                problems.append(Problem(kind=error.kind, file=key, what=what, action="left out"))
            else:
                splits.setdefault(folder.split or "train", []).append(cut)
    return names, splits, problems


def _folders(root: Path) -> list[ClassFolder]:
    """Images that no folder of a class holds are all of one."""
    found = class_folders(root)
    if _holds_images(root) and not has_class_folders(root, IMAGE_SUFFIXES):
        return [ClassFolder(split=None, label=root.resolve().name, path=root)]
    if all(folder.split is None and split_of_folder(folder.label) for folder in found):
        return [
            ClassFolder(split=split_of_folder(folder.label), label=root.resolve().name, path=folder.path)
            for folder in found
        ]
    return found


def _holds_images(folder: Path) -> bool:
    return any(suffix_of(name) in IMAGE_SUFFIXES for name in names_in(folder))


def _whole(file: Path, key: str, label: int) -> ImageCrops:
    """An image as one example."""
    header = read_header(file)
    width, height = header.width, header.height
    return ImageCrops(
        record=Record(key=key, path=file, width=width, height=height, target=_NO_BOXES),
        boxes=np.array([[0, 0, width, height]], dtype=np.int64),
        labels=np.array([label], dtype=np.int64),
        keys=(key,),
    )


def _others(root: Path, folder: ClassFolder) -> list[Problem]:
    """That there are files which are no images, if so."""
    visible = (name for name in names_in(folder.path) if not name.startswith("."))
    others = (name for name in visible if suffix_of(name) not in IMAGE_SUFFIXES)
    names = [name for name in others if not (folder.path / name).is_dir()]
    if not names:
        return []
    listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    what = f"holds {len(names)} files that are no images by their names: {listed}"
    place = folder.path.relative_to(root).as_posix()
    return [Problem(kind="not-an-image", file=place, what=what, value=listed, action="noted")]


def _hold_out(root: Path, splits: Splits, *, seed: int) -> tuple[Splits, tuple[Problem, ...]]:
    """With a validation split, made where there is none."""
    train = splits.get("train", [])
    if not train or "val" in splits:
        return splits, ()
    chosen = hold_out_mask([cut.record.key for cut in train], labels_of(train), seed=seed)
    if not chosen.any():
        return splits, ()
    divided: Splits = {"train": [], "val": []}
    for cut, is_held in zip(train, chosen.tolist(), strict=True):
        divided["val" if is_held else "train"].append(cut)
    return {**splits, **divided}, made_split_problem(root, chosen, seed=seed)


def _readable(root: Path, splits: Splits, *, workers: int) -> tuple[Splits, tuple[Problem, ...]]:
    """Without what cannot be read, without what an earlier split has too, and so without splits that have
    nothing else.
    """
    files = [
        ScannedFile(cut.record.key, cut.record.path, split)
        for split in SPLITS
        for cut in splits.get(split, ())
        if cut.record.path
    ]
    problems = scan_files(root, files, workers=workers)
    lost = {problem.file for problem in problems if problem.action == "left out"}
    left = {split: [cut for cut in cuts if cut.record.key not in lost] for split, cuts in splits.items()}
    return {split: cuts for split, cuts in left.items() if cuts}, problems


def _resized(root: Path, sizes: Counter[tuple[int, int]], shape: Shape) -> list[Problem]:
    """That images do not stay as large as they are though nobody asked for it, if so."""
    height, width, _ = shape
    if sizes.keys() == {(height, width)}:
        return []
    count, (first_height, first_width) = sizes.total(), min(sizes)
    found = f"{len(sizes)} sizes" if len(sizes) > 1 else f"{first_width} x {first_height} pixels"
    what = f"{counted(count, 'image')} of {found} become {width} x {height}; size= sets another side"
    return [
        Problem(kind="image-resized", file=str(root), what=what, value=found, action="repaired", count=count)
    ]
