"""Crops: the objects of any detection set, each a sample of its class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools
from boxcrew.data.checks.problem import Problem
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.examples.class_folders import is_annotated
from boxcrew.data.examples.crops import CropList, ImageCrops, LazyCrops, Shape, choose_shape, read_crops
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    ExampleFormat,
    ExampleOptions,
    ExampleSet,
    ExampleSplit,
)
from boxcrew.data.examples.labeled import resolve_splits

MARGIN = 0.1
"""The share of a box's side that a crop shows beyond each edge."""
SMALLEST_SIDE = 8
"""The smallest side of a box that is used, in pixels."""
_MOST_IN_MEMORY = 512 * 2**20  # bytes of crops up to which all are read when the set is opened


@EXAMPLE_FORMATS.register("crops")
class CropsFormat(ExampleFormat):
    """Crops of all objects that are neither crowds nor difficult."""

    name = "crops"
    reads_boxes = True
    expects = "any set for detection, such as VOC, COCO or YOLO"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return is_annotated(path)

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        source = scan(open_source(path, seed=options.seed, options=options.boxes), workers=options.workers)
        return open_crops(source, options, format=cls.name)


def open_crops(source: Source, options: ExampleOptions, *, format: str) -> ExampleSet:
    """Open the crops of a detection set. They are read here if they fit into memory, else when fetched."""
    splits = {
        name: CropList(crops for record in records if (crops := _crops(record)))
        for name, records in source.splits.items()
    }
    problems = [*source.problems, *_small_objects(source)]
    root, eval_only = source.root, options.eval_only
    classes, splits, absent = resolve_splits(root, source.classes, splits, problems, eval_only=eval_only)
    shape = choose_shape(options, None)
    examples: Mapping[str, ExampleSplit]
    if sum(len(images.labels) for images in splits.values()) * math.prod(shape) > _MOST_IN_MEMORY:
        examples = {split: LazyCrops(source, images, shape) for split, images in splits.items()}
    else:
        examples = _read_splits(source, splits, shape, problems, workers=options.workers)
    return ExampleSet(root, format, "images", classes, shape, examples, problems=(*problems, *absent))


def _crops(record: Record) -> ImageCrops | None:
    """Return the crops of an image; None if it has no usable object."""
    usable = np.flatnonzero(_usable_and_small(record)[0])
    if not len(usable):
        return None
    keys = tuple(f"{record.key}#{index}" for index in usable.tolist())
    boxes = record.target.boxes[usable].astype(np.float64)
    margin = MARGIN * (boxes[:, 2:] - boxes[:, :2])
    wide = np.concatenate([np.floor(boxes[:, :2] - margin), np.ceil(boxes[:, 2:] + margin)], axis=1)
    clipped = wide.clip(0, [record.width, record.height] * 2).astype(np.int64)
    return ImageCrops(record=record, boxes=clipped, labels=record.target.labels[usable], keys=keys)


def _usable_and_small(record: Record) -> tuple[Bools, Bools]:
    """Return masks of the objects that are used, and of those that would be if they were not too small."""
    target = record.target
    candidates = ~target.crowd & ~target.difficult
    small = (target.boxes[:, 2:] - target.boxes[:, :2]).min(axis=1) < SMALLEST_SIDE
    return candidates & ~small, candidates & small


def _small_objects(source: Source) -> list[Problem]:
    count = sum(int(_usable_and_small(record)[1].sum()) for record in source.records)
    if not count:
        return []
    message = f"{count} objects have a side under {SMALLEST_SIDE} pixels, too small for a crop"
    return [Problem("box-small", str(source.root), message, "left out", count=count)]


def _read_splits(
    source: Source, splits: Mapping[str, CropList], shape: Shape, problems: list[Problem], *, workers: int
) -> dict[str, ExampleSplit]:
    """Read all crops. Images that changed since they were scanned and cannot be read become problems."""
    examples, num_before = dict[str, ExampleSplit](), len(problems)
    for split, images in splits.items():
        examples[split], skipped = read_crops(source, images, shape, workers=workers)
        problems += [Problem("unreadable-image", str(source.root), text, "left out") for text in skipped]
    if not len(examples.get("train", ())):
        first = f"the first problem: {problems[num_before]}"
        raise DataError(f"{source.root}: has nothing to train on", advice=first)
    return {split: crops for split, crops in examples.items() if len(crops)}
