"""Crops: the objects of any set of images with boxes, each an example of its class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.problem import Problem
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import Record, Source, open_source
from boxcrew.data.examples.class_folders import is_annotated
from boxcrew.data.examples.crops import ImageCrops, lazy_crops, read_crops, resolve_crops
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    ExampleFormat,
    ExampleOptions,
    Examples,
    ExampleSet,
)
from boxcrew.data.examples.shapes import Shape, choose_shape

MARGIN = 0.1
"""Of a box's sides, that a crop shows beyond each of its edges."""
SMALLEST_SIDE = 8
"""Of a box, in pixels: what is smaller cannot be told."""
_MOST_AT_ONCE = 512 * 2**20  # bytes of crops that are made when the set is opened


@EXAMPLE_FORMATS.register("crops")
class CropsFormat(ExampleFormat):
    """Objects that are crowds or difficult are no examples."""

    name = "crops"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return is_annotated(path)

    @classmethod
    def looked_for(cls) -> str:
        return "any set for detection: VOC, COCO or YOLO"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        source = scan(open_source(path, seed=options.seed), workers=options.workers)
        return open_crops(source, options, format=cls.name)


def open_crops(source: Source, options: ExampleOptions, *, format: str) -> ExampleSet:
    """The crops of a set. If they are not too large they are made here, each image being read once for all
    of its crops; else they are read when asked for.
    """
    splits = {name: _cuts(records) for name, records in source.splits.items()}
    problems = [*source.problems, *_small(source)]
    settled, left = resolve_crops(source.root, source.classes, splits, problems, eval_only=options.eval_only)
    shape = choose_shape(options, None)
    count = sum(len(cut.labels) for cuts in left.values() for cut in cuts)
    examples: Mapping[str, Examples]
    if count * math.prod(shape) <= _MOST_AT_ONCE:
        examples, unread = _made(source, left, shape, workers=options.workers)
        problems += unread
    else:
        examples = lazy_crops(source, left, shape)
    return ExampleSet(
        root=source.root,
        format=format,
        kind="pictures",
        classes=settled.classes,
        shape=shape,
        splits=examples,
        problems=(*problems, *settled.problems),
    )


def _cuts(records: Sequence[Record]) -> list[ImageCrops]:
    return [cut for record in records if (cut := _cut(record))]


def _cut(record: Record) -> ImageCrops | None:
    """None if no object is an example."""
    left = np.flatnonzero(_candidates(record) & ~_is_small(record))
    if not len(left):
        return None
    keys = tuple(f"{record.key}#{place}" for place in left.tolist())
    labels = record.target.labels[left]
    return ImageCrops(record=record, boxes=_with_margin(record)[left], labels=labels, keys=keys)


def _candidates(record: Record) -> Bools:
    return ~record.target.crowd & ~record.target.difficult


def _is_small(record: Record) -> Bools:
    boxes = record.target.boxes
    small: Bools = (boxes[:, 2:] - boxes[:, :2]).min(axis=1) < SMALLEST_SIDE
    return small


def _with_margin(record: Record) -> Ints:
    boxes = record.target.boxes.astype(np.float64)
    margin = MARGIN * (boxes[:, 2:] - boxes[:, :2])
    wide = np.concatenate([np.floor(boxes[:, :2] - margin), np.ceil(boxes[:, 2:] + margin)], axis=1)
    clipped: Ints = np.clip(wide, 0, [record.width, record.height] * 2).astype(np.int64)
    return clipped


def _small(source: Source) -> list[Problem]:
    records = [record for part in source.splits.values() for record in part]
    count = sum(int((_candidates(record) & _is_small(record)).sum()) for record in records)
    if not count:
        return []
    what = f"{count} objects have a side under {SMALLEST_SIDE} pixels: no examples"
    return [Problem(kind="box-small", file=str(source.root), what=what, action="left out", count=count)]


def _made(
    source: Source, splits: Mapping[str, Sequence[ImageCrops]], shape: Shape, *, workers: int
) -> tuple[dict[str, Examples], list[Problem]]:
    """Images are as they were when they were scanned, or else there is something to tell."""
    examples: dict[str, Examples] = {}
    problems: list[Problem] = []
    for split, cuts in splits.items():
        made, skipped = read_crops(source, cuts, shape, workers=workers)
        if len(made):
            examples[split] = made
        problems += [
            Problem(kind="unreadable-image", file=str(source.root), what=message, action="left out")
            for message in skipped
        ]
    if "train" not in examples:
        raise DataError(f"{source.root}: has nothing to train on", advice=f"the first problem: {problems[0]}")
    return examples, problems
