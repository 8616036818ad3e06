"""Image folders: one for each class or one for all images, with or without split folders above."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image, Target
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Problem
from boxcrew.data.checks.scan import scan_records
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.box_files import refuse_box_files
from boxcrew.data.examples.class_folders import (
    ClassFolder,
    class_folders,
    has_class_folders,
    is_annotated,
    list_names,
    outside_problems,
    unlistable_problems,
)
from boxcrew.data.examples.crops import CropList, ImageCrops, LazyCrops, Shape, choose_shape
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.examples.labeled import hold_out, resolve_splits
from boxcrew.data.folders import files_below, names_in, require_folder, split_of_folder, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES, ImageError, read_header, read_image

_NO_BOXES = Target.of([], [])
Splits = dict[str, CropList]


@EXAMPLE_FORMATS.register("folder")
class FolderFormat(ExampleFormat):
    """Images of any size, which are all resized to one shape; the aspect ratio is not kept."""

    name = "folder"
    expects = "images in one folder, or in a folder for each class, with or without train/ and val/ above"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if not path.is_dir() or is_annotated(path):
            return False
        return has_class_folders(path, IMAGE_SUFFIXES) or _holds_images(path)

    @classmethod
    def check_detected(cls, path: Path) -> None:
        refuse_box_files(path)

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        require_folder(path, "image folder")
        names, splits, problems = _find(path)
        if not splits:
            advice = f"the first problem: {problems[0]}" if problems else f"looked for {cls.expects}"
            raise DataError(f"{path}: has no usable image in a folder of its class", advice=advice)
        splits = hold_out(path, splits, _keys, problems, seed=options.seed)
        splits = _readable(path, splits, problems, workers=options.workers)
        splits = hold_out(path, splits, _keys, problems, seed=options.seed)  # if no validation image is left
        eval_only = options.eval_only
        classes, splits, absent = resolve_splits(path, names, splits, problems, eval_only=eval_only)
        records = [image.record for images in splits.values() for image in images]
        sizes = Counter((record.height, record.width) for record in records)
        shape = choose_shape(options, (*next(iter(sizes)), 3) if len(sizes) == 1 else None)
        if options.size is None and options.shape is None:
            problems += _resized(path, sizes, shape)
        examples = {split: LazyCrops(_FileReader(), images, shape) for split, images in splits.items()}
        return ExampleSet(path, cls.name, "images", classes, shape, examples, problems=(*problems, *absent))


class _FileReader:
    def read(self, record: Record, *, reduction: int = 1) -> Image:
        assert record.path is not None
        return read_image(record.path, reduction=reduction)


def _find(root: Path) -> tuple[list[str], Splits, list[Problem]]:
    """Find the class names and the images with a readable header, by split ("train" if there are none)."""
    folders, splits = _folders(root), defaultdict[str, CropList](CropList)
    names = sorted({folder.label for folder in folders})
    problems = unlistable_problems(root, "unreadable-image")
    problems += outside_problems(root, folders, IMAGE_SUFFIXES, "image")
    for folder in folders:
        problems += _other_files(root, folder)
        for file in files_below(folder.path, IMAGE_SUFFIXES):
            key = file.relative_to(root).as_posix()
            try:
                image = _entire_image(file, key, names.index(folder.label))
                splits[folder.split or "train"].append(image)
            except ImageError as error:
                problems.append(Problem(error.kind, key, error.message.removeprefix(f"{file}: "), "left out"))
    return names, splits, problems


def _folders(root: Path) -> list[ClassFolder]:
    """Return the class folders. Images without any are all of one class, named after the root."""
    folders = class_folders(root)
    label = root.resolve().name
    if _holds_images(root) and not has_class_folders(root, IMAGE_SUFFIXES):
        return [ClassFolder(None, label, root)]
    if all(folder.split is None and split_of_folder(folder.label) for folder in folders):
        return [ClassFolder(split_of_folder(folder.label), label, folder.path) for folder in folders]
    return folders


def _holds_images(folder: Path) -> bool:
    return any(suffix_of(name) in IMAGE_SUFFIXES for name in names_in(folder))


def _entire_image(file: Path, key: str, label: int) -> ImageCrops:
    header = read_header(file)
    width, height = header.width, header.height
    return ImageCrops(
        record=Record(key=key, path=file, width=width, height=height, target=_NO_BOXES),
        boxes=np.array([[0, 0, width, height]], dtype=np.int64),
        labels=np.array([label], dtype=np.int64),
        keys=(key,),
    )


def _other_files(root: Path, folder: ClassFolder) -> list[Problem]:
    """Report the files of a class folder that are no images, if there are any."""
    visible = (name for name in names_in(folder.path) if not name.startswith("."))
    others = (name for name in visible if suffix_of(name) not in IMAGE_SUFFIXES)
    names = [name for name in others if not (folder.path / name).is_dir()]
    if not names:
        return []
    message = f"holds {len(names)} files whose names are not those of images: {list_names(names)}"
    folder_name = folder.path.relative_to(root).as_posix()
    return [Problem("not-an-image", folder_name, message, "noted", value=list_names(names))]


def _keys(images: CropList) -> list[str]:
    return [image.record.key for image in images]


def _readable(root: Path, splits: Splits, problems: list[Problem], *, workers: int) -> Splits:
    """Leave out unreadable images, copies of images in an earlier split, and splits that are then empty."""
    records = {split: [image.record for image in splits.get(split, ())] for split in SPLITS}
    scanned = scan_records(root, records, workers=workers)
    problems += scanned
    lost = {problem.file for problem in scanned if problem.action == "left out"}
    kept = {split: [i for i in images if i.record.key not in lost] for split, images in splits.items()}
    return {split: CropList(images) for split, images in kept.items() if images}


def _resized(root: Path, sizes: Counter[tuple[int, int]], shape: Shape) -> list[Problem]:
    """Report that images change their size by default, if they do."""
    height, width, _ = shape
    if sizes.keys() == {(height, width)}:
        return []
    count, (first_height, first_width) = sizes.total(), min(sizes)
    old = f"{len(sizes)} sizes" if len(sizes) > 1 else f"{first_width} x {first_height} pixels"
    message = f"{counted(count, 'image')} of {old} become {width} x {height}; size= sets another side"
    return [Problem("image-resized", str(root), message, "repaired", value=old, count=count)]
